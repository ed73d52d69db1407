"""`smartmig evaluate`: a trained policy on days it has never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.cli import complete
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import Gpus, PolicyFile, Preempt, Recut, RecutMode, rule_spec, with_policy_file
from smartmig.compare import PREFERENCE_DAYS, BoundChoice, learned_preferences, sample_days
from smartmig.compare import compare as run_comparison
from smartmig.hardware.cluster import parse_gpus
from smartmig.metrics.statistics import relative_change
from smartmig.policy.policy_file import SHIPPED, read_policy
from smartmig.policy.repartition.mean_field import shipped_name
from smartmig.report.page import Section, comparison_page
from smartmig.report.preferences import preference_bars
from smartmig.report.tables import comparison_json, comparison_table, estimate_json
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario
from smartmig.sim.mig.run import cuts_of


def evaluate(
    policy_file: PolicyFile = None,
    gpus: Gpus = "8xa100-40gb",
    placement: Annotated[
        str | None,
        typer.Option(help="Placement rule; default: the one it goes best with.", autocompletion=complete.placements),
    ] = None,
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Annotated[float, typer.Option(help="Load of the days (20 for 8 GPUs).")] = 20.0,
    seeds: Annotated[int, typer.Option(min=1, help="How many test days.")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes; default: one per core.")] = None,
    bound: Annotated[BoundChoice, typer.Option(help="Bounds to stand beside.")] = BoundChoice.paper,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    json_output: Json = False,
) -> None:
    """Put a trained cutting policy beside the static mix and the hand-made rule, on the same test days."""
    n_gpus = len(parse_gpus(gpus, "--gpus"))
    path = policy_file or SHIPPED / shipped_name(n_gpus, recut is Recut.drain)
    about = read_policy(path).about
    placing = rule_spec(placement or about.placement, "--placement")
    how: dict[str, Any] = {"preempt": preempt, "recut": recut.value}
    plan = Scenario(
        version=1,
        title=f"{path.name} on {gpus}",
        cluster=ClusterSpec(gpus),
        workload={"id": "day", "multiplier": multiplier},
        policies=(
            PolicySpec(name="static mix, CEDF", **how),
            PolicySpec(name="slice-count", placement=placing, repartition="slice-count", **how),
            PolicySpec(
                name="mean-field",
                placement=placing,
                repartition=with_policy_file("mean-field", policy_file),
                **how,
            ),
        ),
        seeds=seeds,
        first_seed=first_seed,
    )
    for policy in plan.policies:
        cuts_of(plan.cluster_for(policy), policy.policy().repartition)
    if report is not None:
        prepare_place(report)
    with progress_bar() as tell:
        result = run_comparison(plan, tell, processes, bound)
    if report is not None:
        preferred = Section(
            "What the policy prefers",
            f"Share of the GPUs in each configuration under mean-field, mean over {min(PREFERENCE_DAYS, seeds)} days: "
            "blue is a GPU cut into few slices, brown one cut into many.",
            preference_bars(learned_preferences(plan, plan.policies[-1])),
        )
        comparison_page(report, result, sample_days(plan, result), [preferred])
        log(f"wrote {report}")
    # The table compares with the static mix; whether learning beat the hand-made rule is a difference of its own.
    beside = relative_change(result.values("mean-field", "et"), result.values("slice-count", "et"))
    if json_output:
        gain = {"et_change_against_slice_count_frac": estimate_json(beside)}
        print_json({**comparison_json(result), **gain, "policy_file": str(path), "trained_with": about.command})
    else:
        output().print(comparison_table(result, output().width))
        output().print(
            f"mean-field against slice-count: ET {100 * beside.mean:+.1f} % ± {100 * beside.half_width:.1f}",
            style="bold",
        )
        log(f"{path.name}: placed by {placing}; made by: {about.command}")
