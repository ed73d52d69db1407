"""Finding good prices: a climb from coarse to fine intervals.

The bound is a concave function of the prices with many kinks, so each step follows averaged slopes (Adam: Kingma and
Ba, 2015) with steps that shrink, cards mixing nearly equal states less and less. Nothing here can make a bound wrong:
whatever prices come out, `dual.evaluate` says what they prove.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from smartmig.bounds.dual import evaluate, last_prices, scratch, tables
from smartmig.bounds.relaxation import Relaxation, time_grid
from smartmig.jit import kernel
from smartmig.types import Floats

Progress = Callable[[str, int, int], None]
"""(what is being done, steps done, steps in all)"""

MOMENTUM = 0.9
MEMORY = 0.99
FLOOR = 1e-3
"""Slices out of balance below which a slope counts as flat."""
FOLLOW = 0.3
"""A price moves by a share of itself where it has grown past the starting price: busy hours cost many times more."""


@dataclass(frozen=True)
class Stage:
    """Steps on one grid."""

    intervals: int
    """even intervals from the first release to the earliest end"""
    steps: int
    first_move: float
    """of a price in one step, in units of the starting price"""
    last_move: float
    first_warmth: float
    """how far below the best a state may be and still count, as a share of a full card's power"""
    last_warmth: float


STANDARD = (
    Stage(144, 300, 1.0, 0.1, 0.2, 0.05),
    Stage(720, 400, 0.5, 0.03, 0.1, 0.02),
    Stage(1440, 700, 0.1, 0.008, 0.05, 0.005),
    Stage(2160, 140, 0.04, 0.005, 0.02, 0.003),
)
"""For a day of some 4,320 jobs; `stages_for` scales it."""

QUICK = (Stage(48, 150, 1.0, 0.1, 0.2, 0.05), Stage(96, 150, 0.3, 0.02, 0.1, 0.02))
"""For few jobs, when speed matters more than the last percent."""


@dataclass(frozen=True)
class Search:
    """How long and how finely to look for prices. None of it makes a bound less valid."""

    stages: tuple[Stage, ...] | None = None
    """None: by the number of jobs"""
    time_limit_s: float = math.inf
    """of one bound; then the best so far"""
    progress: Progress | None = None

    def left(self, began_s: float) -> Search:
        """The same with what is left of the time since `began_s` of the performance clock."""
        return replace(self, time_limit_s=self.time_limit_s - (time.perf_counter() - began_s))


def stages_for(n_jobs: int) -> tuple[Stage, ...]:
    """About two jobs arrive in one of the finest intervals; few jobs get fewer intervals, not fewer steps."""
    scale = min(max(n_jobs / 4320, 1 / 6), 14.0)
    return tuple(replace(stage, intervals=max(24, round(stage.intervals * scale))) for stage in STANDARD)


@dataclass(frozen=True, eq=False)
class Climbed:
    """The best prices met."""

    value: float
    """what they prove of energy_weight * joules + late_weight * summed tardiness"""
    edges_s: Floats
    prices: Floats
    """(n_intervals, n_kinds)"""
    solve_s: float
    stopped: bool
    """by the user or the time limit, before the last step"""
    interrupted: bool
    """by the user"""


def climb(
    relaxation: Relaxation,
    energy_weight: float,
    late_weight: float,
    search: Search,
    start: Climbed | None = None,
    label: str = "prices",
) -> Climbed:
    """Climb from `start`, or from what slice-time costs on a full card.

    Ctrl-C ends the climb with the best prices so far (and goes on to the caller only if there are none yet).
    """
    began_s = time.perf_counter()
    unit = starting_prices(relaxation, energy_weight, late_weight)
    tail = last_prices(relaxation, energy_weight)
    full_w = energy_weight * float(relaxation.state_w.max()) + late_weight * 0.05
    stages = stages_for(relaxation.n_jobs) if search.stages is None else search.stages
    total = sum(stage.steps for stage in stages)
    done = 0
    best = -np.inf
    best_edges = np.zeros(0)
    best_prices = np.zeros((0, 0))
    if start is not None:
        best_edges, best_prices = start.edges_s, start.prices
    stopped = interrupted = False
    try:
        for stage in stages:
            edges = time_grid(relaxation, stage.intervals)
            if best_edges.size:
                prices = _resampled(edges, best_edges, best_prices)
            else:
                prices = np.where(edges[:-1, None] < relaxation.end_s, unit, np.maximum(unit, tail))
            prices[-1] = tail
            t = tables(relaxation, edges, energy_weight, late_weight)
            s = scratch(t)
            mean, square = np.zeros_like(prices), np.zeros_like(prices)
            stage_best = -np.inf
            for step in range(stage.steps + 1):
                passed = step / max(stage.steps, 1)
                warmth = full_w * stage.first_warmth * (stage.last_warmth / stage.first_warmth) ** passed
                value = float(evaluate(t, prices, warmth, s))
                if value > stage_best:
                    stage_best = value
                    if value > best:
                        best = value
                        best_edges, best_prices = edges, prices.copy()
                if step == stage.steps:
                    break
                if time.perf_counter() - began_s > search.time_limit_s:
                    stopped = True
                    break
                move = stage.first_move * (stage.last_move / stage.first_move) ** passed
                _move(prices, s.bought, s.sold, edges, unit, move, step, mean, square)
                done += 1
                if search.progress is not None and done % 10 == 0:
                    search.progress(label, done, total)
            if stopped:
                break
    except KeyboardInterrupt:
        if best == -np.inf:
            raise
        stopped = interrupted = True
    return Climbed(best, best_edges, best_prices, time.perf_counter() - began_s, stopped, interrupted)


def starting_prices(relaxation: Relaxation, energy_weight: float, late_weight: float) -> Floats:
    """(n_kinds,) what one more busy slice draws on a full card, and something for being on time."""
    slices = relaxation.state_count @ relaxation.kind_compute
    watts = np.zeros(relaxation.n_kinds)
    for model in range(relaxation.n_gpus.size):
        rows = (relaxation.state_model == model) & (slices > 0)
        own = relaxation.state_count[rows].any(axis=0)
        watts[own] = np.min((relaxation.state_w[rows] - relaxation.idle_w[model]) / slices[rows])
    prices: Floats = (energy_weight * np.maximum(watts, 0.0) + late_weight * 0.01) * relaxation.kind_compute
    return prices


def _resampled(edges_s: Floats, old_edges_s: Floats, old_prices: Floats) -> Floats:
    # The middle of each interval; of the last, which has none, its start.
    middle_s = np.append(0.5 * (edges_s[:-2] + edges_s[1:-1]), edges_s[-2])
    at = np.searchsorted(old_edges_s, middle_s, side="right") - 1
    prices: Floats = old_prices[np.minimum(at, old_prices.shape[0] - 1)].copy()
    return prices


@kernel
def _move(
    prices: Floats,
    bought: Floats,
    sold: Floats,
    edges_s: Floats,
    unit: Floats,
    move: float,
    step: int,
    mean: Floats,
    square: Floats,
) -> None:
    mean_scale = 1.0 / (1.0 - MOMENTUM ** (step + 1))
    square_scale = 1.0 / (1.0 - MEMORY ** (step + 1))
    for i in range(prices.shape[0] - 1):
        length_s = edges_s[i + 1] - edges_s[i]
        for kind in range(prices.shape[1]):
            slope = (bought[i, kind] - sold[i, kind]) / length_s
            mean[i, kind] = MOMENTUM * mean[i, kind] + (1.0 - MOMENTUM) * slope
            square[i, kind] = MEMORY * square[i, kind] + (1.0 - MEMORY) * slope * slope
            step_size = move * max(unit[kind], FOLLOW * prices[i, kind])
            change = mean[i, kind] * mean_scale / (np.sqrt(square[i, kind] * square_scale) + FLOOR)
            prices[i, kind] = max(0.0, prices[i, kind] + step_size * change)
