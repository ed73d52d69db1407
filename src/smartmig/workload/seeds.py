"""Which seeds are for what: days a policy was trained or tuned on are never reported on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from smartmig.errors import InputError
from smartmig.types import Jobs

TEST_FIRST = 0
"""reports, comparisons and published tables use seeds from here"""
VALIDATION_FIRST = 10_000_000
"""choosing between trained policies, searching knobs"""
TRAINING_FIRST = 20_000_000
"""learning"""
N_TRAINING_DAYS = 10_000_000
"""environments draw their days from so many seeds, from TRAINING_FIRST on"""


def jobs_of_day(
    jobs_of: Callable[[int], Jobs], options: Mapping[str, Any] | None, generator: np.random.Generator
) -> Jobs:
    """Those of the day that `reset` was asked for; without a wish, of a day that no report is made of."""
    for key in options or {}:
        if key != "day":
            raise InputError(f"reset: no option '{key}'. Known: day.")
    number = int(options["day"]) if options else TRAINING_FIRST + int(generator.integers(N_TRAINING_DAYS))
    if number < 0:
        raise InputError(f"reset: day must be at least 0, got {number}")
    jobs = jobs_of(number)
    if len(jobs) == 0:
        raise InputError(f"day {number} has no jobs")
    return jobs
