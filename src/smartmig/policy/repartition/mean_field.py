"""Mean field (S3): one learned matrix of transitions between configurations, sampled by every GPU.

The network sees distributions only (`policy/encoding.py`), so one trained policy serves any number of GPUs, at the
same cost per decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import GpuModel
from smartmig.jit import kernel
from smartmig.policy.draw import draw_share
from smartmig.policy.encoding import AT_CONFIG, N_FEATURES, describe, encode
from smartmig.policy.network import at_rows, plan_of, rows
from smartmig.policy.plain import PlainView
from smartmig.policy.policy_file import JOINT, SHIPPED, PolicyFile, read_policy, shipped_joint
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World
from smartmig.types import Floats, Layout

GROUPS = 8
"""A draw moves one eighth of the cluster, so a large cluster behaves like eight GPUs, only smoother."""

UNKNOWN_S = 1e9
"""a job that nobody knows the end of"""

AT_PLAN = 2 + N_FEATURES
"""knobs: how many entries of a row are kept, grouped or not, the features, then what the network reads"""


@kernel
def control(world: World, jobs: JobArrays, state: State, knobs: Floats) -> None:
    features = knobs[2:AT_PLAN]
    plan = knobs[AT_PLAN:]
    encode(world, jobs, state, features)
    rows(world, state, plan, features, int(knobs[0]))
    n_configs = world.config.size
    matrix = at_rows(n_configs)
    # Before an event's own decision pass (pending) jobs may wait beside free slices; afterwards only misfits do.
    if state.now[0].n_waiting > 0 and nobody_runs(world, state):
        if not state.now[0].pending:
            rescue(world, state)
            return
        # Nobody has come either: a cut has just been finished. Re-cut now, a small cluster might never do any work.
        if jobs.spec[state.now[0].n_arrived - 1].arrive_s < state.now[0].time_s:
            return
    if knobs[1] == 0.0:
        for gpu in range(world.n_gpus):
            row = matrix + state.gpu[gpu].config * n_configs
            share = draw_share(world.seed, state.now[0].n_draws)
            state.now[0].n_draws += 1
            state.gpu[gpu].target = entry_at(plan, row, n_configs, state.gpu[gpu].config, share)
        return
    for config in range(n_configs):
        if state.tally[AT_CONFIG + config] == 0:
            continue
        share = draw_share(world.seed, state.now[0].n_draws)
        state.now[0].n_draws += 1
        target = entry_at(plan, matrix + config * n_configs, n_configs, config, share)
        if target != config:
            move_group(world, state, config, target)


@kernel
def move_group(world: World, state: State, config: int, target: int) -> None:
    """An eighth of the cluster, at least one GPU, goes from one configuration to another: those that lose least.

    That is the least busy, or while they drain the soonest done: these by powers of two of what they lose, so that no
    cluster has to be sorted.
    """
    n_others = 0
    limit = np.inf
    for gpu in range(world.n_gpus):
        if state.gpu[gpu].config == config and state.gpu[gpu].target != target:
            n_others += 1
            loss = lost_slice_s(world, state, gpu, target) if world.drain else float(state.gpu[gpu].busy)
            state.slot[gpu * SLOTS].booked_s = loss
            limit = min(limit, loss)
    left = min(n_others, (world.n_gpus + GROUPS - 1) // GROUPS)
    while left > 0:
        for gpu in range(world.n_gpus):
            if state.gpu[gpu].config != config or state.gpu[gpu].target == target:
                continue
            if left > 0 and state.slot[gpu * SLOTS].booked_s <= limit:
                state.gpu[gpu].target = target
                left -= 1
        limit = max(1.0, 2.0 * limit) if world.drain else limit + 1.0


@kernel
def lost_slice_s(world: World, state: State, gpu: int, config: int) -> float:
    """Slice-seconds a drained GPU loses: instances that leave take no jobs until the last of them has ended its own."""
    least = np.inf
    for variant in range(world.config_cut.shape[1]):
        cut = world.config_cut[config, variant]
        if cut < 0:
            break
        n_leaving = 0
        last_s = 0.0
        for place in range(SLOTS):
            slot = gpu * SLOTS + place
            slice_class = state.slot[slot].slice_class
            if slice_class >= 0 and slice_class != world.cut_class[cut, place]:
                n_leaving += world.slice_class[slice_class].size
                left_s = state.slot[slot].end_s - state.now[0].time_s
                if state.slot[slot].job >= 0 and left_s > last_s:
                    last_s = min(left_s, UNKNOWN_S)
        least = min(least, n_leaving * last_s)
    return least


@kernel
def entry_at(plan: Floats, row: int, n_configs: int, present: int, share: float) -> int:
    """The entry of the row that holds this share of the probability; the present configuration comes last."""
    passed = 0.0
    for other in range(n_configs):
        if other != present:
            passed += plan[row + other]
            if share < passed:
                return other
    return present


@kernel
def nobody_runs(world: World, state: State) -> bool:
    """Not that GPUs are down: some are open, and nothing is on them."""
    n_open = 0
    for gpu in range(world.n_gpus):
        if state.gpu[gpu].busy > 0:
            return False
        n_open += state.gpu[gpu].usable != 0
    return n_open > 0


@kernel
def rescue(world: World, state: State) -> None:
    """Jobs wait though every slice is free: none is large enough. Make one GPU of each model whole."""
    for model in range(world.power_w.shape[0]):
        whole = -1
        for config in range(world.config.size):
            if world.config[config].model == model and world.config[config].n_slices == 1 and whole < 0:
                whole = config
        for gpu in range(world.n_gpus):
            if state.gpu[gpu].model == model and whole >= 0:
                state.gpu[gpu].target = whole
                break


@dataclass(frozen=True)
class MeanField:
    """A learned matrix of transitions between cuts, sampled by every GPU (S3)."""

    policy_file: str = ""
    """a policy of one's own (`smartmig train repartition`), or `joint`; empty: the shipped one for the run's mode"""
    top: int = 1
    """entries of a row that are sampled from; training explores with 3, as S3 does, and 1 takes the likeliest"""
    grouped: bool = True
    """one draw per configuration moves an eighth of the cluster, the GPUs that lose least first; false: every GPU draws
    for itself (S3), which re-cuts more than the matrix means whenever few GPUs draw"""
    events_per_gpu: float = 0.125
    """events between two decisions, per GPU of the cluster: every event of eight GPUs (S3: every one, or every fifth),
    and events come as much faster as there are more GPUs"""

    control: ClassVar[Kernel | None] = control
    counted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.top < 1:
            raise InputError(f"mean-field.top must be at least 1, got {self.top}")
        if not self.events_per_gpu > 0:
            raise InputError(f"mean-field.events_per_gpu must be above 0, got {self.events_per_gpu:g}")
        if self.policy_file not in ("", JOINT):
            read_policy(Path(self.policy_file))

    def period_s(self) -> float:
        return 3600.0  # nothing may happen for hours while jobs wait for a slice that no cut offers: look anyway

    def every_events(self, n_gpus: int) -> int:
        return max(1, round(self.events_per_gpu * n_gpus))

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        return tuple(configurations(gpu)[0] for gpu in gpus)

    def reachable(self, cuts: CutTable) -> tuple[int, ...]:
        return tuple(index for index, config in enumerate(cuts.configs) if config.number is not None)

    def policy(self, world: World) -> PolicyFile:
        """One's own, or the one shipped for the mode."""
        if self.policy_file == JOINT:
            return read_policy(shipped_joint(world))
        if self.policy_file:
            return read_policy(Path(self.policy_file))
        return read_policy(SHIPPED / shipped_name(world.n_gpus, world.drain))

    def knobs(self, cuts: CutTable, world: World) -> Floats:
        policy = self.policy(world)
        for gpu in cuts.models:
            if gpu.n_compute not in policy_compute(policy):
                raise InputError(
                    f"mean-field: the policy was trained on {', '.join(policy.about.gpus)}, whose cuts differ from "
                    f"those of {gpu.id}; train one for it with --gpus {len(cuts.gpu_model)}x{gpu.id}"
                )
        return self.knobs_of(cuts, policy.weights)

    def knobs_of(self, cuts: CutTable, weights: Floats) -> Floats:
        may_be_chosen = np.array([float(config.number is not None) for config in cuts.configs])
        head = [float(self.top), float(self.grouped), *np.zeros(N_FEATURES)]
        return np.concatenate([head, plan_of(weights, describe(cuts), may_be_chosen)])

    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:
        raise NotImplementedError("a learned rule has no plain twin: its network is tested against torch")


def policy_compute(policy: PolicyFile) -> set[int]:
    """Compute slices of the cards the policy was trained on: cards of one size have the same kinds of cuts."""
    from smartmig.hardware.model import gpu_model

    return {gpu_model(name).n_compute for name in policy.about.gpus}


def shipped_name(n_gpus: int, drain: bool) -> str:
    """File of the shipped policy for a mode."""
    if n_gpus == 1 and not drain:
        return "mean-field-one.npz"
    return "mean-field-drain.npz" if drain else "mean-field-paper.npz"
