"""Cuts a MIG card behind Slurm's count-only resource: only what is free goes, and what fails is put back."""

from __future__ import annotations

import subprocess
import time

from smartmig.adapters.slurm import cards
from smartmig.adapters.slurm.calls import SlurmWrites
from smartmig.adapters.slurm.gres import Gres, by_type, write_gres
from smartmig.adapters.slurm.records import NodeRecord
from smartmig.types import Layout, Repartition

ROLL_BACK_S = 2.0


def recut(
    writes: SlurmWrites, action: Repartition, mig: cards.MigKnobs, command: tuple[str, ...], timeout_s: float
) -> str:
    """Take the vanishing slices from Slurm, cut, then offer the new ones; why it was not done, empty if it was."""
    end_s = time.monotonic() + timeout_s
    old = writes.node(action.node, timeout_s)
    found = cards.layouts_of(old, mig)
    if isinstance(found, str):
        return found
    model, layouts = found
    if not 0 <= action.gpu < len(layouts):
        return f"node {action.node} has {len(layouts)} MIG cards, none with the number {action.gpu}"
    kept = tuple(placement for placement in layouts[action.gpu] if placement in action.layout)
    staying = (*layouts[: action.gpu], kept, *layouts[action.gpu + 1 :])
    target = (*layouts[: action.gpu], action.layout, *layouts[action.gpu + 1 :])
    why = _in_use(old, staying)
    if why:
        return why
    _offer(writes, old, model, staying, timeout_s)
    # Slurm does not refuse to take away what is in use, and a job may have come in between.
    now = writes.node(action.node, max(end_s - time.monotonic(), 0.1))
    why = _in_use(now, staying) or _cut(command, action, max(end_s - time.monotonic(), 0.1))
    if not why:
        _offer(writes, old, model, target, max(end_s - time.monotonic(), 0.1))
        now = writes.node(action.node, max(end_s - time.monotonic(), 0.1))
        wanted = dict(cards.counts_of(target))
        if {kind: count for kind, count in by_type(now.has, "mig").items() if count} == wanted:
            return ""
        why = f"node {action.node} has {now.gres} after it was cut into {wanted}"
    _offer(writes, old, model, layouts, max(end_s - time.monotonic(), ROLL_BACK_S))
    return f"{why}; the old cut is back"


def _cut(command: tuple[str, ...], action: Repartition, timeout_s: float) -> str:
    """The card itself, where a command for that is given."""
    if not command:
        return ""
    layout = ",".join(f"{placement.start}:{placement.profile}" for placement in action.layout)
    try:
        done = subprocess.run(
            [*command, action.node, str(action.gpu), layout],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[:200]}" if done.returncode else ""


def _offer(writes: SlurmWrites, old: NodeRecord, model: str, layouts: tuple[Layout, ...], timeout_s: float) -> None:
    counts = {gres: count for gres, count in old.has.items() if gres.name != "mig"}
    counts |= {Gres("mig", kind): count for kind, count in cards.counts_of(layouts).items()}
    writes.set_node(old.name, write_gres(counts), cards.write_comment(model, layouts), timeout_s)


def _in_use(node: NodeRecord, layouts: tuple[Layout, ...]) -> str:
    """Why these layouts are too small for what runs there."""
    counts = cards.counts_of(layouts)
    for kind, used in by_type(node.used, "mig").items():
        if used > counts.get(kind, 0):
            return f"node {node.name}: {used} slices of {kind} are in use"
    return ""
