"""Policy and guard together: a state goes in, what may be done comes out. Shared by the loop and by replay.

A function of its inputs and of its own past, which is all in `Memory` and `GuardMemory`: the same records give the same
plans.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from smartmig.control.decide import Decider, LivePolicy
from smartmig.control.guard import GuardMemory, GuardRules, Ranges, Refusal, Verdict, allowed, check
from smartmig.control.memory import Memory
from smartmig.control.switch import Mode
from smartmig.control.wire import action_to_json, plan_to_json
from smartmig.errors import SmartmigError
from smartmig.sim.gang.world import ALL
from smartmig.types import SLICE_SIZES, ClusterState, JobKey, JobRequest, Plan

FAILURES = (SmartmigError, ArithmeticError, LookupError, ValueError, TypeError)
"""What a rule that meets what it was not made for may raise."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One decision and what the guard made of it."""

    wanted: Plan
    """by the policy"""
    plan: Plan
    """that may be carried out"""
    refused: tuple[Refusal, ...]
    fallback: str
    """why the plain rule decided; empty = the policy did"""
    wake_s: float
    drift_checked: bool
    """whether the policy's input was held against what it was trained on"""


class Pilot:
    """Decides and judges, over and over."""

    def __init__(
        self,
        policy: LivePolicy,
        fallback: LivePolicy,
        rules: GuardRules,
        seed: int = 0,
        memory: Memory | None = None,
        ranges: Ranges = MappingProxyType({}),
    ) -> None:
        self.decider = Decider(policy, seed)
        self.fallback = Decider(fallback, seed)
        self.rules = rules
        self.ranges = ranges
        self.memory = memory or Memory()
        self.guard_memory = GuardMemory()

    def warm_up(self, state: ClusterState) -> None:
        """Decide about made-up jobs on this cluster, and about those that are there, and forget it: what is compiled,
        loaded or converted at first use takes up to seconds, which no real job should wait for."""
        whole = JobRequest(JobKey("0", state.time_s), limit_s=60.0)
        piece = JobRequest(JobKey("1", state.time_s), 0, 60.0, run_s=(60.0,) * len(SLICE_SIZES))
        made_up = replace(state, queued=(whole, piece), running=())
        for decider in (self.decider, self.fallback):
            for moment in (made_up, state):
                decision = decider.decide(moment, Memory())
                check(decision.plan, moment, GuardMemory(), self.rules, decision.inputs, self.ranges)

    def decide(self, state: ClusterState, most_starts: int = ALL) -> Judged:
        """`most_starts`: of whole-GPU jobs; with as many, it asks for the next decision at once."""
        memory = self.memory
        judged = self._judge(state, memory, most_starts)
        if most_starts != ALL and (judged.refused or judged.fallback):
            # What the guard refuses would stand before all others for ever; and who starves may come next.
            judged = self._judge(state, memory, ALL)
        return judged

    def _judge(self, state: ClusterState, memory: Memory, most_starts: int) -> Judged:
        wanted: Plan = ()
        wake_s = float("inf")
        checked = False
        try:
            decision = self.decider.decide(state, memory, most_starts)
            self.memory = decision.memory
            wanted, wake_s = decision.plan, decision.wake_s
            checked = any(world in self.ranges for world in decision.inputs)
            verdict = check(wanted, state, self.guard_memory, self.rules, decision.inputs, self.ranges)
        except FAILURES as error:
            verdict = Verdict((), (), f"the policy failed: {type(error).__name__}: {error}")
        if not verdict.fallback:
            return Judged(wanted, verdict.plan, verdict.refused, "", wake_s, checked)
        # Cuts that cards would be taken to step by step are part of the plan that is not to be.
        self.memory = replace(self.memory, targets=memory.targets)
        why = verdict.fallback
        try:
            plain = self.fallback.decide(state, Memory(), most_starts)
        except FAILURES as error:
            why += f"; the plain rule failed as well: {type(error).__name__}: {error}"
            return Judged(wanted, (), verdict.refused, why, wake_s, checked)
        second = check(plain.plan, state, self.guard_memory, self.rules)
        return Judged(wanted, second.plan, (*verdict.refused, *second.refused), why, wake_s, checked)

    def handed_over(self, state: ClusterState, plan: Plan) -> None:
        """The plan goes to the cluster now."""
        self.guard_memory = allowed(self.guard_memory, plan, state)
        self.decider.handed_over()

    def carried_out(self, state: ClusterState, keys: Collection[JobKey]) -> None:
        """These starts, decided about that state, were accepted."""
        self.memory = self.decider.applied(state, self.memory, keys)


def decision_body(judged: Judged, mode: Mode, number: int, took_s: float, acts: bool) -> dict[str, Any]:
    """A decision as the journal keeps it."""
    plan = plan_to_json(judged.plan)
    body: dict[str, Any] = {
        "n": number,
        "mode": mode.value,
        "acts": acts,
        "wanted": plan if judged.wanted == judged.plan else plan_to_json(judged.wanted),
        "plan": plan,
        "refused": [
            {"action": action_to_json(one.action) if one.action is not None else None, "why": one.why}
            for one in judged.refused
        ],
        "took_s": took_s,
    }
    if judged.fallback:
        body["fallback"] = judged.fallback
    return body
