"""Shortest job first, by what the user asked for."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.types import Floats


@dataclass(frozen=True)
class Sjf(Ordered):
    """The least requested time first; jobs that asked for none come last."""

    def keys(self, jobs: KnownJobs) -> Floats:
        return jobs.limit_s
