"""A run of whole-GPU jobs over time: who waits, and how busy every part of the cluster is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.hardware.nodes import NodeCluster
from smartmig.metrics.gang import queue_changes, steps
from smartmig.types import Floats, GangJobs, GangRun

N_BINS = 240


@dataclass(frozen=True, eq=False)
class GangSeries:
    """One run in equal steps from the first to the last submission."""

    time_s: Floats
    """(n,) middle of each step, since 1970"""
    waiting_jobs: Floats
    """(n,) mean length of the queue"""
    waiting_gpus: Floats
    """(n,) GPUs that queued jobs ask for"""
    busy_by_part: dict[str, Floats]
    """GPU model -> (n,) share of its GPUs held"""


def series_of(jobs: GangJobs, run: GangRun, cluster: NodeCluster, n_bins: int = N_BINS) -> GangSeries:
    first_s, last_s = float(jobs.submit_s.min()), float(max(jobs.submit_s.max(), jobs.submit_s.min() + 1.0))
    edges = np.linspace(first_s, last_s, n_bins + 1)
    s = run.stretches
    models = np.array([node.model for node in cluster.nodes])
    busy: dict[str, Floats] = {}
    for model in dict.fromkeys(models.tolist()):
        mine = (models == model)[s.node]
        at_s, change = np.concatenate([s.from_s[mine], s.to_s[mine]]), np.concatenate([s.n_gpus[mine], -s.n_gpus[mine]])
        n_gpus = sum(node.n_gpus for node in cluster.nodes if node.model == model)
        busy[str(model) or "all nodes"] = _means(at_s, change, edges) / n_gpus
    at_s = np.concatenate([jobs.submit_s, run.start_s])
    gpus = np.concatenate([jobs.n_gpus, -jobs.n_gpus])
    return GangSeries(
        time_s=jobs.origin_s + (edges[:-1] + edges[1:]) / 2,
        waiting_jobs=_means(*queue_changes(jobs, s), edges),
        waiting_gpus=_means(at_s, gpus, edges),
        busy_by_part=busy,
    )


def _means(at_s: Floats, change: Floats, edges: Floats) -> Floats:
    """Mean of a step function between every two edges."""
    if at_s.size == 0:
        return np.zeros(edges.size - 1)
    times_s, values = steps(at_s, change)
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times_s))])
    at_edges = np.interp(edges, times_s, area) + np.maximum(0.0, edges - times_s[-1]) * values[-1]
    means: Floats = np.diff(at_edges) / np.diff(edges)
    return means
