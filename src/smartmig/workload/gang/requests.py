"""Requested times for traces that have none.

All of these are synthetic, and they decide how well any rule can do that orders or backfills by requested time: name
the model and its seed beside every number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from smartmig.registry import REQUESTS, load
from smartmig.types import Floats, GangJobs

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MENU_S = tuple(hours * HOUR_S for hours in (1, 2, 4, 8, 12, 24, 48, 72, 168))
CLASSES_S = (4 * HOUR_S, DAY_S, 7 * DAY_S)

# Share of the requested time that is used. Among the Beta laws of median 0.22, the median of the 19,407 jobs of the
# DRAC trace (Graham, 2021; workload/gang/drac.py), the one whose distribution is nearest to theirs (least mean squared
# distance of the two; mean 0.31, theirs 0.27).
USED_BETA = (0.5, 1.13)
LEAST_USED = 0.01
"""Jobs that use less of their request mostly failed at once; unrounded requests would have no end without this."""


def with_requests(jobs: GangJobs, model: str, seed: int = 0) -> GangJobs:
    """The jobs with synthetic requested times where they have none; those of the trace stay.

    Raises `UnknownName` for a model that is not registered. One draw a job, so the same seed gives a job the same used
    share under every model; filter afterwards, and it keeps it.
    """
    request: Callable[[Floats, np.random.Generator], Floats] = load(REQUESTS, "request model", model)
    asked_s = request(jobs.run_s, np.random.Generator(np.random.PCG64(seed)))
    return replace(jobs, limit_s=np.where(np.isinf(jobs.limit_s), asked_s, jobs.limit_s))


def perfect(run_s: Floats, rng: np.random.Generator) -> Floats:
    """Synthetic: the true run time, as if everyone knew it."""
    del rng
    return run_s.copy()


def unrounded(run_s: Floats, rng: np.random.Generator) -> Floats:
    """Synthetic: run time over a drawn used share. Nobody asks for 3 h 17 min 4 s: nearly tells the run time."""
    return run_s / np.clip(rng.beta(*USED_BETA, run_s.size), LEAST_USED, 1.0)


def menu_1h(run_s: Floats, rng: np.random.Generator) -> Floats:
    """Synthetic: the unrounded request, rounded up to 1, 2, 4, 8, 12, 24, 48, 72 h or 7 d."""
    return _rounded_up(unrounded(run_s, rng), run_s, MENU_S)


def menu_15min(run_s: Floats, rng: np.random.Generator) -> Floats:
    """Synthetic: the same menu with 15 min as its first entry."""
    return _rounded_up(unrounded(run_s, rng), run_s, (HOUR_S / 4, *MENU_S))


def three_classes(run_s: Floats, rng: np.random.Generator) -> Floats:
    """Synthetic: the unrounded request, rounded up to 4 h, 1 d or 7 d, like queues for short, medium and long jobs."""
    return _rounded_up(unrounded(run_s, rng), run_s, CLASSES_S)


def constant(run_s: Floats, rng: np.random.Generator) -> Floats:
    """Synthetic: 7 d for everyone, which tells nothing; more whole days where a job ran for longer."""
    return _rounded_up(unrounded(run_s, rng), run_s, MENU_S[-1:])


def _rounded_up(asked_s: Floats, run_s: Floats, menu_s: tuple[float, ...]) -> Floats:
    """The next entry of the menu. Above the last one: that, or the whole days a longer run needs."""
    menu = np.array(menu_s)
    entry = np.minimum(np.searchsorted(menu, asked_s), menu.size - 1)
    whole_days_s = np.where(run_s > menu[-1], np.ceil(run_s / DAY_S) * DAY_S, 0.0)
    limit_s: Floats = np.maximum(menu[entry], whole_days_s)
    return limit_s
