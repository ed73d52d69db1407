"""The arithmetic behind the pictures of one day: stretches, power, queue, cuts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smartmig.report.comparison import SampleDay
from smartmig.types import Floats, Segments

MERGE_GAP_S = 1.0
"""A job that leaves its slice for less than this is drawn as if it had stayed."""

MAX_POINTS = 288
"""Of a line over time: a day at one point in five minutes. Finer steps only show noise between neighbours."""


def segments_of(sample: SampleDay) -> Segments:
    if sample.run.segments is None:
        raise ValueError(f"{sample.policy}: no segments recorded")
    return sample.run.segments


def merge_segments(segments: Segments, gap_s: float = MERGE_GAP_S) -> Segments:
    """Join neighbours of one job on one instance that are less than `gap_s` apart; sorted by GPU, start and time."""
    order = np.lexsort((segments.from_s, segments.start, segments.gpu))
    if order.size == 0:
        return segments
    job, gpu, start, size, span = (
        column[order] for column in (segments.job, segments.gpu, segments.start, segments.size, segments.span)
    )
    from_s, to_s = segments.from_s[order], segments.to_s[order]
    joined = np.zeros(order.size, dtype=bool)
    joined[1:] = from_s[1:] - to_s[:-1] < gap_s
    for column in (job, gpu, start, size, span):
        joined[1:] &= column[1:] == column[:-1]
    first = np.flatnonzero(~joined)
    return Segments(
        job=job[first],
        gpu=gpu[first],
        start=start[first],
        size=size[first],
        span=span[first],
        from_s=from_s[first],
        to_s=np.maximum.reduceat(to_s, first),
    )


def time_grid(end_s: float, max_points: int = MAX_POINTS) -> Floats:
    """Edges of at most `max_points` equal bins from 0 to `end_s`, none shorter than a second."""
    n_bins = max(1, min(max_points, int(np.ceil(end_s))))
    return np.linspace(0.0, max(end_s, 1e-9), n_bins + 1)


def mean_power_w(sample: SampleDay, edges_s: Floats) -> Floats:
    """(n_bins,) mean power of all GPUs in each bin: its sum over bins times their length is the energy."""
    segments = segments_of(sample)
    total = np.zeros(edges_s.size - 1)
    order = np.argsort(segments.gpu, kind="stable")
    first = np.searchsorted(segments.gpu[order], np.arange(len(sample.watts) + 1))
    for gpu, curve in enumerate(sample.watts):
        here = order[first[gpu] : first[gpu + 1]]
        size = segments.size[here]
        at_s, busy = _steps(segments.from_s[here], size, segments.to_s[here], size, edges_s[0])
        # Between two changes at the same instant the count may leave the curve; that stretch has no length.
        total += _bin_means(at_s, np.asarray(curve)[np.clip(busy, 0, len(curve) - 1)], edges_s)
    return total


def mean_waiting(sample: SampleDay, edges_s: Floats) -> Floats:
    """(n_bins,) mean number of jobs that have arrived, are not done and hold no slice."""
    segments = segments_of(sample)
    one = np.ones(segments.job.size, dtype=np.int64)
    each = np.ones(len(sample.jobs), dtype=np.int64)
    present = _bin_means(*_steps(sample.jobs.arrive_s, each, sample.run.finish_s, each, edges_s[0]), edges_s)
    running = _bin_means(*_steps(segments.from_s, one, segments.to_s, one, edges_s[0]), edges_s)
    return np.maximum(present - running, 0.0)


def hour_grid(end_s: float) -> Floats:
    """Edges of the hours from 0 to the end."""
    return 3600.0 * np.arange(max(1, int(np.ceil(end_s / 3600 - 1e-9))) + 1, dtype=np.float64)


def time_in_cuts(sample: SampleDay, edges_s: Floats) -> tuple[tuple[str, ...], Floats]:
    """Names of the configurations, and (n_configs, n_bins) how many GPUs were in each, on average."""
    cuts = sample.run.cuts
    if cuts is None:
        raise ValueError(f"{sample.policy}: no cuts recorded")
    n_gpus = np.zeros((len(cuts.names), edges_s.size - 1))
    for config in np.unique(cuts.config).tolist():
        here = cuts.config == config
        one = np.ones(int(here.sum()), dtype=np.int64)
        n_gpus[config] = _bin_means(*_steps(cuts.from_s[here], one, cuts.to_s[here], one, edges_s[0]), edges_s)
    return cuts.names, n_gpus


def _steps(
    up_s: Floats, up: NDArray[np.int64], down_s: Floats, down: NDArray[np.int64], begin_s: float
) -> tuple[Floats, NDArray[np.int64]]:
    """When a count changes, and to what."""
    at_s = np.concatenate([[begin_s], up_s, down_s])
    change = np.concatenate([[0], up, -down])
    order = np.argsort(at_s, kind="stable")
    return at_s[order], np.cumsum(change[order])


def _bin_means(at_s: Floats, value: NDArray[np.int64] | Floats, edges_s: Floats) -> Floats:
    """Means of a step function that takes `value[i]` from `at_s[i]` on, exact over each bin."""
    until_s = np.append(at_s[1:], max(at_s[-1], edges_s[-1]))
    area = np.concatenate([[0.0], np.cumsum(value * (until_s - at_s))])
    means: Floats = np.diff(np.interp(edges_s, np.append(at_s, until_s[-1]), area)) / np.diff(edges_s)
    return means
