"""Shortest job first, by the true run time: what perfect predictions would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.types import Floats


@dataclass(frozen=True)
class SjfOracle(Ordered):
    """The least true run time first (oracle: no real scheduler knows it)."""

    oracle: ClassVar[bool] = True

    def keys(self, jobs: KnownJobs) -> Floats:
        return jobs.true_s
