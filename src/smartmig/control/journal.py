"""What was seen, decided, done: append-only, in order, complete enough to decide everything again.

Kinds of records, by what their `body` (JSON) holds:

    boot       policy, digests of its files, fallback, seed, guard rules and memory that a session begins with
    state      an observation: whole (`full`), or what changed since the last one of the session (`change`)
    decision   mode, what the policy wanted, what the guard let pass and why not the rest, which policy it was
    outcome    what became of a plan handed to the cluster
    memory     a copy of the policy's memory, now and then, for the next session
    audit      who changed what by command or API
    error      what went wrong, in one sentence

Writing never blocks the loop: records wait in memory for a thread that commits whatever has gathered. `sync` waits for
the disk; the loop's acting half calls it before it touches the cluster, so nothing is done that is not written.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from smartmig.control.store import RECORDS, OnlyWriter, open_store, refusing
from smartmig.control.wire import changed_state, difference, recorded_state, state_to_json
from smartmig.errors import AdapterError, SmartmigError
from smartmig.types import ClusterState

KINDS = ("boot", "state", "decision", "outcome", "memory", "audit", "error")

FULL_EVERY = 500
"""A whole state at least once in so many, so that reading need not begin at the beginning."""

MOST_LATE = 100_000
"""Records that wait in memory while the database is away; if more come, some are lost, and a record says so."""

SILENT_S = 20.0
"""A database that takes longer for a few records does not answer."""

SEARCHED = 200_000
"""Records a search for text reads at most: hours of a busy cluster, and a second or so."""


@dataclass(frozen=True)
class Record:
    seq: int
    time_s: float
    session: str
    kind: str
    body: dict[str, Any]


class Journal:
    """A journal being written; `JournalReader` is for looking."""

    def __init__(self, place: str, most_late: int = MOST_LATE, silent_s: float = SILENT_S) -> None:
        self.engine = open_store(place)
        self._most_late, self._silent_s = most_late, silent_s
        try:
            self._only = OnlyWriter(self.engine)
            # With connections of its own: however many look, the writer waits for none of them.
            self.reader = JournalReader(open_store(place))
        except SmartmigError:
            self.engine.dispose()
            raise
        self.session = secrets.token_hex(8)
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._dropped: deque[float] = deque()
        """times of records for which there was no room"""
        self._last: ClusterState | None = None
        self._since_full = 0
        self._written: int | None = 0
        """records of this session that are in the database, as far as we were told; None: look there"""
        self._refused = ""
        """why the last try failed"""
        self._begun_s: float | None = None
        """when the present try began; None: there is none"""
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> str:
        """Why nothing can be written, empty when it can; the loop must not act meanwhile."""
        begun_s = self._begun_s
        silent_s = 0.0 if begun_s is None else time.monotonic() - begun_s
        silence = f"the journal's database has not answered for {silent_s:.0f} s" if silent_s > self._silent_s else ""
        return self._refused or silence

    def append(self, kind: str, time_s: float, body: dict[str, Any]) -> None:
        self._put((kind, time_s, body), time_s)

    def append_state(self, state: ClusterState) -> None:
        """Only the difference is written when that is shorter."""
        self._put(state, state.time_s)

    def _put(self, item: Any, time_s: float) -> None:
        if self._waiting.qsize() > self._most_late:
            self._dropped.append(time_s)
        else:
            self._waiting.put(item)

    def sync(self, timeout_s: float) -> None:
        """Wait until all that was appended is on disk. Raises `AdapterError` when that cannot be."""
        done = threading.Event()
        self._waiting.put(done)
        if not done.wait(timeout_s) or self.failed:
            raise AdapterError(self.failed or f"the journal was not written within {timeout_s:g} s")

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join(30)
        self._only.close()
        self.reader.engine.dispose()
        self.engine.dispose()

    def _write(self) -> None:
        late: list[dict[str, Any]] = []
        going = True
        while going:
            items = [self._waiting.get()]
            while not self._waiting.empty() and len(items) < 1000:
                items.append(self._waiting.get())
            going = None not in items
            late += [self._row(item) for item in items if item is not None and not isinstance(item, threading.Event)]
            late += self._lost()
            self._begun_s = time.monotonic()
            try:
                if late or self._refused:
                    self._only.hold()  # a server that went away has forgotten who writes
                if self._refused:
                    late = self._not_written(late)
                if late:
                    with refusing(self.engine.url), self.engine.begin() as connection:
                        connection.execute(RECORDS.insert(), late)
                self._written = (self._written or 0) + len(late)
                late, self._refused = [], ""
            except Exception as error:  # whatever it is, the loop must hear of it, and somebody must go on writing
                # Tried again with whatever comes next: a server may come back.
                self._refused = str(error) if isinstance(error, AdapterError) else f"the journal fails: {error!r}"
                if len(late) > self._most_late:
                    self._last = None  # what follows must not build on a state that is lost
                    self._written = None
                    lost = {"what": f"{len(late)} records were lost: {error}"}
                    late = [self._row(("error", late[-1]["time_s"], lost))]
            self._begun_s = None
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()

    def _lost(self) -> list[dict[str, Any]]:
        """That there was no room for some records."""
        times = [self._dropped.popleft() for _ in range(len(self._dropped))]
        words = {"what": f"{len(times)} records were lost: the database did not take them in time"}
        return [self._row(("error", times[-1], words))] if times else []

    def _not_written(self, late: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What an earlier try left out: a commit whose answer was lost may have been one all the same."""
        mine = sa.select(sa.func.count()).where(RECORDS.c.session == self.session)
        with refusing(self.engine.url), self.engine.connect() as connection:
            present: int = connection.execute(mine).scalar_one()
        before, self._written = self._written, present
        return late if before is None else late[present - before :]

    def _row(self, item: ClusterState | tuple[str, float, dict[str, Any]]) -> dict[str, Any]:
        kind, time_s = ("state", item.time_s) if isinstance(item, ClusterState) else item[:2]
        try:
            body = self._state_body(item) if isinstance(item, ClusterState) else item[2]
            text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            text.encode()  # half a character is no text to a database
        except Exception as error:
            # Better a record that says so than a journal that stops.
            if isinstance(item, ClusterState):
                self._last = None  # what follows must not build on a state that is lost
            kind, text = "error", json.dumps({"what": f"a record of kind {kind} cannot be written: {error}"})
        return {"time_s": time_s, "session": self.session, "kind": kind, "body": text}

    def _state_body(self, state: ClusterState) -> dict[str, Any]:
        change = None
        if self._last is not None and self._since_full < FULL_EVERY:
            change = difference(self._last, state)
        self._last = state
        self._since_full = 0 if change is None else self._since_full + 1
        return {"full": state_to_json(state)} if change is None else {"change": change}


class JournalReader:
    """Reads a journal, also while it is being written."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    def records(
        self,
        after: int = 0,
        kinds: tuple[str, ...] = (),
        limit: int | None = None,
        newest: bool = False,
        before: int | None = None,
        text: str = "",
    ) -> Iterator[Record]:
        """In order, or the newest first; with `text` only those whose JSON holds it, among the `SEARCHED` newest."""
        query = sa.select(RECORDS).where(RECORDS.c.seq > after)
        if before is not None:
            query = query.where(RECORDS.c.seq < before)
        if kinds:
            query = query.where(RECORDS.c.kind.in_(kinds))
        if text:
            end = before if before is not None else (self.span() or (0, 0))[1] + 1
            query = query.where(RECORDS.c.seq >= end - SEARCHED, RECORDS.c.body.contains(text, autoescape=True))
        query = query.order_by(RECORDS.c.seq.desc() if newest else RECORDS.c.seq)
        if limit is not None:
            query = query.limit(limit)
        with refusing(self.engine.url), self.engine.connect() as connection:
            for row in connection.execution_options(yield_per=500).execute(query):
                yield Record(row.seq, row.time_s, row.session, row.kind, json.loads(row.body))

    def last(self, kind: str) -> Record | None:
        return next(self.records(kinds=(kind,), limit=1, newest=True), None)

    def span(self) -> tuple[int, int] | None:
        """The first and the newest record; None when there is none."""
        with refusing(self.engine.url), self.engine.connect() as connection:
            # Two questions: SQLite looks up the one or the other end, but reads everything for both.
            ends = [sa.select(end(RECORDS.c.seq)).scalar_subquery() for end in (sa.func.min, sa.func.max)]
            first, newest = connection.execute(sa.select(*ends)).one()
        return None if first is None else (first, newest)

    def whole_state_at(self, seq: int) -> int | None:
        """The newest record up to that one that holds a whole state: those after it build on it."""
        whole = sa.select(sa.func.max(RECORDS.c.seq)).where(
            RECORDS.c.kind == "state", RECORDS.c.seq <= seq, RECORDS.c.body.startswith('{"full"', autoescape=True)
        )
        with refusing(self.engine.url), self.engine.connect() as connection:
            found: int | None = connection.execute(whole).scalar_one()
        return found

    def state_at(self, seq: int) -> tuple[Record, ClusterState] | None:
        """The newest recorded state up to that record; None when there is none before it."""
        begin = self.whole_state_at(seq)
        if begin is None:
            return None
        states, found = States(), None
        for record in self.records(begin - 1, ("state",), before=seq + 1):
            found = (record, states.read(record))
        return found


class States:
    """Whole states from a journal's records, one after another."""

    def __init__(self) -> None:
        self._last: dict[str, ClusterState] = {}

    def read(self, record: Record) -> ClusterState:
        """The state of a `state` record; those before it in its session must have been read, from a whole one on."""
        if "full" in record.body:
            state = recorded_state(record.body["full"], f"journal record {record.seq}")
        elif record.session in self._last:
            state = changed_state(self._last[record.session], record.body["change"])
        else:
            raise AdapterError(f"journal record {record.seq}: the whole state it builds on is missing")
        self._last = {record.session: state}
        return state


def open_journal(place: str) -> JournalReader:
    """An existing journal, for reading."""
    return JournalReader(open_store(place, create=False))
