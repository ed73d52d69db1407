"""Refuses what is not safe to do, whoever wants it, and says why. The last stop before the cluster.

A plan passes action by action; what is refused is left out, the rest goes on. Two things cost the whole plan, and a
plain rule decides instead: an input unlike anything the policy was trained on, and a job that waits beyond the limit
while younger ones are started.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from smartmig.control.access import fence, reserved_now
from smartmig.errors import InputError, SmartmigError
from smartmig.hardware.layouts import check_layout
from smartmig.hardware.model import gpu_model
from smartmig.policy.encoding import input_names
from smartmig.policy.gang_encoding import outline_names
from smartmig.types import (
    SLICE_SIZES,
    Action,
    ClusterState,
    Floats,
    JobKey,
    JobRequest,
    Layout,
    MigGpu,
    NodeInfo,
    NodeState,
    Placement,
    Plan,
    Repartition,
    RunningJob,
    Share,
    Start,
    Stop,
)

HOUR_S = 3600.0


@dataclass(frozen=True)
class GuardRules:
    """How much is allowed."""

    max_wait_s: float = 7 * 86_400.0
    """a job that waited longer goes before every younger one it competes with"""
    max_cuts_per_card_h: int = 12
    """cuts of one card within an hour"""
    flap_s: float = 120.0
    """a card does not go back to the cut it had less than this ago"""
    max_attempts_h: int = 5
    """starts of one job within an hour, in case it keeps falling back into the queue"""
    max_stops_h: int = 0
    """running jobs sent back into the queue within an hour"""
    max_starts: int = 1000
    """starts in one plan"""
    drift_margin: float = 0.5
    """how far beyond the range of its training an input may lie, in parts of that range; a tenth of the unit that the
    network reads is always allowed"""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise InputError(f"the guard's {name} must be at least 0, got {value}")


@dataclass(frozen=True)
class GuardMemory:
    """What was allowed of late."""

    cuts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """times, by card"""
    left: Mapping[str, tuple[tuple[float, Layout], ...]] = field(default_factory=dict)
    """the cuts a card had of late, and when it lost each"""
    attempts: Mapping[JobKey, tuple[float, ...]] = field(default_factory=dict)
    stops: tuple[float, ...] = ()


@dataclass(frozen=True)
class Refusal:
    action: Action | None
    """None: the plan as a whole"""
    why: str


@dataclass(frozen=True)
class Verdict:
    plan: Plan
    """what may be done"""
    refused: tuple[Refusal, ...] = ()
    fallback: str = ""
    """why a plain rule must decide instead; empty = no need"""


Inputs = Mapping[str, Floats]
"""What learned policies read, by the world they decide about."""
Ranges = Mapping[str, tuple[Floats, Floats]]
"""Least and greatest value of every input during training, by world."""
INPUT_NAMES = {"gang": outline_names, "mig": input_names}
"""What every input is about, by world."""


def drift(inputs: Inputs, ranges: Ranges, margin: float) -> str:
    """Why learned policies should not decide about these inputs; empty when they may."""
    for world, features in inputs.items():
        if not np.isfinite(features).all():
            return "the policy's input is not finite"
        why = _outside(world, features, *ranges[world], margin) if world in ranges else ""
        if why:
            return why
    return ""


def _outside(world: str, features: Floats, low: Floats, high: Floats, margin: float) -> str:
    # Inputs that never moved in training still get some room: rounding, one job more.
    with np.errstate(invalid="ignore"):  # 0 x inf is nan, beyond which nothing lies: as it should be
        room = margin * np.maximum(high - low, 0.0) + 0.1
    outside = np.flatnonzero((features < low - room) | (features > high + room))
    if not outside.size:
        return ""
    worst = int(outside[np.argmax(np.abs(features[outside] - np.clip(features[outside], low[outside], high[outside])))])
    return (
        f"{outside.size} of {features.size} inputs lie outside what the policy was trained on, most of all "
        f"'{INPUT_NAMES[world]()[worst]}': {features[worst]:.3g} as the network reads it, trained on {low[worst]:.3g} "
        f"to {high[worst]:.3g}"
    )


def check(
    plan: Plan,
    state: ClusterState,
    memory: GuardMemory,
    rules: GuardRules,
    inputs: Inputs = MappingProxyType({}),
    ranges: Ranges = MappingProxyType({}),
) -> Verdict:
    """What of the plan may be done. Pure; `allowed` says what to remember of it."""
    drifted = drift(inputs, ranges, rules.drift_margin)
    if drifted:
        return Verdict((), (Refusal(None, drifted),), drifted)
    if not plan:
        return Verdict(())
    world = _Room(state, {action.key for action in plan if not isinstance(action, Repartition)})
    starving = _starving(plan, state, rules)
    passed: list[Action] = []
    refused: list[Refusal] = []
    starved = ""
    n_starts = 0
    for action in _ordered(plan):
        if isinstance(action, Stop):
            why = world.why_not_stop(action) or _too_many_stops(state, memory, rules, passed)
        elif isinstance(action, Repartition):
            why = world.why_not_cut(action) or _flaps(action, state, memory, rules)
        else:
            n_starts += 1
            why = world.why_not_start(action) or _too_often(action, state, memory, rules)
            if not why and n_starts > rules.max_starts:
                why = f"more than {rules.max_starts} starts in one plan"
            if not why and starving is not None and starving.minds(action):
                who = f"job {starving.key.job_id} has waited longer than {rules.max_wait_s:g} s"
                why = starved = f"{who} and goes first"
        if why:
            refused.append(Refusal(action, why))
            continue
        world.do(action)
        passed.append(action)
    return Verdict(tuple(passed), tuple(refused), starved)


def allowed(memory: GuardMemory, plan: Plan, state: ClusterState) -> GuardMemory:
    """The memory after the plan was handed to the cluster."""
    if not plan:
        return memory
    now_s = state.time_s
    cuts, left, attempts = dict(memory.cuts), dict(memory.left), dict(memory.attempts)
    stops = list(_recent(memory.stops, now_s))
    for action in plan:
        if isinstance(action, Repartition):
            card = f"{action.node}/{action.gpu}"
            cuts[card] = (*_recent(cuts.get(card, ()), now_s), now_s)
            before = (one for one in left.get(card, ()) if one[0] > now_s - HOUR_S)
            left[card] = (*before, (now_s, _layout_of(state, action.node, action.gpu)))
        elif isinstance(action, Start):
            attempts[action.key] = (*_recent(attempts.get(action.key, ()), now_s), now_s)
        else:
            stops.append(now_s)
    if len(attempts) > 4096:
        attempts = {key: times for key, times in attempts.items() if _recent(times, now_s)}
    return GuardMemory(cuts, left, attempts, tuple(stops))


def _ordered(plan: Plan) -> list[Action]:
    order = {Stop: 0, Repartition: 1, Start: 2}
    return sorted(plan, key=lambda action: order[type(action)])


def _recent(times: tuple[float, ...], now_s: float) -> tuple[float, ...]:
    return tuple(time_s for time_s in times if time_s > now_s - HOUR_S)


def _layout_of(state: ClusterState, node: str, gpu: int) -> Layout:
    card = next(one for one in state.nodes if one.name == node).gpus[gpu]
    return tuple(Placement(one.start, one.profile) for one in card.instances)


def _too_many_stops(state: ClusterState, memory: GuardMemory, rules: GuardRules, passed: list[Action]) -> str:
    so_far = len(_recent(memory.stops, state.time_s)) + sum(isinstance(one, Stop) for one in passed)
    return (
        f"{so_far} jobs were stopped within the hour; allowed are {rules.max_stops_h}"
        if (so_far >= rules.max_stops_h)
        else ""
    )


def _too_often(action: Start, state: ClusterState, memory: GuardMemory, rules: GuardRules) -> str:
    attempts = memory.attempts.get(action.key)
    if attempts is None:
        return ""
    n = len(_recent(attempts, state.time_s))
    return f"job {action.key.job_id} was started {n} times within the hour" if n >= rules.max_attempts_h else ""


def _flaps(action: Repartition, state: ClusterState, memory: GuardMemory, rules: GuardRules) -> str:
    card = f"{action.node}/{action.gpu}"
    n = len(_recent(memory.cuts.get(card, ()), state.time_s))
    if n >= rules.max_cuts_per_card_h:
        return f"card {card} was cut {n} times within the hour; allowed are {rules.max_cuts_per_card_h}"
    had_s = max((at_s for at_s, layout in memory.left.get(card, ()) if layout == action.layout), default=-math.inf)
    ago_s = state.time_s - had_s
    return f"card {card} would go back to the cut it had {ago_s:.0f} s ago" if ago_s < rules.flap_s else ""


class _Starving(NamedTuple):
    """A job that has waited too long."""

    key: JobKey
    places: frozenset[tuple[str, int, int]]
    """what it could use of what is ours to give: nodes (`gpu` and `start` -1), or instances"""

    def minds(self, start: Start) -> bool:
        """Whether somebody younger would take what it could use."""
        return start.key.submit_s > self.key.submit_s and any(_place(share) in self.places for share in start.shares)


def _place(share: Share) -> tuple[str, int, int]:
    return (share.node, -1, -1) if share.n_gpus else (share.node, share.gpu, share.start)


def _starving(plan: Plan, state: ClusterState, rules: GuardRules) -> _Starving | None:
    """The oldest job that has waited too long, could run if all of ours were gone, and is not started now."""
    started = {action.key for action in plan if isinstance(action, Start)}
    room: _Room | None = None
    for request in state.queued:
        if state.time_s - request.key.submit_s <= rules.max_wait_s:
            break  # the queue stands by submission
        if request.key in started:
            continue
        # Nobody is to wait for one whom a limit keeps back, or for GPUs that are not ours to give.
        if room is None:
            room = _Room(state, set())
        places = room.places_for(request)
        if places and not room.why_over_limit(request):
            return _Starving(request.key, places)
    return None


def _may_use(request: JobRequest, node: NodeInfo) -> bool:
    if not request.gpu_model and not request.nodes:
        return True
    wanted = {one.strip().lower() for one in request.gpu_model.split("|")} - {""}
    if request.nodes and node.name not in request.nodes:
        return False
    models = {node.gpu_model.lower()} if request.n_gpus else {gpu.model for gpu in node.gpus}
    return not wanted or "" in models or bool(models & wanted)


def _holds(name: str, card: MigGpu, request: JobRequest) -> bool:
    """Whether the MIG job fits an instance of that profile."""
    profile = gpu_model(card.model).profile(name)
    return math.isfinite(request.run_s[SLICE_SIZES.index(profile.compute)]) and request.memory_gb <= profile.memory_gb


def _find(state: ClusterState, keys: set[JobKey]) -> dict[JobKey, JobRequest]:
    """The queued jobs with these keys; most stand near the front, so looking stops with the last."""
    found: dict[JobKey, JobRequest] = {}
    for request in state.queued:
        if len(found) == len(keys):
            break
        if request.key in keys:
            found[request.key] = request
    return found


class _Room:
    """What is free, counted down as actions pass."""

    def __init__(self, state: ClusterState, named: set[JobKey]) -> None:
        """`named`: jobs of the plan."""
        self.state = state
        self.node_of = {node.name: node for node in state.nodes}
        self.queued = _find(state, named)
        self.running: dict[JobKey, RunningJob] = {}
        ids = {key.job_id for key in named}  # quicker to look up than keys
        held = dict.fromkeys(self.node_of, 0)
        self.busy: set[tuple[str, int, int]] = set()
        self.held_by: dict[tuple[str, str], int] = {}
        for job in state.running:
            key = job.request.key
            if key.job_id in ids and key in named:
                self.running[key] = job
            if state.limits:
                self._count(job.request, 1)
            for share in job.shares:
                if share.n_gpus == 0:
                    self.busy.add((share.node, share.gpu, share.start))
                elif share.node in held:
                    held[share.node] += share.n_gpus
        for node in state.nodes:
            for gpu, card in enumerate(node.gpus):
                self.busy |= {(node.name, gpu, start) for start in card.busy_by_others}
        self.free = {node.name: min(node.n_free, node.n_gpus - held[node.name]) for node in state.nodes}
        self.cut: dict[tuple[str, int], Layout] = {}

    def places_for(self, request: JobRequest) -> frozenset[tuple[str, int, int]]:
        """What the job could use if all of ours were gone: nodes, or instances there are; nothing if that is too
        little."""
        may_use = [
            node
            for node in self.state.nodes
            if node.state is NodeState.up and _may_use(request, node) and not fence(request, node.name, self.state)
        ]
        ours = [share for job in self.state.running if job.managed for share in job.shares]
        if request.n_gpus == 0:
            taken = self.busy - {(share.node, share.gpu, share.start) for share in ours}
            return frozenset(
                (node.name, gpu, one.start)
                for node in may_use
                for gpu, card in enumerate(node.gpus)
                for one in card.instances
                if (node.name, gpu, one.start) not in taken and _holds(one.profile, card, request)
            )
        given = {node.name: self.free[node.name] for node in may_use}
        for share in ours:
            if share.node in given:
                given[share.node] += share.n_gpus
        each = request.n_gpus // max(1, request.n_nodes)
        wide = not request.n_nodes and each > max((node.n_gpus for node in may_use), default=0)
        if wide:
            enough = sum(given.values()) >= request.n_gpus
        else:
            given = {name: n_gpus for name, n_gpus in given.items() if n_gpus >= each}
            enough = len(given) >= max(1, request.n_nodes)
        return frozenset((name, -1, -1) for name in given) if enough else frozenset()

    def _count(self, request: JobRequest, sign: int) -> None:
        if not self.state.limits:
            return
        for at in ((request.user, ""), ("", request.group), (request.user, request.group)):
            self.held_by[at] = self.held_by.get(at, 0) + sign * max(1, request.n_gpus)

    def _card(self, node: str, gpu: int) -> MigGpu | None:
        known = self.node_of.get(node)
        return known.gpus[gpu] if known is not None and 0 <= gpu < len(known.gpus) else None

    def why_not_stop(self, action: Stop) -> str:
        job = self.running.get(action.key)
        if job is None:
            return f"job {action.key.job_id} does not run"
        return "" if job.managed else f"job {action.key.job_id} is not ours to stop"

    def why_not_cut(self, action: Repartition) -> str:
        card = self._card(action.node, action.gpu)
        where = f"{action.node}/{action.gpu}"
        if card is None:
            return f"there is no card {where}"
        node = self.node_of[action.node]
        if node.state is not NodeState.up:
            return f"node {node.name} is {node.state.value}, so its cards keep their cut"
        reservation = next((one.name for one in reserved_now(self.state).get(node.name, ())), "")
        if reservation:
            return f"node {node.name} is reserved ({reservation}), so its cards keep their cut"
        if (action.node, action.gpu) in self.cut:
            return f"card {where} is cut twice in one plan"
        try:
            check_layout(gpu_model(card.model), action.layout, where)
        except SmartmigError as error:
            return str(error)
        kept = set(action.layout)
        for one in card.instances:
            if (action.node, action.gpu, one.start) in self.busy and Placement(one.start, one.profile) not in kept:
                return f"{one.profile} at memory slice {one.start} of {where} is busy"
        return ""

    def why_not_start(self, action: Start) -> str:
        job = action.key.job_id
        if action.key in self.running:
            return f"job {job} already runs"
        request = self.queued.get(action.key)
        if request is None:
            return f"job {job} is not in the queue, or stands twice in the plan"
        shares = action.shares
        n_gpus = shares[0].n_gpus if len(shares) == 1 else sum(share.n_gpus for share in shares)
        if request.n_gpus == 0 and len(shares) != 1:
            return f"job {job} asks for one MIG slice and would get {len(shares)}"
        if not shares or n_gpus != request.n_gpus or (n_gpus and min(share.n_gpus for share in shares) < 1):
            return f"job {job} asks for {request.n_gpus} whole GPUs and would get something else"
        if request.n_nodes and (
            len(shares) != request.n_nodes or any(s.n_gpus * request.n_nodes != n_gpus for s in shares)
        ):
            return f"job {job} asks for {request.n_nodes} nodes with the same number of GPUs on each"
        if len(shares) > 1 and len({(s.node, s.gpu, s.start) for s in shares}) < len(shares):
            return f"job {job} would get the same share twice"
        for share in shares:
            why = self._why_not_share(request, share)
            if why:
                return f"job {job}: {why}"
        return self.why_over_limit(request)

    def why_over_limit(self, request: JobRequest) -> str:
        for limit in self.state.limits:
            mine = limit.user in ("", request.user) and limit.group in ("", request.group)
            held = self.held_by.get((limit.user, limit.group), 0)
            if mine and held + max(1, request.n_gpus) > limit.max_gpus:
                who = limit.user or limit.group
                return f"job {request.key.job_id}: {who} may hold {limit.max_gpus} GPUs and has {held}"
        return ""

    def _why_not_share(self, request: JobRequest, share: Share) -> str:
        node = self.node_of.get(share.node)
        if node is None:
            return f"there is no node {share.node}"
        if node.state is not NodeState.up:
            return f"node {share.node} is {node.state.value}"
        if not _may_use(request, node):
            return f"node {share.node} is not one it may use"
        reservation = fence(request, share.node, self.state)
        if reservation:
            return f"node {share.node} is reserved ({reservation})"
        if share.n_gpus > 0:
            free = self.free[share.node]
            return f"node {share.node} has {free} free GPUs, not {share.n_gpus}" if free < share.n_gpus else ""
        return self._why_not_instance(request, share)

    def _why_not_instance(self, request: JobRequest, share: Share) -> str:
        where = f"memory slice {share.start} of {share.node}/{share.gpu}"
        card = self._card(share.node, share.gpu)
        one = next((i for i in card.instances if i.start == share.start), None) if card is not None else None
        if card is None or one is None or not one.usable:
            return f"there is no instance at {where} that may be used"
        layout = self.cut.get((share.node, share.gpu))
        if layout is not None and Placement(one.start, one.profile) not in layout:
            return f"the instance at {where} is about to be destroyed"
        if (share.node, share.gpu, share.start) in self.busy:
            return f"the instance at {where} is taken"
        return "" if _holds(one.profile, card, request) else f"it does not fit {one.profile}"

    def do(self, action: Action) -> None:
        if isinstance(action, Repartition):
            self.cut[action.node, action.gpu] = action.layout
        elif isinstance(action, Stop):
            job: RunningJob = self.running.pop(action.key)
            self._count(job.request, -1)
        else:
            request = self.queued.pop(action.key)
            self._count(request, 1)
            for share in action.shares:
                self.free[share.node] -= share.n_gpus
                if share.n_gpus == 0:
                    self.busy.add((share.node, share.gpu, share.start))
