"""Shortest job first, by a prediction."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.types import Floats


@dataclass(frozen=True)
class SjfPredicted(Ordered):
    """The least predicted run time first; without a prediction, the requested one counts."""

    def keys(self, jobs: KnownJobs) -> Floats:
        return jobs.predicted_s
