"""Run times to expect of a request: one small table, by request class and size class, learned from a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.policy.gang_encoding import N_CELLS, N_SIZES, REQUEST_EDGES_S, cells
from smartmig.types import Floats, Ints

SHORTEST_S = 10.0
PRIOR_JOBS = 20.0
"""a cell with so many jobs is trusted half; the rest is its request class's"""
N_TABLES = 2


@dataclass(frozen=True, eq=False)
class RunTimes:
    """What jobs of a cell took, where the table was fitted."""

    mean_s: Floats
    """(N_CELLS,) mean run time"""
    urgency: Floats
    """(N_CELLS,) mean of 1 / max(run, 10 s): what a second of waiting costs in bounded slowdown"""

    def predict(self, limit_s: Floats, n_gpus: Ints) -> Floats:
        """(n,) expected run times; never above the request."""
        return np.minimum(self.mean_s[cells(limit_s, n_gpus)], limit_s)

    def vector(self) -> Floats:
        return np.concatenate([self.mean_s, self.urgency])


def run_times_of(vector: Floats) -> RunTimes:
    return RunTimes(vector[:N_CELLS].copy(), vector[N_CELLS:].copy())


def fit_run_times(limit_s: Floats, n_gpus: Ints, run_s: Floats) -> RunTimes:
    """From jobs that are over; cells with few jobs lean on their request class, empty classes on their edge."""
    cell = cells(limit_s, n_gpus)
    request = cell // N_SIZES
    tables = []
    edges = np.array([*REQUEST_EDGES_S, 2 * REQUEST_EDGES_S[-1]])
    for values, fallback in ((run_s, edges / 4), (1 / np.maximum(run_s, SHORTEST_S), 4 / edges)):
        n_request = np.bincount(request, minlength=edges.size)
        total = np.bincount(request, values, minlength=edges.size)
        by_request = (total + PRIOR_JOBS * fallback) / (n_request + PRIOR_JOBS)
        n_cell = np.bincount(cell, minlength=N_CELLS)
        total = np.bincount(cell, values, minlength=N_CELLS)
        tables.append((total + PRIOR_JOBS * np.repeat(by_request, N_SIZES)) / (n_cell + PRIOR_JOBS))
    return RunTimes(*tables)
