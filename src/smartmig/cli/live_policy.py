"""What the live verbs share: where things lie, and policies from their names."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.cli.options import rule_spec
from smartmig.control.decide import LivePolicy
from smartmig.control.guard import Ranges
from smartmig.control.mig import MigPolicy
from smartmig.errors import InputError, MissingPackage
from smartmig.policy.placement.learned import Learned
from smartmig.policy.policy_file import JOINT, PRICES, SHIPPED, read_policy
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.scenario import RuleSpec, allocation_rule, placement_rule, repartition_rule, selection_rule
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.types import ClusterState

GANG, MIG = "gang", "mig"

Selection = Annotated[str, typer.Option(help="Whole GPUs: which queued job is next.")]
Allocation = Annotated[str, typer.Option(help="Whole GPUs: which nodes it gets.")]
BackfillKind = Annotated[Backfill, typer.Option(help="Whole GPUs: what happens when the next job does not fit.")]
Placement = Annotated[str, typer.Option(help="MIG: which slice a job gets.")]
Repartition = Annotated[str, typer.Option(help="MIG: how cards are cut.")]
JournalPlace = Annotated[str, typer.Option(help="SQLite file or postgresql:// URL. Default: journal.db at home.")]
KillFile = Annotated[str, typer.Option(help="The kill switch's file. Default: kill at home.")]


def home() -> Path:
    """Where a controller keeps its things: $SMARTMIG_HOME, or the user's state folder."""
    if given := os.environ.get("SMARTMIG_HOME"):
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "smartmig"


def journal_place(given: str) -> str:
    return given or os.environ.get("SMARTMIG_JOURNAL", "") or str(home() / "journal.db")


def kill_place(given: str) -> Path:
    return Path(given) if given else home() / "kill"


def needs(what: str, *packages: str) -> None:
    """Raises `MissingPackage` for the first that is not installed."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise MissingPackage(what, "live", package)


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


FALLBACK = PolicyNames("fcfs", "first-available", "none", "edf-most-packed", "static")
"""Decides when the guard does not trust the policy, and stands for "as usual" in estimates."""


def worlds_of(state: ClusterState) -> tuple[str, ...]:
    """Which kinds of GPUs a cluster has."""
    worlds = [GANG] if any(node.n_gpus > 0 for node in state.nodes) else []
    worlds += [MIG] if any(node.gpus for node in state.nodes) else []
    if not worlds:
        raise InputError("the cluster has no GPUs: no node with n_gpus above 0 or with MIG cards")
    return tuple(worlds)


def trained_ranges(policy: LivePolicy) -> Ranges | None:
    """What the policy's network saw in training, where its file says so."""
    if policy.mig is None:
        return None
    rule: Any = policy.mig.repartition
    if isinstance(rule, MeanField):
        name = {"": "mean-field-drain", JOINT: "joint-drain"}.get(rule.policy_file)
        ranges = read_policy(SHIPPED / f"{name}.npz" if name else Path(rule.policy_file)).ranges
        return (ranges[0], ranges[1]) if ranges is not None else None
    rule = policy.mig.placement
    if isinstance(rule, Learned):
        name = {"": "prices-drain", JOINT: "joint-drain"}.get(rule.policy_file, f"prices-{rule.policy_file}")
        shipped = SHIPPED / f"{name}.npz"
        ranges = read_policy(shipped if shipped.is_file() else Path(rule.policy_file), PRICES).ranges
        return (ranges[0], ranges[1]) if ranges is not None else None
    return None
