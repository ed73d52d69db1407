"""F1: a score found by fitting many simulated schedules.

Carastan-Santos and de Camargo, SC'17, Table 3: least log10(requested time) x size + 870 log10(submission) first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.types import Floats


@dataclass(frozen=True)
class F1(Ordered):
    """Short, small and early jobs first: least log10(requested) x GPUs + weight x log10(submission)."""

    submit_weight: float = 870.0
    """what a factor of ten in the time of submission is worth"""

    def keys(self, jobs: KnownJobs) -> Floats:
        asked = np.log10(np.maximum(jobs.limit_s, 1.0)) * jobs.n_gpus
        return asked + self.submit_weight * np.log10(np.maximum(jobs.submit_s, 1.0))
