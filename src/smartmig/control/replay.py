"""A journal run again: the recorded policy must give the recorded plans; any other shows where it would differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from smartmig.control.guard import GuardMemory, allowed
from smartmig.control.journal import JournalReader, Record, States
from smartmig.control.memory import Memory
from smartmig.control.pilot import Pilot
from smartmig.control.wire import guard_memory_from_json, memory_from_json, plan_from_json, plan_to_json
from smartmig.errors import InputError
from smartmig.sim.gang.world import ALL
from smartmig.types import ClusterState, JobKey, Start

MakePilot = Callable[[dict[str, Any], Memory], Pilot]
"""(body of a boot record, memory to begin with) -> who decides"""


@dataclass
class Replayed:
    """What came of it."""

    n_sessions: int = 0
    n_states: int = 0
    n_decisions: int = 0
    n_same: int = 0
    n_starts_recorded: int = 0
    n_starts_now: int = 0
    n_refused: int = 0
    first_difference: dict[str, Any] | None = None
    modes: dict[str, int] = field(default_factory=dict)

    @property
    def n_different(self) -> int:
        return self.n_decisions - self.n_same


def replay(records: Iterable[Record], make_pilot: MakePilot) -> Replayed:
    """Decide again about every recorded state. Raises `InputError` for a journal that does not begin with a session."""
    report = Replayed()
    states = States()
    pilot: Pilot | None = None
    state: ClusterState | None = None
    handed: dict[int, ClusterState] = {}
    for record in records:
        body = record.body
        if record.kind == "boot":
            pilot = make_pilot(body, memory_from_json(body["memory"]))
            pilot.guard_memory = guard_memory_from_json(body.get("handed_over", {}))
            report.n_sessions += 1
            handed = {}
        elif record.kind == "state":
            state = states.read(record)
            report.n_states += 1
        elif record.kind == "decision":
            if pilot is None or state is None:
                raise InputError(f"journal record {record.seq}: a decision without a session and a state before it")
            _decide(report, pilot, state, record, handed)
        elif record.kind == "outcome" and pilot is not None and body["n"] in handed:
            done = [JobKey(*one["action"]["start"]["key"]) for one in body["outcomes"] if _started(one)]
            pilot.carried_out(handed.pop(body["n"]), done)
    return report


def _started(outcome: dict[str, Any]) -> bool:
    return bool(outcome["done"]) and "start" in outcome["action"]


def _decide(
    report: Replayed, pilot: Pilot, state: ClusterState, record: Record, handed: dict[int, ClusterState]
) -> None:
    body = record.body
    judged = pilot.decide(state, int(body.get("most_starts", ALL)))
    recorded = plan_from_json(body["plan"])
    wanted = plan_from_json(body.get("wanted", body["plan"]))
    same = judged.plan == recorded and judged.wanted == wanted
    report.n_decisions += 1
    report.n_same += same
    report.n_starts_recorded += sum(isinstance(action, Start) for action in recorded)
    report.n_starts_now += sum(isinstance(action, Start) for action in judged.plan)
    report.n_refused += len(judged.refused)
    report.modes[body["mode"]] = report.modes.get(body["mode"], 0) + 1
    if not same and report.first_difference is None:
        report.first_difference = {
            "record": record.seq,
            "time_s": record.time_s,
            "recorded": body["plan"],
            "now": plan_to_json(judged.plan),
        }
    if body.get("acts"):
        # The cluster did what was recorded, whoever decides now.
        pilot.handed_over(state, recorded)
        handed[body["n"]] = state


def handed_over_since(journal: JournalReader, time_s: float, apart: Collection[str] = frozenset()) -> GuardMemory:
    """What the guard would remember had it run on: what was handed to the cluster from then on. Sessions that stand
    `apart` were of other clusters, with clocks of their own."""
    first: int | None = None
    for record in journal.records(kinds=("decision",), newest=True):
        if record.session in apart:
            continue
        if record.time_s < time_s:
            break
        first = record.seq
    begin = None if first is None else journal.whole_state_at(first)
    memory = GuardMemory()
    if first is None or begin is None:
        return memory
    states, state = States(), None
    for record in journal.records(begin - 1, ("state", "decision")):
        if record.kind == "state":
            state = states.read(record)
        elif record.seq >= first and record.body.get("acts") and record.session not in apart and state is not None:
            memory = allowed(memory, plan_from_json(record.body["plan"]), state)
    return memory
