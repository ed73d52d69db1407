"""What a journal says about jobs: which came, started and ended when, as a trace for training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from smartmig.control.books import Books, Finished, begun_jobs
from smartmig.control.journal import JournalReader, Record, States
from smartmig.control.wire import plan_from_json
from smartmig.errors import InputError
from smartmig.types import ClusterState

KINDS = ("boot", "state", "decision", "outcome")
"""of records that are read"""


@dataclass(eq=False)
class ClusterPast:
    """Of one cluster, as the sessions that watched it tell it."""

    sessions: list[int] = field(default_factory=list)
    """1 is the first of the journal"""
    finished: list[Finished] = field(default_factory=list)
    """jobs that were seen to run and end"""
    books: Books = field(default_factory=Books)


def is_simulated(adapter: str) -> bool:
    """Such a cluster begins anew with every session, and so do its clock and its job ids."""
    return adapter.startswith("simulated")


def simulated_sessions(journal: JournalReader) -> frozenset[str]:
    """Sessions of which a real cluster needs to know nothing."""
    boots = journal.records(kinds=("boot",))
    return frozenset(record.session for record in boots if is_simulated(str(record.body.get("adapter", ""))))


def histories(records: Iterable[Record]) -> list[ClusterPast]:
    """The past of every cluster, that of the newest session last: a simulated one has a single session, all others are
    one cluster. Raises `InputError` for a journal that does not begin with a session."""
    states, real = States(), ClusterPast()
    pasts: list[ClusterPast] = []
    state: ClusterState | None = None
    handed: dict[int, ClusterState] = {}
    n_sessions = 0
    for record in records:
        body = record.body
        if record.kind == "boot":
            n_sessions += 1
            past = ClusterPast() if is_simulated(str(body.get("adapter", ""))) else real
            past.sessions.append(n_sessions)
            past.books.look_away()
            pasts = [*(one for one in pasts if one is not past), past]
            state, handed = None, {}
        elif not pasts:
            raise InputError(f"journal record {record.seq}: a {record.kind} without a session before it")
        elif record.kind == "state":
            state = states.read(record)
            pasts[-1].finished += pasts[-1].books.look(state)
        elif record.kind == "decision" and body.get("acts") and state is not None:
            handed[body["n"]] = state
        elif record.kind == "outcome" and body["n"] in handed:
            accepted = plan_from_json([one["action"] for one in body["outcomes"] if one["done"]])
            pasts[-1].books.began(begun_jobs(handed.pop(body["n"]), accepted))
    return pasts
