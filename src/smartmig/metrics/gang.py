"""A run of whole-GPU jobs in numbers: waiting, slowdown, utilisation, fairness.

Utilisation has three readings: over the time in which jobs are submitted (`summarise`), over given windows, such as
those in which jobs wait under some policy (`busy_windows`), and with everything submitted at once (`saturated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smartmig.hardware.nodes import NodeCluster
from smartmig.types import Floats, GangJobs, GangRun, GangStretches

SHORTEST_S = 10.0
"""runs shorter than this count as this long in the bounded slowdown (Feitelson et al., JSSPP 1997)"""

STARVED_S = 7 * 86_400.0

Window = tuple[float, float]


@dataclass(frozen=True)
class GangCosts:
    """What a run cost its users and its operator."""

    n_jobs: int
    mean_wait_s: float
    """from submission to the start of the run that ended the job"""
    median_wait_s: float
    p95_wait_s: float
    p99_wait_s: float
    worst_wait_s: float
    """mean of the 1 % that waited longest"""
    longest_wait_s: float
    mean_turnaround_s: float
    """from submission to the end"""
    mean_bounded_slowdown: float
    """max(1, (wait + run) / max(run, 10 s))"""
    p95_bounded_slowdown: float
    gpu_utilisation: float
    """share of GPU time held by jobs, from the first to the last submission"""
    busy_gpu_utilisation: float | None
    """the same while jobs wait under strict FCFS, one window for all policies; None = not measured"""
    saturated_gpu_utilisation: float | None
    """the same with all jobs submitted at once, until 99.9 % have started; None = not measured"""
    stranded_frac: float
    """share of GPU time free while jobs waited, in the same period: fragmentation, or a policy that holds back"""
    user_fairness: float | None
    """Jain's index of the users' mean bounded slowdowns, 1 = all alike; None where jobs have no users"""
    size_fairness: float
    """the same over job sizes"""
    n_starved: int
    """jobs that waited more than 7 days"""
    n_killed: int
    """jobs ended by their limit"""
    n_restarts: int
    """runs lost to a node's failure"""
    makespan_s: float
    """from the first submission to the last completion"""
    n_events: int
    wait_by_size_s: dict[str, float]
    """mean wait by number of GPUs"""
    wait_by_user_s: dict[str, float]
    """mean wait by user; empty where jobs have no users"""
    slowdown_by_size: dict[str, float]
    """mean bounded slowdown by number of GPUs"""


def waits_s(jobs: GangJobs, run: GangRun) -> Floats:
    """(n,) from submission to the start of the run that ended the job."""
    return run.start_s - jobs.submit_s


def bounded_slowdowns(jobs: GangJobs, run: GangRun) -> Floats:
    """(n,) how much longer a job took than if it had run at once."""
    run_s = run.finish_s - run.start_s
    return np.maximum(1.0, (waits_s(jobs, run) + run_s) / np.maximum(run_s, SHORTEST_S))


def summarise(jobs: GangJobs, run: GangRun, cluster: NodeCluster) -> GangCosts:
    wait_s = waits_s(jobs, run)
    slowdown = bounded_slowdowns(jobs, run)
    period = submit_period(jobs, run)
    users = jobs.user if (jobs.user != "").any() else None
    sizes = size_classes(jobs.n_gpus)
    n_worst = max(1, round(len(jobs) / 100))
    return GangCosts(
        n_jobs=len(jobs),
        mean_wait_s=float(wait_s.mean()),
        median_wait_s=float(np.median(wait_s)),
        p95_wait_s=float(np.percentile(wait_s, 95)),
        p99_wait_s=float(np.percentile(wait_s, 99)),
        worst_wait_s=float(np.sort(wait_s)[-n_worst:].mean()),
        longest_wait_s=float(wait_s.max()),
        mean_turnaround_s=float((run.finish_s - jobs.submit_s).mean()),
        mean_bounded_slowdown=float(slowdown.mean()),
        p95_bounded_slowdown=float(np.percentile(slowdown, 95)),
        gpu_utilisation=utilisation(run, cluster, [period]),
        busy_gpu_utilisation=None,
        saturated_gpu_utilisation=None,
        stranded_frac=stranded(jobs, run, cluster, period),
        user_fairness=None if users is None else jain(list(means_by(users, slowdown).values())),
        size_fairness=jain(list(means_by(sizes, slowdown).values())),
        n_starved=int((wait_s > STARVED_S).sum()),
        n_killed=int(run.killed.sum()),
        n_restarts=int((run.n_starts - 1).sum()),
        makespan_s=float(run.finish_s.max() - jobs.submit_s.min()),
        n_events=run.n_events,
        wait_by_size_s=means_by(sizes, wait_s),
        wait_by_user_s={} if users is None else means_by(users, wait_s),
        slowdown_by_size=means_by(sizes, slowdown),
    )


def submit_period(jobs: GangJobs, run: GangRun) -> Window:
    """From the first to the last submission; to the last completion where all come at once."""
    first_s, last_s = float(jobs.submit_s.min()), float(jobs.submit_s.max())
    return (first_s, last_s) if last_s > first_s else (first_s, float(run.finish_s.max()))


def utilisation(run: GangRun, cluster: NodeCluster, windows: Sequence[Window]) -> float:
    """Share of all GPU time within the windows that jobs held."""
    s = run.stretches
    times_s, busy = steps(np.concatenate([s.from_s, s.to_s]), np.concatenate([s.n_gpus, -s.n_gpus]))
    held = sum(integral(times_s, busy, window) for window in windows)
    whole = cluster.n_gpus * sum(to_s - from_s for from_s, to_s in windows)
    return float(held / whole) if whole > 0 else 0.0


def busy_windows(jobs: GangJobs, run: GangRun) -> list[Window]:
    """When at least one job waited, up to the last submission: afterwards, work done early would count against one."""
    times_s, waiting = steps(*queue_changes(jobs, run.stretches))
    busy = np.concatenate([[False], waiting > 0])
    last_s = float(jobs.submit_s.max())
    begins = np.minimum(times_s[~busy[:-1] & busy[1:]], last_s)
    ends = np.minimum(times_s[busy[:-1] & ~busy[1:]], last_s)
    return [(float(from_s), float(to_s)) for from_s, to_s in zip(begins, ends, strict=True) if from_s < to_s]


def saturated(jobs: GangJobs) -> GangJobs:
    """The same jobs in the same order, all submitted at once."""
    return replace(jobs, submit_s=np.zeros(len(jobs)))


def saturated_utilisation(run: GangRun, cluster: NodeCluster, started_frac: float = 0.999) -> float:
    """Utilisation of a saturated run until so many jobs have started: later the queue runs dry."""
    nth = max(0, int(np.ceil(started_frac * run.start_s.size)) - 1)
    return utilisation(run, cluster, [(0.0, float(np.sort(run.start_s)[nth]))])


def stranded(jobs: GangJobs, run: GangRun, cluster: NodeCluster, window: Window) -> float:
    """Share of all GPU time within the window that was free, on nodes that were there, while jobs waited."""
    s = run.stretches
    at_s, change = [s.from_s, s.to_s], [-s.n_gpus, s.n_gpus]
    for node, from_s, to_s in outage_windows(cluster):
        size = cluster.nodes[node].n_gpus
        mine = (s.node == node) & (s.to_s > from_s) & (s.from_s < to_s)
        # Away, all its GPUs are gone but those that jobs still hold, which count as held already.
        at_s += [np.array([from_s, to_s]), np.maximum(s.from_s[mine], from_s), np.minimum(s.to_s[mine], to_s)]
        change += [np.array([-size, size]), s.n_gpus[mine], -s.n_gpus[mine]]
    queue_s, queue_change = queue_changes(jobs, s)
    times_s = np.unique(np.concatenate([*at_s, queue_s]))
    free = cluster.n_gpus + levels(times_s, np.concatenate(at_s), np.concatenate(change))
    waiting = levels(times_s, queue_s, queue_change)
    lost = integral(times_s, np.where(waiting > 0, free, 0), window)
    return float(lost / (cluster.n_gpus * (window[1] - window[0]))) if window[1] > window[0] else 0.0


def outage_windows(cluster: NodeCluster) -> list[tuple[int, float, float]]:
    """(node, from, to) of every time a node is away, overlaps joined."""
    joined: list[tuple[int, float, float]] = []
    for outage in sorted(cluster.outages, key=lambda outage: (outage.node, outage.from_s)):
        if joined and joined[-1][0] == outage.node and outage.from_s <= joined[-1][2]:
            joined[-1] = (outage.node, joined[-1][1], max(joined[-1][2], outage.to_s))
        else:
            joined.append((outage.node, outage.from_s, outage.to_s))
    return joined


def queue_changes(jobs: GangJobs, s: GangStretches) -> tuple[Floats, Floats]:
    """When jobs join the queue (+1) and leave it (-1); a job killed by a failure joins again."""
    runs = np.unique(np.stack([s.job.astype(float), s.from_s, s.to_s], axis=1), axis=0)
    lost = np.concatenate([runs[1:, 0] == runs[:-1, 0], [False]])
    at_s = np.concatenate([jobs.submit_s, runs[lost, 2], runs[:, 1]])
    return at_s, np.concatenate([np.ones(len(jobs) + int(lost.sum())), -np.ones(len(runs))])


def steps(at_s: Floats, change: Floats) -> tuple[Floats, Floats]:
    """A step function: sorted times and the value from each on."""
    times_s = np.unique(at_s)
    return times_s, levels(times_s, at_s, change)


def levels(times_s: Floats, at_s: Floats, change: Floats) -> Floats:
    """Sum of all changes up to and including each time."""
    total = np.zeros(times_s.size + 1)
    np.add.at(total, np.searchsorted(times_s, at_s), change)
    return np.cumsum(total[:-1])


def integral(times_s: Floats, values: Floats, window: Window) -> float:
    """Of a step function, within the window."""
    edges = np.clip(times_s, *window)
    return float(values[:-1] @ np.diff(edges) + values[-1] * (window[1] - edges[-1]))


def size_classes(n_gpus: NDArray[np.int64]) -> NDArray[np.str_]:
    """`1`, `2`, `3-4`, `5-8`, `9-16` ..."""
    top = 2 ** np.ceil(np.log2(n_gpus)).astype(np.int64)
    return np.array([str(t) if t <= 2 else f"{t // 2 + 1}-{t}" for t in top])


def means_by(labels: NDArray[np.str_], values: Floats) -> dict[str, float]:
    names, which = np.unique(labels, return_inverse=True)
    means = np.bincount(which, weights=values) / np.bincount(which)
    by_number = sorted(zip(names, means, strict=True), key=lambda pair: _leading_number(str(pair[0])))
    return {str(name): float(mean) for name, mean in by_number}


def _leading_number(label: str) -> tuple[int, str]:
    head = label.split("-")[0]
    return (int(head), label) if head.isdigit() and len(head) < 10 else (0, label)


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index (Jain, Chiu and Hawe 1984): 1 when all are equal, 1/n when one has everything."""
    x = np.asarray(values, dtype=float)
    return float(x.sum() ** 2 / (x.size * (x**2).sum()))
