"""What the variants of a study come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from smartmig.metrics.statistics import Estimate, estimate
from smartmig.metrics.summary import Summary


@dataclass(frozen=True, eq=False)
class Row:
    """What a variant came to, each time it was trained."""

    group: str
    label: str
    steps: int
    train_s: float
    """mean of the trainings"""
    runs: Sequence[Sequence[Summary]]
    """by training, then by test day"""
    earned: float | None = None
    """rewards per day, of the kind it was trained on"""

    def of(self, name: str, scale: float = 1.0) -> Estimate:
        """Over trainings; where there is one, or none, over days."""
        found = [[scale * getattr(day, name) for day in days] for days in self.runs]
        return estimate([fmean(days) for days in found] if len(found) > 1 else found[0])
