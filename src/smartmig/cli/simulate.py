"""`smartmig simulate`: one job file on one cluster under one policy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from smartmig.bounds.energy import paper_energy_bound_j
from smartmig.cli import complete, gang
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import (
    Gpus,
    Layouts,
    PolicyFile,
    Preempt,
    Recut,
    RecutMode,
    RestartS,
    Speed,
    SpeedMode,
    pair_of,
    rule_spec,
    with_flags,
    with_policy_file,
)
from smartmig.compare import drawable, n_compute_slices, notes_of
from smartmig.errors import InputError, NoSliceFits
from smartmig.metrics.summary import summarise
from smartmig.report.comparison import Comparison, PolicyRuns
from smartmig.report.page import comparison_page
from smartmig.report.tables import summary_table
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario
from smartmig.sim.gang.world import Backfill
from smartmig.sim.mig.run import cuts_of, is_compiled
from smartmig.sim.mig.run import simulate as run_simulation
from smartmig.workload.jobs_csv import place_of_job, read_jobs

SHARED = ("world", "seed", "policy_file", "report", "json_output")


@with_flags(gang.GangFlags)
def simulate(
    ctx: typer.Context,
    settings: gang.GangFlags,
    world: gang.World = gang.WorldChoice.mig,
    jobs: Annotated[Path | None, typer.Option(help="Job file (see `smartmig generate`); - is standard input.")] = None,
    gpus: Gpus = "8xa100-40gb",
    layouts: Layouts = None,
    placement: Annotated[
        str, typer.Option(help="Placement rule, id or id:knob=value,...", autocompletion=complete.placements)
    ] = "categorical-edf",
    repartition: Annotated[
        str, typer.Option(help="Repartition rule, id or id:knob=value,...", autocompletion=complete.repartitions)
    ] = "static",
    policy: Annotated[
        str | None, typer.Option(help="Placing and cutting trained together, in place of both rules: joint.")
    ] = None,
    policy_file: PolicyFile = None,
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    restart_s: RestartS = 0.0,
    speed: SpeedMode = Speed.as_given,
    seed: Annotated[int, typer.Option(min=0, help="Of the policy's own draws; gang: of made-up requests.")] = 0,
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML page here: the slice timeline; gang: waiting over time.")
    ] = None,
    selection: Annotated[
        str,
        typer.Option(
            help="gang: which queued job is next, id or id:knob=value,...", autocompletion=complete.selections
        ),
    ] = "fcfs",
    allocation: Annotated[
        str,
        typer.Option(help="gang: which nodes it gets, id or id:knob=value,...", autocompletion=complete.allocations),
    ] = "best-fit",
    backfill: Annotated[Backfill, typer.Option(help="gang: what may pass a job that does not fit.")] = Backfill.none,
    utilisation: gang.WhichUtilisation = gang.Utilisations.submit,
    json_output: Json = False,
) -> None:
    """Run the jobs of a file and tell what it cost.

    Two worlds: slices of MIG GPUs (--jobs), and whole GPUs on nodes (--world gang --trace). Flags of the second say so.
    """
    gang.refuse_other_world(ctx, world, SHARED)
    if world is gang.WorldChoice.gang:
        given = selection, allocation, backfill
        gang.simulate(settings, *given, utilisation, seed, policy_file, report, json_output)
        return
    if jobs is None:
        raise InputError("--jobs: a job file is needed; see `smartmig generate`")
    if policy is not None:
        placing, cutting = pair_of(policy, "--policy", policy_file)
    else:
        placing = rule_spec(placement, "--placement")
        cutting = with_policy_file(rule_spec(repartition, "--repartition"), policy_file)
    spec = PolicySpec(
        name=policy,
        placement=placing,
        repartition=cutting,
        layouts=layouts,
        preempt=preempt,
        recut=recut.value,
        restart_s=restart_s,
        speed=speed.value,
    )
    scenario = Scenario(version=1, title=f"{jobs.name} on {gpus}", cluster=ClusterSpec(gpus, layouts), policies=(spec,))
    rules = spec.policy()
    cluster = scenario.cluster_for(spec)
    cuts_of(cluster, rules.repartition)
    if report is not None:
        prepare_place(report)
    job_set = read_jobs(jobs)
    if not is_compiled(rules):
        log("compiling this policy for its first use (about half a minute, then cached) ...")
    try:
        with progress_bar() as tell:
            run = run_simulation(
                job_set,
                cluster,
                rules,
                spec.settings(seed=seed, record=report is not None),
                on_progress=lambda done: tell("jobs", done, len(job_set)),
            )
    except NoSliceFits as error:
        raise InputError(f"{place_of_job(jobs, error.job_id)}: {error}") from None
    summary = summarise(job_set, run, n_compute_slices(cluster))
    notes = notes_of(scenario)
    if report is not None:
        bound_j = (paper_energy_bound_j(job_set, cluster.gpus),) if len(set(cluster.gpus)) == 1 else None
        runs = (PolicyRuns(spec.title, (summary,)),)
        comparison = Comparison(scenario.title, (seed,), runs, notes=notes, bound_energy_j=bound_j)
        comparison_page(report, comparison, (drawable(spec.title, job_set, run, cluster),))
        log(f"wrote {report}")
    if json_output:
        print_json({**asdict(summary), "policy": spec.title, "gpus": gpus, "notes": list(notes)})
    else:
        output().print(summary_table(spec.title, summary))
        for note in notes:
            log(f"note: {note}")
