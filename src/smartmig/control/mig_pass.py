"""The engine's steps of one live decision on MIG cards, compiled for the rules: seat who runs, ask for cuts, place.

`place_allowed` is the engine's pass in which every job sees the slices of the cards it may go to, and no others: rules
know kinds of slices, not nodes.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from smartmig.jit import kernel, specialise
from smartmig.policy.encoding import AT_CONFIG, track, turn_clock
from smartmig.policy.placement.rule import Kernels
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World
from smartmig.sim.mig.decide import place
from smartmig.sim.mig.heaps import pop_waiting, push_end, push_waiting
from smartmig.sim.mig.kernel import Engine
from smartmig.sim.mig.occupancy import set_usable
from smartmig.sim.mig.plugged import rule_choose, rule_control, rule_key, rule_prepare
from smartmig.sim.mig.recut import recut
from smartmig.types import Floats, Ints

OVERDUE_S = 1.0
"""A job that should be done by now is expected to end after this long."""

ANYWHERE = 0
"""The group of jobs that may go to every card."""


def seat(world: World, jobs: JobArrays, state: State, slot: Ints, start_s: Floats, usable: Ints) -> None:
    """Job i runs on `slot[i]` since `start_s[i]`, the others wait; cards offer what is usable."""
    now_s = state.now[0].time_s
    for job in range(slot.size):
        at = slot[job]
        gpu = at // SLOTS
        slice_class = state.slot[at].slice_class
        size = world.slice_class[slice_class].size
        state.gpu[gpu].taken |= 1 << (at - gpu * SLOTS)
        state.gpu[gpu].busy += size
        state.gpu[gpu].planned_busy += size
        state.slot[at].job = job
        state.job[job].slot = at
        state.job[job].n_starts = 1
        state.job[job].began_s = start_s[job]
        state.job[job].since_s = start_s[job]
        state.job[job].first_start_s = start_s[job]
        end_s = start_s[job] + jobs.run_s[job, slice_class]
        if end_s <= now_s:
            end_s = now_s + OVERDUE_S
        state.job[job].end_s = end_s
        state.slot[at].end_s = end_s
        push_end(state, at, end_s)
    for gpu in range(world.n_gpus):
        state.tally[AT_CONFIG + state.gpu[gpu].config] += 1
        state.tally[AT_CONFIG + world.config.size + state.gpu[gpu].config] += state.gpu[gpu].busy
        set_usable(world, state, gpu, usable[gpu])
    turn_clock(jobs, state)
    for job in range(jobs.spec.size):
        if job >= slot.size:
            push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
        track(world, jobs, state, job, True)


def ask(world: World, jobs: JobArrays, state: State, knobs: Floats, kept: NDArray[np.bool_]) -> None:
    """The repartition rule's wishes, begun, but for cards that keep their cut."""
    for gpu in range(world.n_gpus):
        state.gpu[gpu].target = -1
    rule_control(world, jobs, state, knobs)
    for gpu in range(world.n_gpus):
        if not kept[gpu] and state.gpu[gpu].target >= 0 and state.gpu[gpu].target != state.gpu[gpu].config:
            recut(world, jobs, state, gpu, state.gpu[gpu].target)


@kernel
def offers(state: State, offered: Ints, allowed: NDArray[np.bool_]) -> bool:
    """Whether a slice is free on an allowed card."""
    free = 0
    for gpu in range(offered.size):
        if allowed[gpu]:
            free |= offered[gpu] & ~state.gpu[gpu].taken
    return free != 0


def place_allowed(
    world: World,
    jobs: JobArrays,
    state: State,
    offered: Ints,
    group: Ints,
    allowed: NDArray[np.bool_],
    classes: Ints,
) -> bool:
    """Waiting jobs in the rule's order onto free slices; whether the rule chose only such as were free and fit.

    `offered`: slots that take jobs, by card. `group`: of each job; `allowed`, `classes`: by group, the cards it may go
    to (ANYWHERE: all of them) and the slice classes there are on these.
    """
    rule_prepare(world, jobs, state)
    n_left = state.now[0].n_free
    shown = ANYWHERE
    n_aside = 0
    while n_left > 0 and state.now[0].n_waiting > 0:
        job = pop_waiting(state)
        mine = group[job]
        slot = -1
        if offers(state, offered, allowed[mine]):
            if mine != shown:
                shown = mine
                for gpu in range(world.n_gpus):
                    usable = offered[gpu] if allowed[mine, gpu] else 0
                    if usable != state.gpu[gpu].usable:
                        set_usable(world, state, gpu, usable)
            # Some rules wait for a kind of slice that is taken; it must be one the job will get.
            jobs.spec[job].fits &= classes[mine]
            slot = rule_choose(world, jobs, state, job)
        if slot < 0:
            state.aside[n_aside] = job
            n_aside += 1
        elif place(world, jobs, state, job, slot):
            n_left -= 1
        else:
            return False
    for at in range(n_aside):
        job = state.aside[at]
        push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
    return True


@functools.cache
def seating(name: str, rule: Kernels, built: Engine) -> Kernel:
    return specialise(seat, name, cached=True, rule_key=rule.key, set_usable=built.set_usable)


@functools.cache
def asking(name: str, control: Kernel, built: Engine) -> Kernel:
    return specialise(ask, name, cached=True, rule_control=control, recut=built.recut)


@functools.cache
def placing(name: str, rule: Kernels, built: Engine) -> Kernel:
    bindings = {f"rule_{field}": getattr(rule, field) for field in ("key", "choose", "prepare")}
    return specialise(place_allowed, name, cached=True, place=built.place, set_usable=built.set_usable, **bindings)
