"""`smartmig compare`: several policies on the same days."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.cli import complete, gang
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import Layouts, PolicyFile, Recut, Speed, pair_of, rule_spec, with_flags, with_policy_file
from smartmig.compare import BoundChoice, refuse_early, sample_days, with_seeds
from smartmig.compare import compare as run_comparison
from smartmig.errors import InputError, NoSliceFits
from smartmig.report.page import comparison_page
from smartmig.report.tables import comparison_json, comparison_table
from smartmig.scenario import ClusterSpec, PolicySpec, RuleSpec, Scenario, read_scenario
from smartmig.sim.gang.world import Backfill
from smartmig.workload.jobs_csv import place_of_job
from smartmig.workload.mix import parse_deadline

SHARED = ("world", "seeds", "first_seed", "processes", "policy_file", "report", "json_output")


@with_flags(gang.GangFlags)
def compare(
    ctx: typer.Context,
    settings: gang.GangFlags,
    scenario: Annotated[Path | None, typer.Argument(help="Scenario file; without it, flags describe one.")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Cluster, in place of the scenario's.", autocompletion=complete.clusters)
    ] = None,
    layouts: Layouts = None,
    placement: Annotated[
        list[str] | None,
        typer.Option(
            help="Placement rule, id or id:knob=value,...; repeat for several.", autocompletion=complete.placements
        ),
    ] = None,
    repartition: Annotated[
        list[str] | None,
        typer.Option(help="Repartition rule; repeat for several.", autocompletion=complete.repartitions),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Placing and cutting trained together, beside the rules: joint.")
    ] = None,
    policy_file: PolicyFile = None,
    recut: Annotated[Recut | None, typer.Option(help="How GPUs are re-cut: paper or drain.")] = None,
    preempt: Annotated[bool | None, typer.Option("--preempt/--no-preempt", help="Decide anew at every event.")] = None,
    restart_s: Annotated[float | None, typer.Option(min=0, help="Seconds a stopped job loses.")] = None,
    speed: Annotated[Speed | None, typer.Option(help="Run times of other GPU models.")] = None,
    jobs: Annotated[Path | None, typer.Option(help="Job file to run in place of generated days.")] = None,
    multiplier: Annotated[float | None, typer.Option(help="Load of the generated day.")] = None,
    deadline: Annotated[str | None, typer.Option(help="LOW:HIGH slack of the generated day's deadlines.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many days.")] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="The first day.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes; default: one per core.")] = None,
    bound: Annotated[
        BoundChoice,
        typer.Option(help="Show how far above S3's energy bound (paper), and the ET bound too (et: 20 s a day)."),
    ] = BoundChoice.paper,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    world: gang.World = gang.WorldChoice.mig,
    selection: Annotated[
        list[str] | None,
        typer.Option(help="gang: which queued job is next; repeat for several.", autocompletion=complete.selections),
    ] = None,
    allocation: Annotated[
        list[str] | None,
        typer.Option(help="gang: which nodes it gets; repeat for several.", autocompletion=complete.allocations),
    ] = None,
    backfill: Annotated[
        list[Backfill] | None, typer.Option(help="gang: what may pass a job that does not fit; repeat for several.")
    ] = None,
    utilisation: gang.WhichUtilisation = gang.Utilisations.submit,
    json_output: Json = False,
) -> None:
    """Run policies on the same seeds in parallel; print a table with paired differences and 95 % intervals.

    The first policy is the baseline. With --world gang: every combination of the rules given, on one trace of whole-GPU
    jobs; seeds are those of made-up requests.
    """
    gang.refuse_other_world(ctx, world, SHARED)
    if world is gang.WorldChoice.gang:
        gang.compare(
            settings,
            selection or (),
            allocation or (),
            backfill or (),
            utilisation,
            seeds,
            first_seed,
            processes,
            policy_file,
            report,
            json_output,
        )
        return
    plan = read_scenario(scenario) if scenario is not None else Scenario(version=1, title="a day of jobs")
    if gpus is not None or layouts is not None:
        plan = replace(plan, cluster=ClusterSpec(gpus or plan.cluster.gpus, layouts or plan.cluster.layouts))
    if layouts is not None:
        plan = replace(plan, policies=tuple(replace(policy, layouts=None) for policy in plan.policies))
    plan = replace(plan, workload=_workload(plan.workload, jobs, multiplier, deadline))
    if placement or repartition:
        plan = replace(
            plan,
            policies=tuple(
                PolicySpec(placement=rule_spec(p, "--placement"), repartition=rule_spec(r, "--repartition"))
                for p in placement or ["categorical-edf"]
                for r in repartition or ["static"]
            ),
        )
    pairs = [(name, *pair_of(name, "--policy", policy_file)) for name in policy or ()]
    joint = tuple(PolicySpec(name=name, placement=placing, repartition=cut) for name, placing, cut in pairs)
    plan = replace(plan, policies=(*plan.policies, *joint))
    if policy_file is not None and not pairs:
        plan = replace(
            plan,
            policies=tuple(
                replace(policy, repartition=with_policy_file(policy.repartition, policy_file))
                for policy in plan.policies
            ),
        )
    given: dict[str, Any] = {"preempt": preempt, "restart_s": restart_s}
    given |= {"recut": recut and recut.value, "speed": speed and speed.value}
    given = {flag: value for flag, value in given.items() if value is not None}
    plan = replace(plan, policies=tuple(replace(policy, **given) for policy in plan.policies))
    if jobs is not None and seeds is not None:
        raise InputError("--seeds counts generated days; a job file (--jobs) is run once")
    plan = with_seeds(plan, 1 if jobs is not None else seeds, first_seed)
    refuse_early(plan)
    if report is not None:
        prepare_place(report)
    try:
        with progress_bar() as tell:
            result = run_comparison(plan, tell, processes, bound)
    except NoSliceFits as error:
        place = place_of_job(jobs, error.job_id) if jobs is not None else scenario
        raise InputError(f"{place}: {error}" if place is not None else str(error)) from None
    if report is not None:
        comparison_page(report, result, sample_days(plan, result))
        log(f"wrote {report}")
    if json_output:
        print_json(comparison_json(result))
    else:
        output().print(comparison_table(result, output().width))
        for note in result.notes:
            log(f"note: {note}")


def _workload(spec: RuleSpec, jobs: Path | None, multiplier: float | None, deadline: str | None) -> RuleSpec:
    if jobs is not None:
        if multiplier is not None or deadline is not None:
            raise InputError("--multiplier and --deadline shape generated days; a job file (--jobs) is run as it is")
        if str(jobs) == "-":
            raise InputError("--jobs: every policy reads the file anew, so it cannot be standard input")
        return {"id": "csv", "path": str(jobs)}
    changes: dict[str, object] = {}
    if multiplier is not None:
        changes["multiplier"] = multiplier
    if deadline is not None:
        changes["deadline"] = parse_deadline(deadline, "--deadline")
    if not changes:
        return spec
    return {**({"id": spec} if isinstance(spec, str) else spec), **changes}
