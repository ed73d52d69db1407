"""A cluster that exists in memory only: nodes, jobs that come, run and end, cards that can be cut.

Time stands still until `advance_to`. All events of one instant come before anyone looks, in the engine's order:
completions and finished cuts, nodes that come back, nodes that go, submissions. Left to itself (`own_scheduling`) the
cluster starts jobs strictly first come, first served, wherever there is room first.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from smartmig.hardware.layouts import check_layout
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.sim.mig.kernel import SAME_INSTANT_S
from smartmig.types import (
    SLICE_SIZES,
    Action,
    ClusterState,
    Instance,
    JobKey,
    JobRequest,
    Layout,
    MigGpu,
    NodeInfo,
    NodeState,
    Outcome,
    Placement,
    Plan,
    Repartition,
    RunningJob,
    Share,
    Start,
    Stop,
)


@dataclass(frozen=True)
class Arrival:
    """A job that will be submitted, and what only the cluster knows of it."""

    request: JobRequest
    run_s: float
    """true run time on whole GPUs of speed 1; MIG jobs have theirs in the request"""


@dataclass(frozen=True)
class Edge:
    """A node goes (`change` 1: away once more) or comes back (-1)."""

    time_s: float
    change: int
    node: int
    kills: bool = False


@dataclass
class Card:
    """A MIG card as it is: instances by start, and those under construction."""

    model: GpuModel
    layout: Layout
    busy: dict[int, JobKey] = field(default_factory=dict)
    ready_s: dict[int, float] = field(default_factory=dict)
    """when a new instance may be used"""


@dataclass
class Machine:
    info: NodeInfo
    cards: list[Card] = field(default_factory=list)
    n_away: int = 0
    killed: bool = False
    """away because it failed, not because it drains"""


KEPT = 20_000
"""Jobs that are no more and still known: a simulated cluster may run for months."""


@dataclass(frozen=True)
class Ended:
    """A job that is no more."""

    request: JobRequest
    start_s: float
    end_s: float
    killed: bool


class SimulatedCluster:
    """Not thread-safe: its owner holds a lock."""

    def __init__(
        self,
        nodes: tuple[NodeInfo, ...],
        arrivals: Iterator[Arrival],
        edges: tuple[Edge, ...] = (),
        start_s: float = 0.0,
    ) -> None:
        self.time_s = start_s
        self.own_scheduling = True
        self.machines = [Machine(node, [_card(gpu) for gpu in node.gpus]) for node in nodes]
        self.machine_of = {machine.info.name: machine for machine in self.machines}
        # On slices jobs end at fractions of seconds: what is one instant to the engine is one here too.
        self._instant_s = SAME_INSTANT_S if any(machine.cards for machine in self.machines) else 0.0
        self.queue: dict[JobKey, tuple[int, JobRequest]] = {}
        self.running: dict[JobKey, tuple[int, RunningJob]] = {}
        self.true_s: dict[JobKey, float] = {}
        self.left: dict[JobKey, float] = {}
        self.ended: deque[Ended] = deque(maxlen=KEPT)
        self._arrivals = arrivals
        self._next = next(arrivals, None)
        self._numbers = count()
        # At one instant nodes come back before others go, as in the engine.
        self._edges = sorted(edges, key=lambda edge: (edge.time_s, edge.change, edge.node))
        self._n_edges = 0
        self._ends: list[tuple[float, int, JobKey]] = []  # (time, number, job) of those that run
        self._ready: list[float] = []
        self._free = {machine.info.name: machine.info.n_gpus for machine in self.machines}

    @property
    def next_event_s(self) -> float:
        """inf: nothing will happen by itself."""
        times = [self._ends[0][0] if self._ends else math.inf, self._ready[0] if self._ready else math.inf]
        if self._n_edges < len(self._edges):
            times.append(self._edges[self._n_edges].time_s)
        if self._next is not None:
            times.append(self._next.request.key.submit_s)
        return min(times)

    def advance_to(self, time_s: float) -> int:
        """Let everything up to then happen; how many instants had events."""
        n_events = 0
        while (at_s := self.next_event_s) <= time_s:
            self.time_s = max(self.time_s, at_s)
            self._pass_instant(at_s)
            n_events += 1
            if self.own_scheduling:
                self._schedule()
        self.time_s = max(self.time_s, time_s)
        return n_events

    def observe(self) -> ClusterState:
        running = sorted(self.running.values(), key=lambda item: item[0])
        queued = sorted(self.queue.values(), key=lambda item: item[0])
        return ClusterState(
            self.time_s,
            tuple(self._info(machine) for machine in self.machines),
            tuple(request for _, request in queued),
            tuple(job for _, job in running),
        )

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """As `ports.Actuator.apply`."""
        order = {Stop: 0, Repartition: 1, Start: 2}
        done: dict[int, Outcome] = {}
        for at in sorted(range(len(plan)), key=lambda at: (order[type(plan[at])], at)):
            why = self._do(plan[at])
            done[at] = Outcome(plan[at], not why, why)
        return tuple(done[at] for at in range(len(plan)))

    def let_go(self) -> int:
        held = 0 if self.own_scheduling else len(self.queue)
        self.own_scheduling = True
        self._schedule()
        return held

    def take_over(self) -> int:
        self.own_scheduling = False
        return len(self.queue)

    def _pass_instant(self, at_s: float) -> None:
        until_s = at_s + self._instant_s
        while self._ends and self._ends[0][0] <= until_s:
            self._end(heapq.heappop(self._ends)[2], at_s)
        while self._ready and self._ready[0] <= until_s:
            heapq.heappop(self._ready)
        while self._n_edges < len(self._edges) and self._edges[self._n_edges].time_s <= until_s:
            self._pass_edge(self._edges[self._n_edges])
            self._n_edges += 1
        while self._next is not None and self._next.request.key.submit_s <= until_s:
            request = self._next.request
            self.true_s[request.key] = self._next.run_s
            self.queue[request.key] = (next(self._numbers), request)
            self._next = next(self._arrivals, None)

    def _pass_edge(self, edge: Edge) -> None:
        machine = self.machines[edge.node]
        machine.n_away += edge.change
        machine.killed = machine.n_away > 0 and (edge.kills or machine.killed)
        if edge.kills:
            for key, (number, job) in list(self.running.items()):
                if any(share.node == machine.info.name for share in job.shares):
                    self._release(job)
                    self._send_back(key, number, job)

    def _send_back(self, key: JobKey, number: int, job: RunningJob) -> None:
        """Into the queue; and nothing happens when it would have ended."""
        del self.running[key]
        self.queue[key] = (number, job.request)
        self._ends = [end for end in self._ends if end[2] != key]
        heapq.heapify(self._ends)

    def _end(self, key: JobKey, at_s: float) -> None:
        _, job = self.running.pop(key)
        self._release(job)
        killed = job.request.n_gpus > 0 and at_s >= job.start_s + job.request.limit_s
        self.ended.append(Ended(job.request, job.start_s, at_s, killed))
        for table in (self.true_s, self.left):
            table.pop(key, None)

    def _release(self, job: RunningJob) -> None:
        for share in job.shares:
            if share.n_gpus:
                self._free[share.node] += share.n_gpus
            else:
                del self.machine_of[share.node].cards[share.gpu].busy[share.start]

    def _info(self, machine: Machine) -> NodeInfo:
        info = machine.info
        state = NodeState.up
        if machine.n_away > 0:
            state = NodeState.down if machine.killed else NodeState.drained
        gpus = tuple(
            MigGpu(
                card.model.id,
                tuple(
                    Instance(start, profile, card.ready_s.get(start, 0.0) <= self.time_s + self._instant_s)
                    for start, profile in card.layout
                ),
            )
            for card in machine.cards
        )
        if (state, self._free[info.name], gpus) != (info.state, info.n_free, info.gpus):
            machine.info = replace(info, state=state, n_free=self._free[info.name], gpus=gpus)
        return machine.info

    def _do(self, action: Action) -> str:
        """Why it cannot be done; empty when it is."""
        if isinstance(action, Stop):
            return self._stop(action.key)
        if isinstance(action, Repartition):
            return self._cut(action)
        if action.key in self.running:
            return f"job {action.key.job_id} already runs"
        if action.key not in self.queue:
            return f"job {action.key.job_id} is not in the queue"
        number, request = self.queue[action.key]
        why = self._why_not(request, action.shares)
        if not why:
            self._begin(number, request, action.shares)
        return why

    def _stop(self, key: JobKey) -> str:
        if key not in self.running:
            return f"job {key.job_id} does not run"
        number, job = self.running[key]
        if job.request.n_gpus == 0:
            whole_s = job.request.run_s[self._column(job.shares[0])]
            self.left[key] = max(0.0, self.left.get(key, 1.0) - (self.time_s - job.start_s) / whole_s)
        self._release(job)
        self._send_back(key, number, job)
        return ""

    def _cut(self, action: Repartition) -> str:
        machine = self.machine_of.get(action.node)
        if machine is None or not 0 <= action.gpu < len(machine.cards):
            return f"no card {action.gpu} on node {action.node}"
        card = machine.cards[action.gpu]
        check_layout(card.model, action.layout)
        wanted = dict(action.layout)
        for start, profile in card.layout:
            if start in card.busy and wanted.get(start) != profile:
                return f"{profile} at memory slice {start} of {action.node}/{action.gpu} is busy"
        before = dict(card.layout)
        gone = [profile for start, profile in card.layout if wanted.get(start) != profile]
        ready_s = self.time_s + sum(card.model.destroy_s[card.model.profile(profile).compute] for profile in gone)
        for start, profile in action.layout:
            if before.get(start) != profile:
                ready_s += card.model.create_s[card.model.profile(profile).compute]
                card.ready_s[start] = ready_s
                heapq.heappush(self._ready, ready_s)
        card.layout = tuple(sorted(action.layout))
        return ""

    def _column(self, share: Share) -> int:
        card = self.machine_of[share.node].cards[share.gpu]
        return SLICE_SIZES.index(card.model.profile(dict(card.layout)[share.start]).compute)

    def _why_not(self, request: JobRequest, shares: tuple[Share, ...]) -> str:
        if sum(share.n_gpus for share in shares) != request.n_gpus or not shares:
            return f"job {request.key.job_id} needs {request.n_gpus} whole GPUs or one slice"
        for share in shares:
            machine = self.machine_of.get(share.node)
            if machine is None or machine.n_away:
                return f"node {share.node} takes no jobs"
            if share.n_gpus:
                if self._free[share.node] < share.n_gpus:
                    return f"node {share.node} has {self._free[share.node]} free GPUs, not {share.n_gpus}"
                continue
            card = machine.cards[share.gpu] if 0 <= share.gpu < len(machine.cards) else None
            if card is None or share.start not in dict(card.layout):
                return f"no instance at memory slice {share.start} of {share.node}/{share.gpu}"
            if share.start in card.busy or card.ready_s.get(share.start, 0.0) > self.time_s + self._instant_s:
                return f"the instance at memory slice {share.start} of {share.node}/{share.gpu} is not free"
            if math.isinf(request.run_s[self._column(share)]) or request.memory_gb > self._memory_gb(share):
                return f"job {request.key.job_id} does not fit that slice"
        return ""

    def _memory_gb(self, share: Share) -> float:
        card = self.machine_of[share.node].cards[share.gpu]
        return card.model.profile(dict(card.layout)[share.start]).memory_gb

    def _begin(self, number: int, request: JobRequest, shares: tuple[Share, ...]) -> None:
        key = request.key
        del self.queue[key]
        for share in shares:
            if share.n_gpus:
                self._free[share.node] -= share.n_gpus
            else:
                self.machine_of[share.node].cards[share.gpu].busy[share.start] = key
        if request.n_gpus:
            slowest = min(self.machine_of[share.node].info.speed for share in shares)
            run_s = min(self.true_s[key] / slowest, request.limit_s)
        else:
            run_s = self.left.get(key, 1.0) * request.run_s[self._column(shares[0])]
        self.running[key] = (number, RunningJob(request, self.time_s, shares))
        heapq.heappush(self._ends, (self.time_s + run_s, number, key))

    def _schedule(self) -> None:
        """First come, first served; the first that does not fit blocks the rest."""
        for number, request in sorted(self.queue.values(), key=lambda item: item[0]):
            shares = self._first_room(request)
            if shares is None:
                return
            self._begin(number, request, shares)

    def _first_room(self, request: JobRequest) -> tuple[Share, ...] | None:
        wanted = {one.strip().lower() for one in request.gpu_model.split("|")} - {""}
        need = request.n_gpus
        spread: list[Share] = []
        for machine in self.machines:
            model = machine.info.gpu_model.lower()
            if machine.n_away or (wanted and model and model not in wanted):
                continue
            if need == 0:
                for gpu, card in enumerate(machine.cards):
                    for start, _ in card.layout:
                        share = Share(machine.info.name, 0, gpu, start)
                        if not self._why_not(request, (share,)):
                            return (share,)
                continue
            free = self._free[machine.info.name]
            if free >= need:
                return (Share(machine.info.name, need),)
            if free:
                spread.append(Share(machine.info.name, free))
        largest = max(machine.info.n_gpus for machine in self.machines)
        if need <= largest or sum(share.n_gpus for share in spread) < need or need == 0:
            return None
        taken: list[Share] = []
        for share in spread:
            if need > 0:
                taken.append(Share(share.node, min(need, share.n_gpus)))
                need -= taken[-1].n_gpus
        return tuple(taken)


def _card(gpu: MigGpu) -> Card:
    return Card(gpu_model(gpu.model), tuple(Placement(one.start, one.profile) for one in gpu.instances))
