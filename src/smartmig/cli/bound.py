"""`smartmig bound`: what no schedule can go below, with the proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from smartmig.bounds import (
    Bound,
    ParetoBound,
    Search,
    check_certificate,
    energy_bound,
    et_bound,
    load_certificates,
    mip_tardiness_bound,
    paper_energy_bound,
    pareto_bound,
    save_certificates,
    tardiness_bound,
)
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import Gpus, Speed, SpeedMode, rule_spec
from smartmig.compare import n_compute_slices
from smartmig.errors import InputError, NoSliceFits, SmartmigError
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.model import GpuModel
from smartmig.metrics.objective import ENERGY_WEIGHT, energy_tardiness, minutes, watt_minutes
from smartmig.metrics.summary import JOULES_PER_KWH, summarise
from smartmig.report.pareto import Reached, write_pareto_page
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario
from smartmig.sim.mig.run import is_compiled, simulate
from smartmig.types import Jobs
from smartmig.workload.jobs_csv import place_of_job, read_jobs

BEST_KNOWN = "shortest-work/slice-count"
"""The rule with the least ET on the days of docs/results.md; its gap to a bound is what is left to gain at most."""

MIP_LIMIT_S = 60.0
"""Default of S3's MIP, which may never end otherwise."""


class Method(StrEnum):
    priced = "priced"
    paper = "paper"


def bound(
    jobs: Annotated[Path, typer.Option(help="Job file; - is standard input.")],
    gpus: Gpus = "8xa100-40gb",
    max_tardiness: Annotated[
        float | None, typer.Option(min=0, help="Also bound energy given a mean tardiness of at most this, in seconds.")
    ] = None,
    method: Annotated[
        Method,
        typer.Option(help="priced: prices on slice-time, any size; paper: S3's formula and its MIP, small sets."),
    ] = Method.priced,
    a: Annotated[float, typer.Option(min=0, help="Weight of a watt-minute against a minute in ET.")] = ENERGY_WEIGHT,
    speed: SpeedMode = Speed.as_given,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds for each bound; then the best so far.")
    ] = None,
    slot: Annotated[float | None, typer.Option(min=0, help="Slot length of S3's MIP, in seconds.")] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this PLACEMENT or PLACEMENT/REPARTITION and tell how far above the bounds it ends; repeat, or "
            f"`none`. Default: {BEST_KNOWN}, the best rule known here."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write the prices that prove the bounds here (.npz).")
    ] = None,
    check: Annotated[Path | None, typer.Option(help="Check the certificates of this file instead; no search.")] = None,
    pareto: Annotated[Path | None, typer.Option(help="Also write the energy-tardiness curve as a page here.")] = None,
    json_output: Json = False,
) -> None:
    """Lower bounds on the energy, mean tardiness and ET of every schedule of a job file on a cluster."""
    cards = parse_gpus(gpus)
    for path in (certificate, pareto):
        if path is not None:
            prepare_place(path)
    policies = [_policy(text, speed) for text in against or (BEST_KNOWN,) if text != "none"]
    for spec in policies:
        spec.policy()  # a wrong id is refused now, not after the search
    job_set = read_jobs(jobs)
    if check is not None:
        _check(check, job_set, cards, json_output)
        return
    estimated = speed is Speed.estimated
    search = Search(time_limit_s=math.inf if time_limit is None else time_limit)
    wanted: dict[str, Callable[[Search], Bound]] = {}
    if len(set(cards)) == 1 and not estimated:
        wanted["energy_paper_j"] = lambda _: paper_energy_bound(job_set, cards)
    else:
        log("note: S3's energy bound is for one GPU model with run times as given: left out")
    if method is Method.paper:
        mip_s = MIP_LIMIT_S if time_limit is None else time_limit
        wanted["mean_tardiness_s"] = lambda _: mip_tardiness_bound(job_set, cards, slot, mip_s)
    else:
        wanted["energy_j"] = lambda with_: energy_bound(job_set, cards, None, estimated, with_)
        wanted["et"] = lambda with_: et_bound(job_set, cards, a, estimated, with_)
        wanted["mean_tardiness_s"] = lambda with_: tardiness_bound(job_set, cards, estimated, with_)
        if max_tardiness is not None:
            wanted["energy_given_j"] = lambda with_: energy_bound(job_set, cards, max_tardiness, estimated, with_)
    try:
        found, curve, interrupted = _solve(wanted, search, pareto, job_set, cards, estimated)
    except NoSliceFits as error:
        raise InputError(f"{place_of_job(jobs, error.job_id)}: {error}") from None
    runs = [] if interrupted else [_run(spec, job_set, gpus, a) for spec in policies]
    reached = [run for run in runs if run is not None]
    if certificate is not None:
        proofs = {name: answer.certificate for name, answer in found.items() if answer.certificate is not None}
        if curve is not None:
            proofs |= {f"pareto_{number}": line for number, line in enumerate(curve.lines, start=1)}
        save_certificates(certificate, proofs)
        log(f"wrote {certificate}")
    if pareto is not None and curve is not None:
        write_pareto_page(pareto, f"{jobs.name} on {gpus}", curve, reached)
        log(f"wrote {pareto}")
    if json_output:
        print_json(_json(found, curve, reached, job_set, gpus, a, max_tardiness))
    else:
        _print(found, reached)


def _solve(
    wanted: Mapping[str, Callable[[Search], Bound]],
    search: Search,
    pareto: Path | None,
    jobs: Jobs,
    gpus: Sequence[GpuModel],
    estimated_speed: bool,
) -> tuple[dict[str, Bound], ParetoBound | None, bool]:
    """The bounds one after the other; Ctrl-C ends the list with the best so far."""
    found: dict[str, Bound] = {}
    curve: ParetoBound | None = None
    interrupted = False
    with progress_bar() as tell:
        telling = replace(search, progress=tell)
        try:
            for name, solve in wanted.items():
                found[name] = solve(telling)
                if found[name].interrupted:
                    interrupted = True
                    break
            if pareto is not None and not interrupted:
                curve = pareto_bound(jobs, gpus, estimated_speed, telling)
                interrupted = curve.interrupted
        except KeyboardInterrupt:
            if not found:
                raise
            interrupted = True
    # What bounds all schedules bounds the frugal and the punctual ones too.
    for name, weaker in (("energy_j", "energy_paper_j"), ("energy_given_j", "energy_j")):
        if name in found and weaker in found and found[weaker].value > found[name].value:
            found[name] = replace(found[weaker], solve_s=found[name].solve_s)
    if interrupted:
        log("stopped: these are the best valid bounds so far")
    return found, curve, interrupted


def _policy(text: str, speed: Speed) -> PolicySpec:
    placement, _, repartition = text.partition("/")
    return PolicySpec(
        placement=rule_spec(placement, "--against"),
        repartition=rule_spec(repartition or "static", "--against"),
        speed=speed.value,
    )


def _run(spec: PolicySpec, jobs: Jobs, gpus: str, a: float) -> Reached | None:
    """What the policy makes of the jobs; a policy that cannot run them must not cost the bounds already found."""
    cluster = Scenario(version=1, cluster=ClusterSpec(gpus), policies=(spec,)).cluster_for(spec)
    rules = spec.policy()
    if not is_compiled(rules):
        log(f"compiling {spec.title} for its first use (about half a minute, then cached) ...")
    try:
        run = simulate(jobs, cluster, rules, spec.settings())
    except SmartmigError as error:
        log(f"note: {spec.title} cannot run these jobs: {error}")
        return None
    summary = summarise(jobs, run, n_compute_slices(cluster))
    et = energy_tardiness(summary.energy_j, summary.mean_tardiness_s, a)
    return Reached(spec.title, summary.energy_j, summary.mean_tardiness_s, et)


def _check(path: Path, jobs: Jobs, gpus: Sequence[GpuModel], json_output: bool) -> None:
    certificates = load_certificates(path)
    verdicts = {name: check_certificate(proof, jobs, gpus) for name, proof in certificates.items()}
    if json_output:
        print_json({name: asdict(verdict) for name, verdict in verdicts.items()})
    else:
        table = Table(box=None, pad_edge=False)
        for column in ("certificate", "claimed", "proved by its prices", "verdict"):
            table.add_column(column)
        for name, verdict in verdicts.items():
            said = "valid" if verdict.valid else verdict.reason
            table.add_row(name, f"{verdict.claimed:.9g}", f"{verdict.checked:.9g}", said)
        output().print(table)
    wrong = [name for name, verdict in verdicts.items() if not verdict.valid]
    if wrong or not verdicts:
        reason = verdicts[wrong[0]].reason if wrong else "it holds no certificate"
        raise SmartmigError(f"{path}: {', '.join(wrong) or 'nothing'} not proved: {reason}")


def _json(
    found: Mapping[str, Bound],
    curve: ParetoBound | None,
    reached: Sequence[Reached],
    jobs: Jobs,
    gpus: str,
    a: float,
    max_tardiness_s: float | None,
) -> dict[str, Any]:
    answer: dict[str, Any] = {"n_jobs": len(jobs), "gpus": gpus, "a": a}
    for name in ("energy_j", "energy_paper_j", "mean_tardiness_s", "et"):
        answer[name] = None
    for name, value in found.items():
        stem = name.removesuffix("_j").removesuffix("_s")
        answer |= {
            name: value.value,
            f"{stem}_method": value.method,
            f"{stem}_solve_s": value.solve_s,
            f"{stem}_stopped": value.stopped,
        }
    if max_tardiness_s is not None:
        answer["max_tardiness_s"] = max_tardiness_s
    if curve is not None:
        tardiness_s, energy_j = curve.corners()
        answer["pareto"] = [{"mean_tardiness_s": t, "energy_j": e} for t, e in zip(tardiness_s, energy_j, strict=True)]
        answer["pareto_solve_s"] = curve.solve_s
        answer["pareto_stopped"] = curve.stopped
    answer["reached"] = [asdict(run) | {"above_bound": _above(run, found)} for run in reached]
    answer["assumptions"] = list(dict.fromkeys(said for value in found.values() for said in value.assumptions))
    answer["stopped"] = any(value.stopped for value in found.values()) or (curve is not None and curve.stopped)
    return answer


def _above(run: Reached, found: Mapping[str, Bound]) -> dict[str, float]:
    """How far above each bound a run ended, as a share."""
    quantities = {"energy_j": run.energy_j, "mean_tardiness_s": run.mean_tardiness_s, "et": run.et}
    return {name: found[name].above_frac(value) for name, value in quantities.items() if name in found}


def _print(found: Mapping[str, Bound], reached: Sequence[Reached]) -> None:
    titles = {
        "energy_paper_j": "energy, S3's bound",
        "energy_j": "energy",
        "energy_given_j": "energy, given the tardiness",
        "mean_tardiness_s": "mean tardiness",
        "et": "ET",
    }
    table = Table(box=None, pad_edge=False)
    for column in ("", "at least", "method", "solved in"):
        table.add_column(column)
    for name in titles:
        if name in found:
            answer = found[name]
            ended = f"{answer.solve_s:.1f} s{' (stopped)' if answer.stopped else ''}"
            table.add_row(titles[name], _said(name, answer.value), answer.method, ended)
    output().print(table)
    for run in reached:
        parts = [
            f"{100 * share:.1f} % above the {name.split('_')[0]} bound" for name, share in _above(run, found).items()
        ]
        log(f"{run.policy}: ET {run.et:.3f}; {', '.join(parts)}")


def _said(name: str, value: float) -> str:
    if name.startswith("energy"):
        return f"{value / JOULES_PER_KWH:.2f} kWh ({watt_minutes(value):,.0f} W·min)"
    return f"{minutes(value):.4f} min" if name == "mean_tardiness_s" else f"{value:.4f}"
