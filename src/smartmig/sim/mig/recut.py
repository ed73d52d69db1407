"""Cutting a GPU anew: the whole of it as in the papers, or instance by instance as on real cards.

Functions without a decorator call the plugged-in rule; `kernel.engine` compiles them for it.
"""

from __future__ import annotations

from smartmig.jit import kernel
from smartmig.policy.encoding import AT_CONFIG, track
from smartmig.policy.view import SLOTS, JobArrays, State, World, left_now
from smartmig.sim.mig.heaps import push_end, push_waiting, remove_end
from smartmig.sim.mig.occupancy import CODES, CUT, GONE, INSTANCE, charge, note, set_usable, stop
from smartmig.sim.mig.plugged import rule_key


@kernel
def instances(state: State, gpu: int) -> int:
    """Slots of the GPU at which an instance starts."""
    bits = 0
    for place in range(SLOTS):
        if state.slot[gpu * SLOTS + place].slice_class >= 0:
            bits |= 1 << place
    return bits


@kernel
def best_variant(world: World, state: State, gpu: int, config: int) -> int:
    """The cut of the configuration that keeps most busy instances, then most idle ones."""
    best = -1
    best_kept = -1
    for variant in range(world.config_cut.shape[1]):
        cut = world.config_cut[config, variant]
        if cut < 0:
            break
        kept = 0
        for place in range(SLOTS):
            slot = gpu * SLOTS + place
            slice_class = world.cut_class[cut, place]
            if slice_class >= 0 and slice_class == state.slot[slot].slice_class:
                kept += SLOTS if state.slot[slot].job >= 0 else 1
        if kept > best_kept:
            best_kept = kept
            best = cut
    return best


def requeue(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """A running job goes back to the waiting ones with what is left of it."""
    state.job[job].left = left_now(jobs, state, job)
    stop(world, state, job)
    state.now[0].n_preemptions += 1
    push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
    track(world, jobs, state, job, True)


def recut_whole(world: World, jobs: JobArrays, state: State, gpu: int, config: int) -> None:
    """Paper mode: every job of the GPU is stopped, the GPU comes back after `recut_s` with the new cut."""
    set_usable(world, state, gpu, 0)
    charge(world, state, gpu, 0)
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        if state.slot[slot].job >= 0:
            requeue(world, jobs, state, state.slot[slot].job)
        wanted = world.cut_class[world.config_cut[config, 0], place]
        if world.record:
            now_s = state.now[0].time_s
            if state.slot[slot].slice_class >= 0:
                note(state, INSTANCE, slot * CODES + GONE, now_s, now_s)
            if wanted >= 0:
                note(state, INSTANCE, slot * CODES + wanted, now_s + world.recut_s, now_s)
        state.slot[slot].slice_class = wanted
    state.gpu[gpu].taken = 0
    state.gpu[gpu].planned_busy = 0
    item = world.n_gpus * SLOTS + gpu
    remove_end(state, item)
    push_end(state, item, state.now[0].time_s + world.recut_s)


def drain_on(world: World, state: State, gpu: int) -> None:
    """Drain mode: begin the next operation on the GPU, if one is needed, possible, and none is under way."""
    if not state.gpu[gpu].draining or state.gpu[gpu].operation != 0:
        return
    item = world.n_gpus * SLOTS + gpu
    now_s = state.now[0].time_s
    done = True
    occupied = 0  # memory slices that instances still hold
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        slice_class = state.slot[slot].slice_class
        if slice_class != state.slot[slot].wanted_class:
            done = False
        if slice_class < 0:
            continue
        if slice_class != state.slot[slot].wanted_class and state.slot[slot].job < 0:
            state.gpu[gpu].operation = ~slot
            push_end(state, item, now_s + world.slice_class[slice_class].destroy_s)
            return
        occupied |= ((1 << world.slice_class[slice_class].span) - 1) << place
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        wanted = state.slot[slot].wanted_class
        if wanted >= 0 and state.slot[slot].slice_class < 0:
            span = ((1 << world.slice_class[wanted].span) - 1) << place
            if occupied & span == 0:
                state.gpu[gpu].operation = slot + 1
                state.gpu[gpu].operation_class = wanted
                push_end(state, item, now_s + world.slice_class[wanted].create_s)
                return
    if done:
        state.gpu[gpu].draining = 0


def recut_drain(world: World, state: State, gpu: int, config: int) -> None:
    """Drain mode: instances that are not part of the new cut take no more jobs and go as soon as they are idle."""
    cut = best_variant(world, state, gpu, config)
    state.gpu[gpu].draining = 1
    usable = 0
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        state.slot[slot].wanted_class = world.cut_class[cut, place]
        leaving = state.gpu[gpu].operation == ~slot
        if (
            state.slot[slot].slice_class >= 0
            and state.slot[slot].slice_class == state.slot[slot].wanted_class
            and not leaving
        ):
            usable |= 1 << place
    set_usable(world, state, gpu, usable)
    drain_on(world, state, gpu)


def recut(world: World, jobs: JobArrays, state: State, gpu: int, config: int) -> None:
    """Begin to cut the GPU to the configuration, which must be another than its present (or wanted) one."""
    now_s = state.now[0].time_s
    state.config_s[state.gpu[gpu].config] += now_s - state.gpu[gpu].config_since_s
    if world.record:
        note(state, CUT, state.gpu[gpu].config * world.n_gpus + gpu, state.gpu[gpu].config_since_s, now_s)
    state.gpu[gpu].config_since_s = now_s
    for entry, amount in ((AT_CONFIG, 1), (AT_CONFIG + world.config.size, state.gpu[gpu].busy)):
        state.tally[entry + state.gpu[gpu].config] -= amount
        state.tally[entry + config] += amount
    state.gpu[gpu].config = config
    state.now[0].n_recuts += 1
    state.now[0].pending = 1
    if world.drain:
        recut_drain(world, state, gpu, config)
    else:
        recut_whole(world, jobs, state, gpu, config)


def operation_done(world: World, state: State, gpu: int) -> None:
    """The GPU's pending re-cut step is finished; the engine begins the next."""
    if not world.drain:
        set_usable(world, state, gpu, instances(state, gpu))
        return
    operation = state.gpu[gpu].operation
    state.gpu[gpu].operation = 0
    now_s = state.now[0].time_s
    if operation < 0:
        state.slot[~operation].slice_class = -1
        if world.record:
            note(state, INSTANCE, ~operation * CODES + GONE, now_s, now_s)
    else:
        slot = operation - 1
        # The wish may have changed while it was created; then it is idle and will be destroyed again.
        created = state.gpu[gpu].operation_class
        state.slot[slot].slice_class = created
        if world.record:
            note(state, INSTANCE, slot * CODES + created, now_s, now_s)
        if created == state.slot[slot].wanted_class:
            set_usable(world, state, gpu, state.gpu[gpu].usable | 1 << (slot - gpu * SLOTS))
