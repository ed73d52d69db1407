"""`simulate` and `compare` in the whole-GPU world."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.cli import complete
from smartmig.cli.console import log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import rule_spec, with_policy_file
from smartmig.errors import InputError, NoNodesFit
from smartmig.gang_compare import compare_gangs, costs_of
from smartmig.gang_scenario import GangPolicySpec, GangScenario
from smartmig.metrics.gang_series import series_of
from smartmig.registry import GANG_TRACES
from smartmig.report.gang_fairness import fairness_json, fairness_table
from smartmig.report.gang_page import gang_page
from smartmig.report.gang_tables import GangComparison, gang_comparison_json, gang_comparison_table, gang_table
from smartmig.sim.gang.run import is_compiled
from smartmig.sim.gang.run import simulate as run_simulation
from smartmig.sim.gang.world import Backfill
from smartmig.workload.gang.filter import GangFilter

SEEDS = 8
"""Made-up requests decide the game: one seed of them is none."""


class WorldChoice(StrEnum):
    mig = "mig"
    """slices of MIG GPUs"""
    gang = "gang"
    """whole GPUs on nodes"""


class Utilisations(StrEnum):
    submit = "submit"
    """from the first to the last submission"""
    all = "all"
    """also while jobs wait under strict FCFS, and with everything submitted at once: two more runs"""


World = Annotated[WorldChoice, typer.Option(help="mig: slices of GPUs; gang: whole GPUs on nodes.")]
WhichUtilisation = Annotated[
    Utilisations, typer.Option(help="gang: all = also while strict FCFS is busy, and with a saturated queue.")
]


@dataclass(frozen=True)
class GangFlags:
    """Which jobs, on which nodes."""

    trace: str = ""
    """gang: file of whole-GPU jobs (helios, philly, swf, sacct, csv ...); .gz is unpacked."""
    format: str = field(default="", metadata={"complete": complete.names_in(GANG_TRACES)})
    """gang: of the trace. Left out: told from the content."""
    procs_per_gpu: int = 0
    """gang, swf: processors that come with one GPU."""
    nodes: str = "30x8"
    """gang: nodes x GPUs, e.g. 30x8 or 20x8:a100,10x4:v100@0.5 with models and speeds."""
    nodes_per_switch: int = 0
    """gang: neighbouring nodes that share a switch; 0 = all of them."""
    outages: str = ""
    """gang: CSV of node,from_s,to_s,kind (failure or drain)."""
    max_gpus: int = 0
    """gang: leave out jobs with more GPUs; 0 keeps all."""
    since: str = field(default="", metadata={"flag": ("--from",)})
    """gang: first day of submission, e.g. 2020-04-01 (UTC)."""
    before: str = field(default="", metadata={"flag": ("--to",)})
    """gang: the day after the last, e.g. 2020-09-01 (UTC)."""
    group: tuple[str, ...] = ()
    """gang: only this group: partition, account or virtual cluster. Repeat for more."""
    without_group: tuple[str, ...] = ()
    """gang: leave out this group. Repeat for more."""
    requests: str = field(default="", metadata={"complete": complete.requests})
    """gang: made-up requested times where the trace has none, e.g. menu-1h."""

    def scenario(self) -> GangScenario:
        if not self.trace:
            raise InputError("--trace: the whole-GPU world needs a file of jobs")
        if self.nodes_per_switch < 0 or self.procs_per_gpu < 0:
            raise InputError("--nodes-per-switch and --procs-per-gpu are whole numbers from 0 up")
        return GangScenario(
            trace=Path(self.trace),
            format=self.format or None,
            knobs=(("procs_per_gpu", self.procs_per_gpu),) if self.procs_per_gpu else (),
            chosen=GangFilter(self.max_gpus, self.since, self.before, self.group, self.without_group),
            requests=self.requests or None,
            nodes=self.nodes,
            nodes_per_switch=self.nodes_per_switch or None,
            outages=Path(self.outages) if self.outages else None,
        )


RULES = ("selection", "allocation", "backfill", "utilisation")


def refuse_other_world(ctx: typer.Context, world: WorldChoice, shared: Collection[str]) -> None:
    """A flag of the other world would be without effect: say so."""
    gang = {*RULES, *(field.name for field in fields(GangFlags))}
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in shared and (name in gang) != (world is WorldChoice.gang):
            other = WorldChoice.mig if world is WorldChoice.gang else WorldChoice.gang
            raise InputError(f"{parameter.opts[0]} belongs to --world {other.value}, and this is --world {world.value}")


def refuse_unread(policy_file: Path | None, rules: Sequence[str]) -> None:
    """A policy file that no rule reads would be without effect: say so."""
    if policy_file is not None and not any(rule.split(":")[0] == "learned" for rule in rules):
        raise InputError("--policy-file: no rule given is `learned`, so nothing would read it")


def policy_spec(selection: str, allocation: str, backfill: Backfill, policy_file: Path | None) -> GangPolicySpec:
    """From the flags; `learned` rules take the policy file."""
    return GangPolicySpec(
        with_policy_file(rule_spec(selection, "--selection"), policy_file),
        with_policy_file(rule_spec(allocation, "--allocation"), policy_file),
        backfill,
    )


def simulate(
    flags: GangFlags,
    selection: str,
    allocation: str,
    backfill: Backfill,
    utilisation: Utilisations,
    seed: int,
    policy_file: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """One trace, one cluster, one policy."""
    scenario = flags.scenario()
    refuse_unread(policy_file, (selection, allocation))
    spec = policy_spec(selection, allocation, backfill, policy_file)
    policy, cluster = spec.policy(), scenario.cluster()
    if report is not None:
        prepare_place(report)
    jobs = scenario.jobs(seed)
    log("\n".join(scenario.rows()))
    if not is_compiled(policy):
        log("compiling this policy for its first use (some 20 seconds, then cached) ...")
    try:
        with progress_bar() as tell:
            run = run_simulation(jobs, cluster, policy, on_progress=lambda done: tell("jobs", done, len(jobs)))
    except NoNodesFit as error:
        raise InputError(f"{scenario.trace}: {error}") from None
    costs = costs_of(jobs, cluster, policy, run, utilisation is Utilisations.all)
    notes = scenario.notes(jobs)
    if report is not None:
        runs, series = ((spec.title, (costs,)),), (series_of(jobs, run, cluster),)
        gang_page(report, GangComparison(scenario.title, (seed,), runs, notes, series))
        log(f"wrote {report}")
    if as_json:
        about: dict[str, Any] = {"policy": spec.title, "nodes": scenario.nodes, "trace": scenario.trace.name}
        about |= {"requests": scenario.requests, "seed": seed, "notes": list(notes)}
        print_json({**asdict(costs), **about})
        return
    output().print(gang_table(f"{spec.title}: {scenario.title}", costs))
    for note in notes:
        log(f"note: {note}, seed {seed}" if scenario.requests else f"note: {note}")


def compare(
    flags: GangFlags,
    selections: Sequence[str],
    allocations: Sequence[str],
    backfills: Sequence[Backfill],
    utilisation: Utilisations,
    seeds: int | None,
    first_seed: int | None,
    processes: int | None,
    policy_file: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """All combinations of rules on the same seeds of made-up requests."""
    scenario = flags.scenario()
    if report is not None:
        prepare_place(report)
    refuse_unread(policy_file, (*selections, *allocations))
    policies = tuple(
        policy_spec(selection, allocation, backfill, policy_file)
        for backfill in backfills or (Backfill.none, Backfill.easy)
        for selection in selections or ("fcfs", "lcfs", "sjf")
        for allocation in allocations or ("best-fit",)
    )
    if scenario.requests is None and seeds is not None and seeds > 1:
        raise InputError("--seeds: without made-up requests (--requests) every seed gives the same run")
    n_seeds = seeds or (SEEDS if scenario.requests is not None else 1)
    first = first_seed or 0
    scenario.cluster()
    for policy in policies:
        policy.policy()
    scenario.jobs(first)
    log("\n".join(scenario.rows()))
    try:
        with progress_bar() as tell:
            result = compare_gangs(
                scenario,
                policies,
                tuple(range(first, first + n_seeds)),
                tell,
                processes,
                utilisation is Utilisations.all,
                drawn=report is not None,
            )
    except NoNodesFit as error:
        raise InputError(f"{scenario.trace}: {error}") from None
    if report is not None:
        gang_page(report, result)
        log(f"wrote {report}")
    if as_json:
        about = {"nodes": scenario.nodes, "requests": scenario.requests, "fairness": fairness_json(result)}
        print_json({**gang_comparison_json(result), **about})
        return
    output().print(gang_comparison_table(result))
    output().print(fairness_table(result))
    for note in result.notes:
        log(f"note: {note}")
