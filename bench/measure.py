"""What a benchmark returns, and how we time: the best of several, because noise only ever adds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    value: float
    unit: str
    detail: str
    at_least: float | None = None
    at_most: float = float("inf")


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)
