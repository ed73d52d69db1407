"""What a trace reader did with the rows of its file: nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from smartmig.errors import InputError


@dataclass(frozen=True)
class TraceReport:
    """Counts of rows, and every assumption that turned them into jobs."""

    rows: int
    """data rows in the file"""
    used: int
    """rows that became jobs"""
    skipped: Mapping[str, int]
    """reason -> rows; together with `used` they are `rows`"""
    assumptions: Mapping[str, str]
    """knob -> what it meant for this trace"""

    def lines(self) -> list[str]:
        """The report as text, one fact a line."""
        skipped = [f"  skipped {count}: {reason}" for reason, count in self.skipped.items()]
        assumed = [f"  assumed {knob}: {meaning}" for knob, meaning in self.assumptions.items()]
        return [f"{self.used} of {self.rows} rows used", *skipped, *assumed]


@dataclass
class RowFilter:
    """Takes rows away one reason after the other; a row is counted under the first reason that met it."""

    keep: np.ndarray
    """(rows,) bool, what is left"""
    skipped: dict[str, int] = field(default_factory=dict)

    def drop(self, bad: np.ndarray, reason: str) -> None:
        """Take away the rows where `bad` holds."""
        count = int((self.keep & bad).sum())
        if count:
            self.skipped[reason] = count
            self.keep = self.keep & ~bad

    def require_some(self, where: str) -> None:
        """Refuse a selection that left nothing."""
        if not self.keep.any():
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.skipped.items())
            raise InputError(f"{where}: no row is left to become a job: {reasons}")
