"""Last come, first served."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.types import Floats


@dataclass(frozen=True)
class Lcfs(Ordered):
    """The youngest job first; of those submitted together, the last."""

    def keys(self, jobs: KnownJobs) -> Floats:
        return -np.arange(jobs.submit_s.size, dtype=float)
