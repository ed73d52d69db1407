"""Shortest job first, by a prediction."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.policy.gang_files import times_of
from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.types import Floats


@dataclass(frozen=True)
class SjfPredicted(Ordered):
    """The least predicted run time first; without a prediction, the requested one counts."""

    predictor: str = ""
    """run times to expect (`smartmig train run-times`), by path; empty: what the caller of the simulator predicts"""

    def __post_init__(self) -> None:
        if self.predictor:
            times_of(self.predictor)

    def keys(self, jobs: KnownJobs) -> Floats:
        return self.predicted(jobs)

    def predicted(self, jobs: KnownJobs) -> Floats:
        return times_of(self.predictor).predict(jobs.limit_s, jobs.n_gpus) if self.predictor else jobs.predicted_s
