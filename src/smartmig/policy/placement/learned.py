"""Learned placing: a network reads the cluster's distributions and sets prices; all pairs of job and slice are scored.

A pair costs what the job would be late, plus the price of the slice for as long as it holds it. Prices depend on the
size of the slice, on whether the job is long and on how it scales, and change with the hour and the crowd: the network
(`policy/prices.py`) sets them from the same running counts the cutting policy reads. A slice of a kind that exists but
is taken counts as free after a learned delay, and whoever likes that best waits for it. One network serves any layout,
any number of GPUs and any mix of models, and looks at every job in the queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.jit import kernel, lowest_bit
from smartmig.policy.encoding import N_FEATURES, encode
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.policy_file import JOINT, PRICES, SHIPPED, read_policy, shipped_joint
from smartmig.policy.prices import (
    AT_CARD,
    AT_DELAY,
    AT_ENERGY,
    AT_LATE,
    AT_LATE_ONCE,
    AT_SCALING,
    AT_SIZE,
    LONG_FROM_S,
    MOST,
    N_ORDER,
    N_PRICES,
    N_SIZES,
    ROOM,
    hand_made,
    set_prices,
)
from smartmig.policy.view import (
    N_CARD,
    JobArrays,
    State,
    World,
    busy_share_level,
    first_gpu,
    leftmost_slot,
    time_on,
)
from smartmig.types import Floats

# World.knobs: the prices now, the weights of the order, when prices are set next (in events), every how many events (0:
# somebody else sets them), which slice classes exist, what their cards cost more, the features, then the network.
MOST_CLASSES = 64
AT_ORDER = N_PRICES
AT_NEXT = AT_ORDER + N_ORDER
AT_EVERY = AT_NEXT + 1
AT_EXISTS = AT_EVERY + 1
AT_DEARER = AT_EXISTS + MOST_CLASSES
AT_FEATURES = AT_DEARER + MOST_CLASSES
AT_NETWORK = AT_FEATURES + N_FEATURES


@kernel
def size_index(size: int) -> int:
    """Where slices of this many compute slices stand in SLICE_SIZES; 5 and 6 count as 4."""
    return size - 1 if size <= 4 else (4 if size == 7 else 3)


@kernel
def by_priced_work(world: World, jobs: JobArrays, state: State, job: int) -> float:
    """Work left, weighted by how the job scales, plus some of its deadline."""
    weight = world.knobs[AT_ORDER + jobs.spec[job].scaling]
    by_deadline = world.knobs[AT_ORDER + N_ORDER - 1] * jobs.spec[job].deadline_s
    return state.job[job].left * jobs.spec[job].whole_s * weight + by_deadline


@kernel
def prepare(world: World, jobs: JobArrays, state: State) -> None:
    for slice_class in range(world.slice_class.size):
        world.knobs[AT_EXISTS + slice_class] = 0.0
        for gpu in range(world.n_gpus):
            if state.class_bits[gpu, slice_class] & state.gpu[gpu].usable:
                world.knobs[AT_EXISTS + slice_class] = 1.0
                break
    set_on_time(world, jobs, state)
    for slice_class in range(world.slice_class.size):
        card = world.card[world.slice_class[slice_class].model]
        dearer = 0.0
        for at in range(N_CARD):
            if card[at] != 0.0:
                dearer += card[at] * math.log(world.knobs[AT_CARD + at])
        world.knobs[AT_DEARER + slice_class] = math.exp(dearer) if dearer != 0.0 else 1.0


@kernel
def set_on_time(world: World, jobs: JobArrays, state: State) -> None:
    every = world.knobs[AT_EVERY]
    passed = state.now[0].n_events - world.knobs[AT_NEXT]
    # A look ahead that is over, or a new day, turns the clock back.
    if every > 0.0 and (passed >= 0.0 or passed < -every):
        world.knobs[AT_NEXT] = state.now[0].n_events + every
        encode(world, jobs, state, world.knobs[AT_FEATURES:AT_NETWORK])
        set_prices(world.knobs[AT_NETWORK:], world.knobs[AT_FEATURES:AT_NETWORK], world.knobs[:N_PRICES])


@kernel
def choose(world: World, jobs: JobArrays, state: State, job: int) -> int:
    now_s = state.now[0].time_s
    prices = world.knobs
    spec = jobs.spec[job]
    is_long = spec.single_s * state.job[job].left >= LONG_FROM_S
    at_size = AT_SIZE + (N_SIZES if is_long else 0)
    scaling = prices[AT_SCALING + spec.scaling]
    best = np.inf
    best_slot = -1
    for slice_class in range(world.slice_class.size):
        if not spec.fits >> slice_class & 1:
            continue
        size = world.slice_class[slice_class].size
        at = size_index(size)
        run_s = time_on(jobs, state, job, slice_class)
        rent = prices[at_size + at] * scaling * prices[AT_DEARER + slice_class] * run_s
        levels = state.open_levels[slice_class]
        if levels == 0:
            if prices[AT_EXISTS + slice_class] == 0.0:
                continue  # whoever waits for it may wait for ever; one that is taken will be free again
            late_s = max(0.0, now_s + prices[AT_DELAY + at] + run_s - spec.deadline_s)
            once = prices[AT_LATE_ONCE] if late_s > 0.0 else 0.0
            cost = prices[AT_LATE] * late_s + once + rent
            if cost < best:
                best = cost
                best_slot = -1
            continue
        late_s = max(0.0, now_s + run_s - spec.deadline_s)
        cost_here = prices[AT_LATE] * late_s + rent + (prices[AT_LATE_ONCE] if late_s > 0.0 else 0.0)
        # All GPUs of a level are equally busy, so one slice per (level, class) stands for the rest.
        while levels != 0:
            gpu = first_gpu(state, lowest_bit(levels), 1 << slice_class)
            levels &= levels - 1
            busy = state.gpu[gpu].planned_busy
            watts = world.power_w[state.gpu[gpu].model]
            cost = cost_here + prices[AT_ENERGY] * (watts[busy + size] - watts[busy]) * run_s
            slot = leftmost_slot(state, gpu, 1 << slice_class)
            if cost < best or (cost == best and best_slot >= 0 and slot < best_slot):
                best = cost
                best_slot = slot
    return best_slot


@dataclass(frozen=True)
class Learned(EarliestDeadlineFirst):
    """Every job and slice scored with prices that a trained network sets from the state of the cluster (ours)."""

    policy_file: str = ""
    """a policy of one's own (`smartmig train placement`), a shipped one by name, or `joint`; empty: the shipped one for
    the run's mode"""
    every_events: int = 1
    """events between two looks at the prices"""

    kernels: ClassVar[Kernels] = Kernels(by_priced_work, choose, busy_share_level, prepare)
    counted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.every_events < 1:
            raise InputError(f"learned.every_events must be at least 1, got {self.every_events}")
        if self.policy_file not in ("", JOINT):
            weights_of(self.policy_file)

    def knobs(self, world: World) -> tuple[float, ...]:
        if self.policy_file == JOINT:
            weights = read_policy(shipped_joint(world), PRICES).weights
        else:
            weights = weights_of(self.policy_file or shipped_for(world))
        return priced_knobs(weights, self.every_events)

    def plain_key(self, view: PlainView, job: int) -> float:
        raise NotImplementedError(NO_TWIN)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        raise NotImplementedError(NO_TWIN)


HAND_MADE = "hand-made"
NO_TWIN = "a learned rule has no plain twin: its network is tested against torch"


def priced_knobs(weights: Floats, every_events: int) -> tuple[float, ...]:
    """What the kernels read, for a network; `every_events` 0: somebody else sets the prices."""
    order = np.exp(np.clip(weights[:N_ORDER], -MOST, MOST))
    head = [*np.zeros(N_PRICES), *order, 0.0, float(every_events), *np.zeros(2 * MOST_CLASSES + N_FEATURES)]
    return (*head, *weights.tolist(), *np.zeros(ROOM))


def shipped_for(world: World) -> str:
    """Name of the shipped policy for a mode."""
    return "paper" if world.preempt else "drain" if world.drain else "tight"


def weights_of(name: str) -> Floats:
    """Of a policy by path, of a shipped one by name, or of the hand-made one that training begins with."""
    if name == HAND_MADE:
        return hand_made()
    return read_policy(prices_file(name), PRICES).weights


def prices_file(name: str) -> Path:
    """Of a policy by path or of a shipped one by name; the hand-made one has none."""
    shipped = SHIPPED / f"prices-{name}.npz"
    return shipped if shipped.is_file() and "/" not in name else Path(name)
