"""Cuts a MIG card behind Slurm's count-only resource: only what is free goes, and what fails is put right."""

from __future__ import annotations

import subprocess
import time

from smartmig.adapters.slurm import cards
from smartmig.adapters.slurm.calls import SlurmWrites
from smartmig.adapters.slurm.gres import Gres, by_type, write_gres
from smartmig.adapters.slurm.records import NodeRecord
from smartmig.errors import AdapterError
from smartmig.types import Layout, Repartition

PUT_RIGHT_S = 2.0
"""kept of the time for what must be done if something fails"""
PAUSE_S = 0.1


def recut(
    writes: SlurmWrites, action: Repartition, mig: cards.MigKnobs, command: tuple[str, ...], timeout_s: float
) -> str:
    """Take the vanishing slices from Slurm, cut, then offer the new ones; why it was not done, empty if it was.

    Whatever fails, Slurm offers what the card is then; or, if Slurm stays silent, nothing that the card does not have.
    """
    end_s = time.monotonic() + timeout_s
    work_end_s = end_s - min(PUT_RIGHT_S, timeout_s / 2)
    old = writes.node(action.node, _left_s(work_end_s))
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
    there = layouts
    try:
        _offer(writes, old, model, staying, _left_s(work_end_s))
        # Slurm does not refuse to take away what is in use, and a job may have come in between.
        why = _in_use(writes.node(action.node, _left_s(work_end_s)), staying)
        why = why or _cut(command, action, _left_s(work_end_s))
        if not why:
            there = target
            _offer(writes, old, model, target, _left_s(work_end_s))
            why = _differs(writes.node(action.node, _left_s(work_end_s)), target)
    except AdapterError as error:
        why = str(error)
    if not why:
        return ""
    still = _put_right(writes, old, model, there, end_s)
    if still:
        return f"{why}; Slurm offers fewer slices of node {action.node} than there are: {still}"
    return "" if there is target else f"{why}; the old cut is back"


def _put_right(writes: SlurmWrites, old: NodeRecord, model: str, there: tuple[Layout, ...], end_s: float) -> str:
    """Offer what is there until Slurm says that it does; why it does not, empty if it does."""
    while True:
        try:
            _offer(writes, old, model, there, _left_s(end_s))
            why = _differs(writes.node(old.name, _left_s(end_s)), there)
        except AdapterError as error:
            why = str(error)
        if not why or time.monotonic() + PAUSE_S > end_s:
            return why
        time.sleep(PAUSE_S)


def _differs(node: NodeRecord, layouts: tuple[Layout, ...]) -> str:
    wanted = dict(cards.counts_of(layouts))
    if {kind: count for kind, count in by_type(node.has, "mig").items() if count} == wanted:
        return ""
    return f"node {node.name} has {node.gres} after it was cut into {wanted}"


def _left_s(end_s: float) -> float:
    return max(end_s - time.monotonic(), PAUSE_S)


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
