"""One decision: what a policy does about a cluster at one moment. Same rules, same compiled code as in simulation.

`decide` is a function of its arguments; a `Decider` is the same function with its conversions kept at hand, which is
what a loop wants. Neither reads a clock or a file, nor draws a random number that is not in `seed` and `memory`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from smartmig.control.gang import GangDecider
from smartmig.control.memory import Memory, begun, remembered, started
from smartmig.control.mig import MigDecider, MigPolicy
from smartmig.errors import InputError
from smartmig.sim.gang.world import ALL, GangPolicy
from smartmig.types import ClusterState, Floats, JobKey, Plan

GANG, MIG = "gang", "mig"
"""whole GPUs, and slices of cards"""


@dataclass(frozen=True)
class LivePolicy:
    """Who decides: over whole GPUs, over MIG cards, or over both kinds of a mixed cluster."""

    gang: GangPolicy | None = None
    mig: MigPolicy | None = None

    def __post_init__(self) -> None:
        if self.gang is None and self.mig is None:
            raise InputError("a live policy needs rules for whole GPUs, for MIG cards, or for both")


@dataclass(frozen=True, eq=False)
class Decision:
    plan: Plan
    memory: Memory
    """for the next decision"""
    wake_s: float = math.inf
    """ask again then though nothing happens"""
    inputs: Mapping[str, Floats] = field(default_factory=dict)
    """what learned policies read, by world, for the guard"""


class Decider:
    """Decides over and over."""

    def __init__(self, policy: LivePolicy, seed: int = 0) -> None:
        self.policy = policy
        self.gang = GangDecider(policy.gang) if policy.gang is not None else None
        self.mig = MigDecider(policy.mig, seed) if policy.mig is not None else None
        self._counts = policy.mig is not None or (policy.gang is not None and policy.gang.watches_arrivals)

    def decide(self, state: ClusterState, memory: Memory, most_starts: int = ALL) -> Decision:
        """`most_starts`: of whole-GPU jobs; with as many, it asks for the next decision at once."""
        memory = begun(memory, state)
        plan: Plan = ()
        wake_s = math.inf
        inputs: dict[str, Floats] = {}
        if self.gang is not None:
            starts, memory, wake_s, outline = self.gang.decide(state, memory, most_starts)
            plan = tuple(starts)
            if outline is not None:
                inputs[GANG] = outline
        if self.mig is not None:
            n_events = remembered(memory, state).n_events
            actions, memory, mig_wake_s, features = self.mig.decide(state, memory, n_events)
            plan = (*actions, *plan)
            wake_s = min(wake_s, mig_wake_s)
            if features is not None:
                inputs[MIG] = features
        if self._counts:
            memory = remembered(memory, state)
        return Decision(plan, memory, wake_s, inputs)

    def handed_over(self) -> None:
        """The last plan is on its way: get ready for what comes next, while nobody waits."""
        if self.gang is not None:
            self.gang.handed_over()

    def applied(self, state: ClusterState, memory: Memory, keys: Collection[JobKey]) -> Memory:
        """What to remember when these starts of a decision were carried out."""
        half_life_s = self.policy.gang.selection.usage_half_life_s if self.policy.gang is not None else 0.0
        return started(memory, state, keys, half_life_s) if half_life_s > 0 and keys else memory


def decide(state: ClusterState, policy: LivePolicy, memory: Memory | None = None, seed: int = 0) -> Decision:
    return Decider(policy, seed).decide(state, memory or Memory())
