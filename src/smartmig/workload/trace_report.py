"""What a trace reader did with the rows of its file: nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from smartmig.errors import InputError
from smartmig.types import Ints

_LINES_SHOWN = 8


@dataclass(frozen=True)
class TraceReport:
    """Counts of rows, and every assumption that turned them into jobs."""

    rows: int
    """data rows in the file"""
    used: int
    """rows that became jobs"""
    skipped: Mapping[str, int]
    """reason -> rows that are in order but are no job; with `used` and `broken` they are `rows`"""
    assumptions: Mapping[str, str]
    """knob -> what it meant for this trace"""
    broken: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """reason -> lines of the rows that could not be read"""

    def lines(self) -> list[str]:
        """The report as text, one fact a line."""
        skipped = [f"  skipped {count}: {reason}" for reason, count in self.skipped.items()]
        broken = [f"  broken {len(at)}: {reason} ({_listed(at)})" for reason, at in self.broken.items()]
        assumed = [f"  assumed {knob}: {meaning}" for knob, meaning in self.assumptions.items()]
        return [f"{self.used} of {self.rows} rows used", *skipped, *broken, *assumed]


@dataclass
class RowFilter:
    """Takes rows away one reason after the other; a row is counted under the first reason that met it."""

    keep: np.ndarray
    """(rows,) bool, what is left"""
    skipped: dict[str, int] = field(default_factory=dict)
    """reason -> rows"""
    broken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """reason -> lines"""

    def drop(self, bad: np.ndarray, reason: str) -> None:
        """Take away the rows where `bad` holds."""
        count = int((self.keep & bad).sum())
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count
            self.keep = self.keep & ~bad

    def drop_broken(self, bad: np.ndarray, reason: str, line: Ints) -> None:
        """Take away the rows where `bad` holds and remember their lines."""
        found = self.keep & bad
        if found.any():
            self.broken[reason] = (*self.broken.get(reason, ()), *line[found].tolist())
            self.keep = self.keep & ~bad

    def require_some(self, where: str) -> None:
        """Refuse a selection that left nothing."""
        if not self.keep.any():
            skipped = [f"{count} {reason}" for reason, count in self.skipped.items()]
            broken = [f"{len(at)} broken, {reason} ({_listed(at)})" for reason, at in self.broken.items()]
            raise InputError(f"{where}: no row is left to become a job: {'; '.join((*skipped, *broken))}")


def _listed(lines: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, lines[:_LINES_SHOWN]))
    more = f" and {len(lines) - _LINES_SHOWN} more" if len(lines) > _LINES_SHOWN else ""
    return f"line{'s' * (len(lines) > 1)} {shown}{more}"
