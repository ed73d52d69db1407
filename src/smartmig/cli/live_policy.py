"""Live policies from their names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from smartmig.cli.options import rule_spec
from smartmig.control.decide import GANG, MIG, LivePolicy
from smartmig.control.mig import MigPolicy
from smartmig.errors import InputError
from smartmig.scenario import RuleSpec, allocation_rule, placement_rule, repartition_rule, selection_rule
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.types import ClusterState

Selection = Annotated[str, typer.Option(help="Whole GPUs: which queued job is next.")]
Allocation = Annotated[str, typer.Option(help="Whole GPUs: which nodes it gets.")]
BackfillKind = Annotated[Backfill, typer.Option(help="Whole GPUs: what happens when the next job does not fit.")]
Placement = Annotated[str, typer.Option(help="MIG: which slice a job gets.")]
Repartition = Annotated[str, typer.Option(help="MIG: how cards are cut.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the policy's own draws.")]


@dataclass(frozen=True)
class PolicyNames:
    """A live policy as one writes it; what a journal remembers of it."""

    selection: RuleSpec = "fcfs"
    allocation: RuleSpec = "best-fit"
    backfill: str = "easy"
    placement: RuleSpec = "shortest-work"
    repartition: RuleSpec = "static"

    @classmethod
    def parse(
        cls, selection: str, allocation: str, backfill: Backfill, placement: str, repartition: str
    ) -> PolicyNames:
        return cls(
            rule_spec(selection, "--selection"),
            rule_spec(allocation, "--allocation"),
            backfill.value,
            rule_spec(placement, "--placement"),
            rule_spec(repartition, "--repartition"),
        )

    def policy(self, worlds: Collection[str]) -> LivePolicy:
        """Raises `InputError` for a rule that nobody knows or that cannot decide live."""
        gang = mig = None
        if GANG in worlds:
            rules = selection_rule(self.selection), allocation_rule(self.allocation)
            gang = GangPolicy(*rules, Backfill(self.backfill))
        if MIG in worlds:
            mig = MigPolicy(placement_rule(self.placement), repartition_rule(self.repartition))
        return LivePolicy(gang, mig)


FALLBACK = PolicyNames("fcfs", "first-available", "easy", "edf-most-packed", "static")
"""Decides when the guard does not trust the policy, and stands for "as usual" in estimates. It backfills: a first job
that waits for a drained node must not stop all others."""

OLD_FALLBACK = replace(FALLBACK, backfill="none")
"""of recorded sessions that do not name theirs"""


def worlds_of(state: ClusterState) -> tuple[str, ...]:
    """Which kinds of GPUs a cluster has."""
    worlds = [GANG] if any(node.n_gpus > 0 for node in state.nodes) else []
    worlds += [MIG] if any(node.gpus for node in state.nodes) else []
    if not worlds:
        raise InputError("the cluster has no GPUs: no node with n_gpus above 0 or with MIG cards")
    return tuple(worlds)
