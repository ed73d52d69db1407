"""What is in a trace, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from smartmig.workload.gang.summary import GangSummary
from smartmig.workload.summary import QUANTILES, Summary

_BAR_WIDTH = 40
_NAMES_SHOWN = 10
_SIZES_SHOWN = 16
_QUANTILE_NAMES = "".join(f"{'max' if q == 1 else f'p{round(100 * q):02d}':>10}" for q in QUANTILES)


def slice_lines(facts: Summary) -> Iterator[str]:
    """Jobs for slices."""
    yield f"jobs: {facts.n_jobs}"
    yield f"span: {(facts.last_s - facts.first_s) / 3600:.2f} h, first at {facts.first_s:.0f} s"
    yield f"sublinearity: {facts.sublinearity:.3f} (1 = linear)"
    yield from _hours(facts.arrivals_by_hour)
    yield "run time in seconds, by slice size:"
    yield f"  size    fits  slice-hours{_QUANTILE_NAMES}"
    for size in facts.sizes:
        yield f"  {size.size}g  {size.n_fit:8d}  {size.offered_h:11.1f}{_quantiles(size.run_s, 1)}"
    yield "deadline - arrival, over the run time on the fastest slice:"
    yield f"{'':25}{_QUANTILE_NAMES}"
    yield f"{'':25}{_quantiles(facts.slack, 2)}"
    yield "kinds:"
    for kind, count in facts.kinds.items():
        yield f"  {count:8d}  {kind or '(none)'}"


def gang_lines(facts: GangSummary, nodes: str | None) -> Iterator[str]:
    """Jobs of whole GPUs."""
    yield f"jobs: {facts.n_jobs}"
    yield f"submitted: {facts.first_submit} to {facts.last_submit} UTC, {facts.days:.2f} days"
    yield f"GPU time: {facts.gpu_hours:.1f} h"
    if nodes:
        yield f"load on {nodes}: {facts.load:.3f}"
    yield from _hours(facts.arrivals_by_hour)
    yield "GPUs a job:"
    yield f"  {'GPUs':>10}{'jobs':>10}{'share':>8}{'of GPU time':>13}"
    for sizes, count, hours in _by_size(facts):
        yield f"  {sizes:>10}{count:10d}{count / facts.n_jobs:8.1%}{hours / facts.gpu_hours:13.1%}"
    yield f"{'in seconds:':12}{'jobs':>10}{_QUANTILE_NAMES}"
    yield f"  {'run time':10}{facts.n_jobs:10d}{_quantiles(facts.run_s, 0)}"
    yield f"  {'waited':10}{facts.n_waits:10d}{_quantiles(facts.waited_s, 0)}"
    yield f"  {'requested':10}{facts.n_limits:10d}{_quantiles(facts.limit_s, 0)}"
    yield f"  {'used share':10}{facts.n_limits:10d}{_quantiles(facts.used_frac, 2)}"
    for what, counts in (("users", facts.users), ("groups", facts.groups), ("GPU models", facts.gpu_models)):
        yield f"{what}: {len(counts) or 'none in the trace'}"
        for name, count in list(counts.items())[:_NAMES_SHOWN]:
            yield f"  {count:8d}  {name or '(none)'}"
        if len(counts) > _NAMES_SHOWN:
            yield f"  {sum(list(counts.values())[_NAMES_SHOWN:]):8d}  of the other {len(counts) - _NAMES_SHOWN}"


def _by_size(facts: GangSummary) -> Iterator[tuple[str, int, float]]:
    """GPUs, jobs, GPU hours; many different sizes are put together between powers of two."""
    totals: dict[str, tuple[int, float]] = {}
    for size, count in facts.jobs_by_gpus.items():
        top = 1 << (size - 1).bit_length()
        wide = len(facts.jobs_by_gpus) > _SIZES_SHOWN and top > 2
        name = f"{top // 2 + 1}-{top}" if wide else str(size)
        n_jobs, hours = totals.get(name, (0, 0.0))
        totals[name] = n_jobs + count, hours + facts.gpu_hours_by_gpus[size]
    for name, (n_jobs, hours) in totals.items():
        yield name, n_jobs, hours


def _hours(counts: Sequence[int]) -> Iterator[str]:
    yield "arrivals by hour of the day:"
    most = max(counts)
    for hour, count in enumerate(counts):
        yield f"  {hour:02d} {count:7d} {'#' * round(_BAR_WIDTH * count / most)}".rstrip()


def _quantiles(values: Sequence[float], digits: int) -> str:
    return "".join(f"{'-':>10}" if math.isnan(value) else f"{value:10.{digits}f}" for value in values)
