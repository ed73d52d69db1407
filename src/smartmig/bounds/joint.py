"""The bounds a user asks for: energy, energy given punctuality, tardiness, ET, and the whole Pareto curve.

Each is the price climb of `ascent.py` with its own weights: a joule costs `energy_weight`, a second of one job's
tardiness `late_weight`. Each answer carries the prices that prove it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smartmig.bounds.ascent import Climbed, Search, Stage, climb, stages_for
from smartmig.bounds.certificate import Certificate
from smartmig.bounds.energy import paper_energy_bound_j
from smartmig.bounds.relaxation import Relaxation, relax
from smartmig.errors import InputError
from smartmig.hardware.model import GpuModel
from smartmig.metrics.objective import ENERGY_WEIGHT
from smartmig.types import DEADLINE_GRACE_S, Floats, Jobs

ASSUMPTIONS = (
    "preemption and re-cutting are free and instant, progress is kept: every real schedule can only be slower",
    "a GPU's busy slices are a set its placement rules allow, and its power depends on how many are busy",
    "a job runs on one slice at a time, after its arrival, at the run times given",
    "all GPUs draw at least idle power until the earliest possible end of the last job",
)
"""What the priced bounds assume; each is true of every policy and mode here."""

ROUNDING = 1e-10
"""Relative part of every value given away, so that rounding can never make a bound too high."""

ENERGY_ONLY = (Stage(24, 200, 0.05, 0.002, 0.02, 0.002), Stage(96, 300, 0.01, 0.0002, 0.005, 0.0002))
"""Without tardiness every job may run at any later time: few intervals say almost all."""

SCOUT = Stage(144, 150, 0.5, 0.05, 0.1, 0.02)
"""Enough of a climb to compare multipliers."""


DEFAULT = Search()


@dataclass(frozen=True, eq=False)
class Bound:
    """A number no schedule goes below."""

    quantity: str
    """`energy_j`, `mean_tardiness_s` or `et` (in the papers' units)"""
    value: float
    method: str
    solve_s: float
    certificate: Certificate | None
    """prices that prove it; None where the method is a formula or a solver's word"""
    assumptions: tuple[str, ...] = ASSUMPTIONS
    stopped: bool = False
    """ended early, by the user or the time limit: valid, but could have become better"""
    interrupted: bool = False
    """ended by the user"""

    def above_frac(self, reached: float) -> float:
        """How far a schedule's number lies above the bound, as a share of the bound."""
        return reached / self.value - 1.0 if self.value > 0 else math.inf


@dataclass(frozen=True, eq=False)
class ParetoBound:
    """Lines with every (energy, mean tardiness) on or above them: the curve is their upper envelope."""

    energy_j: Bound
    """the least energy at all"""
    mean_tardiness_s: Bound
    """the least tardiness at all"""
    lines: tuple[Certificate, ...]
    """each: energy_weight * energy + late_weight * n_jobs * mean tardiness >= value"""
    n_jobs: int
    solve_s: float
    stopped: bool = False
    interrupted: bool = False

    def energy_at(self, mean_tardiness_s: float) -> float:
        """Least joules with this mean tardiness; inf where none is that punctual."""
        if mean_tardiness_s < self.mean_tardiness_s.value:
            return math.inf
        given = (_energy_given(line, mean_tardiness_s, self.n_jobs) for line in self.lines)
        return max(self.energy_j.value, *given)

    def corners(self) -> tuple[Floats, Floats]:
        """Mean tardiness (s) and energy (J) of the curve's corners, from the most punctual to the most frugal."""
        slopes = [line.late_weight * self.n_jobs / line.energy_weight for line in self.lines]
        at_zero = [line.value / line.energy_weight for line in self.lines]
        first = self.mean_tardiness_s.value
        found = {first}
        lines = [*zip(slopes, at_zero, strict=True), (0.0, self.energy_j.value)]
        for index, (slope, height) in enumerate(lines):
            for other_slope, other_height in lines[:index]:
                if slope != other_slope:
                    crossing = (height - other_height) / (slope - other_slope)
                    on_curve = max(h - s * crossing for s, h in lines)
                    if crossing > first and height - slope * crossing >= on_curve * (1 - 1e-12):
                        found.add(crossing)
        tardiness = np.array(sorted(found))
        return tardiness, np.array([self.energy_at(value) for value in tardiness])


def et_bound(
    jobs: Jobs,
    gpus: Sequence[GpuModel],
    energy_weight: float = ENERGY_WEIGHT,
    estimated_speed: bool = False,
    search: Search = DEFAULT,
) -> Bound:
    """ET = (a e + t)/(a + 1) of any schedule is at least this, for any a (per watt-minute against minutes)."""
    if not 0 <= energy_weight < math.inf:
        raise InputError(f"a: got {energy_weight}, allowed is a number from 0 up")
    relaxation = relax(jobs, gpus, estimated_speed)
    weights = energy_weight / 60, 1 / (60 * len(jobs))
    climbed = climb(relaxation, *weights, search, label="ET bound")
    certificate = _certificate(relaxation, climbed, *weights, estimated_speed)
    value = certificate.value / (1 + energy_weight)
    return _answer("et", value, "slice-time prices", climbed.solve_s, certificate, climbed)


def tardiness_bound(
    jobs: Jobs,
    gpus: Sequence[GpuModel],
    estimated_speed: bool = False,
    search: Search = DEFAULT,
) -> Bound:
    """Mean tardiness of any schedule is at least this, whatever energy it spends."""
    relaxation = relax(jobs, gpus, estimated_speed)
    # Slices cost nothing but each other, so the scale is free: one minute of mean tardiness counts 1.
    weights = 0.0, 1 / (60 * len(jobs))
    climbed = climb(relaxation, *weights, search, label="tardiness bound")
    certificate = _certificate(relaxation, climbed, *weights, estimated_speed)
    value_s = 60 * certificate.value
    return _answer("mean_tardiness_s", value_s, "slice-time prices", climbed.solve_s, certificate, climbed)


def paper_energy_bound(jobs: Jobs, gpus: Sequence[GpuModel]) -> Bound:
    """S3's formula as a `Bound`."""
    began_s = time.perf_counter()
    value = paper_energy_bound_j(jobs, gpus)
    return Bound("energy_j", value, "S3, linearised jobs on whole GPUs", time.perf_counter() - began_s, None)


def energy_bound(
    jobs: Jobs,
    gpus: Sequence[GpuModel],
    max_tardiness_s: float | None = None,
    estimated_speed: bool = False,
    search: Search = DEFAULT,
) -> Bound:
    """Joules of any schedule are at least this; with `max_tardiness_s`, of any whose mean tardiness is within it."""
    relaxation = relax(jobs, gpus, estimated_speed)
    if max_tardiness_s is None:
        climbed = climb(relaxation, 1.0, 0.0, _staged(search, search.stages or ENERGY_ONLY), label="energy bound")
        certificate = _certificate(relaxation, climbed, 1.0, 0.0, estimated_speed)
        return _answer("energy_j", certificate.value, "slice-time prices", climbed.solve_s, certificate, climbed)
    if not 0 <= max_tardiness_s < math.inf:
        raise InputError(f"max_tardiness_s: got {max_tardiness_s}, allowed is a number from 0 up")
    began_s = time.perf_counter()
    late_weight, climbed = _multiplier(relaxation, max_tardiness_s, search)
    if not climbed.stopped:
        stages = search.stages or stages_for(len(jobs))
        rest = _staged(search, stages[1:] or stages).left(began_s)
        climbed = climb(relaxation, 1.0, late_weight, rest, start=climbed, label="energy given tardiness")
    certificate = _certificate(relaxation, climbed, 1.0, late_weight, estimated_speed)
    value = _energy_given(certificate, max_tardiness_s, len(jobs))
    method = f"slice-time prices, mean tardiness <= {max_tardiness_s:g} s"
    return _answer("energy_j", value, method, time.perf_counter() - began_s, certificate, climbed)


def pareto_bound(
    jobs: Jobs,
    gpus: Sequence[GpuModel],
    estimated_speed: bool = False,
    search: Search = DEFAULT,
    n_lines: int = 9,
) -> ParetoBound:
    """The curve below which no (energy, mean tardiness) lies, from `n_lines` weights between the two extremes.

    Ctrl-C ends it with the lines so far.
    """
    began_s = time.perf_counter()
    relaxation = relax(jobs, gpus, estimated_speed)
    energy = energy_bound(jobs, gpus, None, estimated_speed, search)
    tardiness = tardiness_bound(jobs, gpus, estimated_speed, search)
    interrupted = energy.interrupted or tardiness.interrupted
    stopped = energy.stopped or tardiness.stopped
    lines: list[Certificate] = []
    climbed: Climbed | None = None
    # A second of mean tardiness against the energy of all jobs: around equal, and far to both sides.
    natural = max(energy.value, 1e-9) / (len(jobs) * max(float(relaxation.work.mean()), 1e-9))
    weights = natural * np.geomspace(1 / 60, 4, n_lines) if n_lines > 1 else np.array([natural])
    for number, late_weight in enumerate(weights.tolist(), start=1):
        if interrupted:
            break
        label = f"Pareto line {number} of {n_lines}"
        climbed = climb(relaxation, 1.0, late_weight, search, start=climbed, label=label)
        lines.append(_certificate(relaxation, climbed, 1.0, late_weight, estimated_speed))
        interrupted = climbed.interrupted
        stopped = stopped or climbed.stopped
    return ParetoBound(
        energy, tardiness, tuple(lines), len(jobs), time.perf_counter() - began_s, stopped or interrupted, interrupted
    )


def _answer(
    quantity: str, value: float, method: str, solve_s: float, certificate: Certificate, climbed: Climbed
) -> Bound:
    stopped, interrupted = climbed.stopped, climbed.interrupted
    return Bound(quantity, max(0.0, value), method, solve_s, certificate, ASSUMPTIONS, stopped, interrupted)


def _staged(search: Search, stages: tuple[Stage, ...]) -> Search:
    return replace(search, stages=stages)


def _certificate(
    relaxation: Relaxation, climbed: Climbed, energy_weight: float, late_weight: float, estimated_speed: bool
) -> Certificate:
    forgiven = late_weight * relaxation.n_jobs * DEADLINE_GRACE_S
    return Certificate(
        kinds=relaxation.kinds,
        edges_s=climbed.edges_s,
        prices=climbed.prices,
        energy_weight=energy_weight,
        late_weight=late_weight,
        estimated_speed=estimated_speed,
        value=climbed.value - ROUNDING * abs(climbed.value) - forgiven,
    )


def _energy_given(certificate: Certificate, max_tardiness_s: float, n_jobs: int) -> float:
    """What the certificate says of energy when mean tardiness is at most this."""
    return (certificate.value - certificate.late_weight * n_jobs * max_tardiness_s) / certificate.energy_weight


def _multiplier(relaxation: Relaxation, max_tardiness_s: float, search: Search) -> tuple[float, Climbed]:
    """A good price of a job's tardiness: any is valid, the best makes the bound highest. Golden section over its
    logarithm with short climbs; the bound is concave in it."""
    n_steps = 9
    energy_j = float(relaxation.work.sum()) * float(relaxation.state_w.max())
    scale = energy_j / (relaxation.n_jobs * max(float(relaxation.work.mean()), max_tardiness_s, 1e-9))
    low, high = math.log(scale / 300), math.log(scale * 30)
    golden = (math.sqrt(5) - 1) / 2
    tried: dict[float, tuple[float, Climbed]] = {}
    coarse = (search.stages or stages_for(relaxation.n_jobs))[0].intervals
    scout = replace(search, stages=(replace(SCOUT, intervals=coarse),), progress=None)
    began_s = time.perf_counter()
    last: Climbed | None = None

    def rate(point: float) -> float:
        nonlocal last
        if point not in tried:
            weight = math.exp(point)
            last = climb(relaxation, 1.0, weight, scout.left(began_s), start=last)
            tried[point] = (last.value - weight * relaxation.n_jobs * max_tardiness_s, last)
            if search.progress is not None:
                search.progress("price of tardiness", len(tried), n_steps + 2)
        return tried[point][0]

    left, right = high - golden * (high - low), low + golden * (high - low)
    interrupted = False
    try:
        for _ in range(n_steps):
            better_left = rate(left) >= rate(right)
            if last is not None and last.stopped:
                break
            if better_left:
                high, right = right, left
                left = high - golden * (high - low)
            else:
                low, left = left, right
                right = low + golden * (high - low)
    except KeyboardInterrupt:
        if not tried:
            raise
        interrupted = True
    best = max(tried, key=lambda point: tried[point][0])
    climbed = tried[best][1]
    if interrupted or (last is not None and last.stopped):
        interrupted = interrupted or (last is not None and last.interrupted)
        climbed = replace(climbed, stopped=True, interrupted=interrupted)
    return math.exp(best), climbed
