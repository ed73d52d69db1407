"""The plain twin of the whole-GPU engine: ordinary objects, everything looked at, nothing clever.

It says what the simulator means. `kernel.py` must give the same starts, nodes and ends on every cluster, job set and
policy; the rules' plain twins stand in for the compiled ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from smartmig.errors import InputError
from smartmig.hardware.nodes import NodeCluster
from smartmig.policy.gang_plain import PlainGang, PlainNode, PlainUser
from smartmig.sim.gang.run import stuck
from smartmig.sim.gang.world import Backfill, GangPolicy, build_jobs, build_world, kept_backfill, known_jobs
from smartmig.types import Floats, GangJobs, GangRun, GangStretches

Parts = dict[int, int]
"""node -> GPUs of it"""


@dataclass
class Stay:
    """A job on its GPUs, now or by reservation."""

    parts: Parts
    from_s: float
    until_s: float
    """when its limit ends it"""
    end_s: float = math.inf
    """when it truly ends"""


class ReferenceSimulator:
    """One run, event by event."""

    def __init__(self, jobs: GangJobs, cluster: NodeCluster, policy: GangPolicy, predicted_s: Floats | None) -> None:
        if policy.selection.select is not None and policy.backfill is Backfill.conservative:
            raise InputError("conservative backfill needs an order")
        self.jobs, self.policy = jobs, policy
        self.spec = build_jobs(jobs, cluster, policy, predicted_s).spec
        self.world = build_world(cluster, policy)
        known = known_jobs(jobs, policy.selection, predicted_s)
        self.fixed_key = policy.selection.keys(known)
        nodes = [
            PlainNode(index, int(n.n_gpus), int(n.model), int(n.switch), float(n.speed), int(n.n_gpus))
            for index, n in enumerate(self.world.node.view(np.recarray))
        ]
        self.view = PlainGang(
            now_s=0.0,
            nodes=nodes,
            jobs=known,
            queue=[],
            users=[PlainUser() for _ in range(int(known.user.max()) + 1)],
            everyone=PlainUser(),
            mix=[0.0] * (max(node.n_gpus for node in nodes) + 1),
            can_start=self.can_start,
            accepts=lambda job, node: bool(int(self.spec["models"][job]) >> nodes[node].model & 1),
        )
        self.running: dict[int, Stay] = {}
        self.planned: dict[int, Stay] = {}
        """conservative: every queued job that can be planned"""
        self.reserved_s = math.inf
        """EASY: when the job with the reservation can start, and what it leaves of its nodes"""
        self.spare: Parts = {}
        n = len(jobs)
        self.start_s, self.finish_s, self.promised_s = [math.nan] * n, [math.nan] * n, [math.nan] * n
        self.killed, self.n_starts = [False] * n, [0] * n
        self.record: list[tuple[int, int, int, float, float]] = []
        self.n_submitted = self.n_done = self.n_edges = self.n_events = 0

    # ------------------------------------------------------------------------------------------------------- shapes

    def accepted(self, job: int, switch: int | None) -> list[PlainNode]:
        models = int(self.spec["models"][job])
        return [n for n in self.view.nodes if models >> n.model & 1 and (switch is None or n.switch == switch)]

    def place(self, job: int, offered: list[int], from_s: float) -> Parts | None:
        """The nodes the rule gives the job, of what is offered from then on."""
        rule, view = self.policy.allocation, self.view
        view.offered, view.place_s = offered, from_s
        by_switch = dict.fromkeys((node.switch for node in view.nodes), 0)
        for node in view.nodes:
            by_switch[node.switch] += offered[node.index]
        fullest_first: list[int] = sorted(by_switch, key=lambda switch: (by_switch[switch], switch))
        tries: list[tuple[bool, int | None]] = []
        if not self.spec["one_node"][job] and rule.by_switch:
            tries += [(False, switch) for switch in fullest_first]
        tries += [(False, None)]
        if rule.spread:
            tries += [(True, switch) for switch in fullest_first] + [(True, None)]
        for spread, switch in tries:
            parts = self.spread(job, offered, switch) if spread else self.shape(job, offered, switch)
            if parts is not None:
                return parts
        return None

    def best(self, job: int, share: int, nodes: Iterable[PlainNode]) -> PlainNode | None:
        """The node the rule likes best for a share of the job."""
        rule = self.policy.allocation
        return min(nodes, key=lambda node: (rule.plain_score(self.view, job, node, share), node.index), default=None)

    def shape(self, job: int, offered: list[int], switch: int | None) -> Parts | None:
        """One node; or whole nodes, largest first, and a rest on one more."""
        nodes = self.accepted(job, switch)
        parts: Parts = {}
        need = int(self.spec["n_gpus"][job])
        while need > 0:
            left = [node for node in nodes if node.index not in parts]
            whole = [n for n in left if offered[n.index] == n.n_gpus <= need and not self.spec["one_node"][job]]
            if whole:
                share = max(node.n_gpus for node in whole)
                chosen = self.best(job, share, [node for node in whole if node.n_gpus == share])
            else:
                share = need
                chosen = self.best(job, share, [node for node in left if offered[node.index] >= need])
            if chosen is None:
                return None
            parts[chosen.index] = share
            need -= share
        return parts

    def spread(self, job: int, offered: list[int], switch: int | None) -> Parts | None:
        """Any GPUs, as many from each node as it has."""
        nodes = [node for node in self.accepted(job, switch) if offered[node.index] > 0]
        parts: Parts = {}
        need = int(self.spec["n_gpus"][job])
        while need > 0:
            left = [node for node in nodes if node.index not in parts]
            if not left:
                return None
            share = min(need, max(offered[node.index] for node in left))
            chosen = self.best(job, share, [node for node in left if min(need, offered[node.index]) == share])
            assert chosen is not None
            parts[chosen.index] = share
            need -= share
        return parts

    # ------------------------------------------------------------------------------------------------ starts and ends

    def start(self, job: int, parts: Parts) -> None:
        now_s = self.view.now_s
        run_s = float(self.jobs.run_s[job]) / min(self.view.nodes[node].speed for node in parts)
        limit_s = float(self.jobs.limit_s[job])
        self.running[job] = Stay(parts, now_s, now_s + limit_s, now_s + min(run_s, limit_s))
        self.killed[job] = run_s > limit_s
        self.start_s[job] = now_s
        self.n_starts[job] += 1
        self.view.queue.remove(job)
        for node, n_gpus in parts.items():
            self.view.nodes[node].free -= n_gpus
            self.view.nodes[node].until_s[job] = now_s + limit_s
        self.charge(job, int(self.jobs.n_gpus[job]))

    def stop(self, job: int) -> None:
        stay = self.running.pop(job)
        for node, n_gpus in stay.parts.items():
            self.view.nodes[node].free += n_gpus
            del self.view.nodes[node].until_s[job]
            self.record.append((job, node, n_gpus, stay.from_s, self.view.now_s))
        self.charge(job, -int(self.jobs.n_gpus[job]))

    def charge(self, job: int, n_gpus: int) -> None:
        half_life_s = self.policy.selection.usage_half_life_s
        if half_life_s > 0:
            for user in (self.view.users[self.view.jobs.user[job]], self.view.everyone):
                user.used_gpu_s = user.usage(self.view.now_s, half_life_s)
                user.since_s = self.view.now_s
                user.n_gpus += n_gpus

    # ------------------------------------------------------------------------------------------------------ decisions

    def ordered(self) -> list[int]:
        """The queue in the rule's order."""
        rule = self.policy.selection
        if rule.key is not None:
            return sorted(self.view.queue, key=lambda job: (rule.plain_key(self.view, job), job))
        return sorted(self.view.queue, key=lambda job: (float(self.fixed_key[job]), job))

    def free(self) -> list[int]:
        return [node.free if node.n_away == 0 else 0 for node in self.view.nodes]

    def offered_now(self, job: int) -> list[int]:
        """What the job may have now; a job that would still run then leaves the reserved GPUs alone."""
        free = self.free()
        if self.view.reserved is None or self.view.now_s + float(self.jobs.limit_s[job]) <= self.reserved_s:
            return free
        return [min(n_gpus, self.spare.get(node, n_gpus)) for node, n_gpus in enumerate(free)]

    def can_start(self, job: int) -> bool:
        return self.place(job, self.offered_now(job), self.view.now_s) is not None

    def next_job(self) -> int | None:
        """What the rule wants to start: its first job; beside a reservation, the first that can start."""
        if self.policy.selection.select is not None:
            return self.policy.selection.plain_select(self.view)
        order = self.ordered()
        return order[0] if self.view.reserved is None else next((job for job in order if self.can_start(job)), None)

    def start_some(self) -> None:
        self.view.reserved = None
        while self.view.queue and any(self.free()):
            job = self.next_job()
            if job is None:
                break
            parts = self.place(job, self.offered_now(job), self.view.now_s)
            if parts is not None:
                if self.view.reserved is not None and self.view.now_s + float(self.jobs.limit_s[job]) > self.reserved_s:
                    for node in parts:
                        if node in self.spare:
                            self.spare[node] -= parts[node]
                self.start(job, parts)
            elif kept_backfill(self.policy) is Backfill.easy and self.view.reserved is None:
                self.reserve(job)
            else:
                break
        self.view.reserved = None

    def reserve(self, job: int) -> None:
        """EASY: the first time and place the job can have if everyone runs to the limit."""
        self.view.reserved, self.reserved_s, self.spare = job, math.inf, {}
        self.view.reserved_s = math.inf
        for until_s in sorted({stay.until_s for stay in self.running.values()} - {math.inf}):
            then = self.free()
            for stay in self.running.values():
                for node, n_gpus in stay.parts.items():
                    if stay.until_s <= until_s and self.view.nodes[node].n_away == 0:
                        then[node] += n_gpus
            parts = self.place(job, then, until_s)
            if parts is not None:
                self.reserved_s = self.view.reserved_s = until_s
                self.spare = {node: then[node] - n_gpus for node, n_gpus in parts.items()}
                if math.isnan(self.promised_s[job]):
                    self.promised_s[job] = until_s
                break

    def free_for(self, from_s: float, to_s: float, stays: list[Stay]) -> list[int]:
        """GPUs of each node that no stay needs at any time of the window."""
        starts = [from_s] + [stay.from_s for stay in stays if from_s < stay.from_s < to_s]
        least = [node.n_gpus if node.n_away == 0 else 0 for node in self.view.nodes]
        for moment in starts:
            then = [node.n_gpus if node.n_away == 0 else 0 for node in self.view.nodes]
            for stay in stays:
                if stay.from_s <= moment < stay.until_s:
                    for node, n_gpus in stay.parts.items():
                        then[node] = max(0, then[node] - n_gpus)
            least = [min(a, b) for a, b in zip(least, then, strict=True)]
        return least

    def start_reserved(self) -> None:
        """Conservative: reservations move up where they can, in the rule's order; those due now start."""
        now_s = self.view.now_s
        for job in self.ordered():
            limit_s = float(self.jobs.limit_s[job])
            others = [stay for other, stay in (*self.running.items(), *self.planned.items()) if other != job]
            before_s = self.planned[job].from_s if job in self.planned else math.inf
            for from_s in sorted({now_s} | {stay.until_s for stay in others if stay.until_s > now_s}):
                if from_s >= before_s:
                    break
                parts = self.place(job, self.free_for(from_s, from_s + limit_s, others), from_s)
                if parts is not None:
                    self.planned[job] = Stay(parts, from_s, from_s + limit_s)
                    if math.isnan(self.promised_s[job]):
                        self.promised_s[job] = from_s
                    break
            if job in self.planned and self.planned[job].from_s <= now_s:
                self.start(job, self.planned.pop(job).parts)

    # --------------------------------------------------------------------------------------------------------- events

    def next_event_s(self) -> float:
        times = [stay.end_s for stay in self.running.values()] + [stay.from_s for stay in self.planned.values()]
        times += [float(time_s) for time_s in self.world.edge["time_s"][self.n_edges : self.n_edges + 1]]
        times += [float(time_s) for time_s in self.jobs.submit_s[self.n_submitted : self.n_submitted + 1]]
        return min(times, default=math.inf)

    def apply_event(self) -> None:
        """All that happens at this instant, before the decision pass."""
        now_s = self.view.now_s
        for job in [job for job, stay in self.running.items() if stay.end_s == now_s]:
            self.stop(job)
            self.finish_s[job] = now_s
            self.n_done += 1
        while self.n_edges < self.world.edge.size and self.world.edge["time_s"][self.n_edges] == now_s:
            self.pass_edge(self.world.edge[self.n_edges])
            self.n_edges += 1
        while self.n_submitted < len(self.jobs) and self.jobs.submit_s[self.n_submitted] == now_s:
            job = self.n_submitted
            self.view.queue.append(job)
            self.view.count_urgent(job)
            if self.world.mix_decay > 0:
                self.view.mix = [weight * self.world.mix_decay for weight in self.view.mix]
                self.view.mix[min(int(self.jobs.n_gpus[job]), len(self.view.mix) - 1)] += 1.0
            self.n_submitted += 1
        self.n_events += 1

    def pass_edge(self, edge: np.void) -> None:
        """A node goes or comes back; reservations are made afresh, unless another outage keeps it away all the same."""
        node = self.view.nodes[edge["node"]]
        was_away = node.n_away > 0
        node.n_away += int(edge["change"])
        if was_away != (node.n_away > 0):
            self.planned.clear()
        if edge["kills"]:
            for job in [job for job, stay in self.running.items() if edge["node"] in stay.parts]:
                self.stop(job)
                self.view.queue.append(job)

    def run(self) -> GangRun:
        while self.n_done < len(self.jobs):
            next_s = self.next_event_s()
            if next_s == math.inf:
                raise stuck(self.jobs, np.array(self.finish_s))
            self.view.now_s = next_s
            self.apply_event()
            if self.policy.backfill is Backfill.conservative:
                self.start_reserved()
            else:
                self.start_some()
        job, node, n_gpus, from_s, to_s = zip(*self.record, strict=True)
        return GangRun(
            start_s=np.array(self.start_s),
            finish_s=np.array(self.finish_s),
            promised_s=np.array(self.promised_s),
            killed=np.array(self.killed),
            n_starts=np.array(self.n_starts),
            makespan_s=self.view.now_s,
            n_events=self.n_events,
            stretches=GangStretches(np.array(job), np.array(node), np.array(n_gpus), np.array(from_s), np.array(to_s)),
        )


def simulate_plainly(
    jobs: GangJobs, cluster: NodeCluster, policy: GangPolicy, predicted_s: Floats | None = None
) -> GangRun:
    """`run.simulate`, slowly."""
    return ReferenceSimulator(jobs, cluster, policy, predicted_s).run()
