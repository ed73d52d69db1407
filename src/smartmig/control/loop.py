"""The wheel: wait -> observe -> decide -> guard -> apply -> journal, for ever.

One thread turns it. Deciding reads no file and asks no network; acting happens on a second thread, which first waits
for the journal to be on disk; what is asked for and not yet seen is kept in mind (`in_flight.py`). The kill switch has
a third thread: it waits for what the cluster is just being asked to do, and for nothing else.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smartmig.control import in_flight
from smartmig.control.books import Books, begun_jobs
from smartmig.control.journal import Journal
from smartmig.control.pilot import Judged, Pilot, decision_body
from smartmig.control.switch import Mode, throw_switch
from smartmig.control.wire import guard_memory_to_json, memory_to_json, outcomes_to_json
from smartmig.errors import AdapterError, PartlyRefused, SmartmigError
from smartmig.ports import Connection
from smartmig.sim.gang.world import ALL
from smartmig.types import ClusterState, Outcome, Plan, Start


@dataclass(frozen=True)
class LoopSettings:
    """How the wheel turns."""

    mode: Mode = Mode.shadow
    period_s: float = 10.0
    """look at least this often, in seconds of the cluster"""
    observe_timeout_s: float = 10.0
    apply_timeout_s: float = 30.0
    settle_s: float = 1.0
    """how long a turn waits for its plan to be carried out; it goes on without"""
    in_flight_s: float = 60.0
    """an accepted start that is not seen for so long counts as lost, and the job as queued"""
    max_failures: int = 10
    """after so many failed turns on end the cluster gets its scheduling back"""
    chunk: int = 16
    """starts handed over at a time, cuts one by one; the kill switch comes in between"""
    most_starts: int = 16
    """of whole-GPU jobs in one decision: the first of hundreds that can start need not wait for the last"""
    memory_every: int = 200
    """decisions between two copies of the policy's memory in the journal"""
    rest_s: float = 0.1
    """the least time between two turns when nothing was done and nothing happened"""


@dataclass
class Counts:
    """For metrics; only ever up."""

    observations: int = 0
    decisions: int = 0
    starts: int = 0
    cuts: int = 0
    refused: int = 0
    failed: int = 0
    lost: int = 0
    fallbacks: int = 0
    errors: int = 0
    kills: int = 0


@dataclass(frozen=True, eq=False)
class Turn:
    """The newest decision, for those who look."""

    number: int
    state: ClusterState
    judged: Judged
    mode: Mode
    took_s: float
    acted: bool


Listener = Callable[[str, dict[str, Any]], None]
"""(event, body): hears what happens, on the loop's thread; must not block"""


def nobody(event: str, body: dict[str, Any]) -> None:
    del event, body


class Loop:
    """`run` turns the wheel until `stop`; everything else may be called from any thread."""

    def __init__(
        self,
        connection: Connection,
        pilot: Pilot,
        journal: Journal,
        settings: LoopSettings,
        about: dict[str, Any],
        kill_file: Path | None = None,
        listener: Listener = nobody,
    ) -> None:
        self.source, self.actuator, self.clock = connection
        self.pilot, self.journal, self.settings = pilot, journal, settings
        self.kill_file, self.listener = kill_file, listener
        self.books, self.counts = Books(), Counts()
        self.mode = settings.mode
        self.paused = self.killed = self.in_charge = False
        self._holding = False
        """jobs may be held for us: until the cluster has said that it let them go"""
        self._file_there = True
        """whether the kill file could be made when the switch was thrown"""
        self._blind = ""
        """why nobody can tell whether the kill file is there"""
        self.trouble = ""
        """why the last turn failed; empty = it did not"""
        self.looked_s = time.monotonic()
        """when the cluster last answered, by this machine's steady clock"""
        self.seen: ClusterState | None = None
        """the newest observation"""
        self.turn: Turn | None = None
        self.refusals: deque[dict[str, Any]] = deque(maxlen=200)
        self._failures = 0
        self._pending = in_flight.Pending()
        self._handed: dict[int, ClusterState] = {}
        self._outcomes: deque[tuple[int, tuple[Outcome, ...], float]] = deque()
        self._wake_s = math.inf
        self._stumbled = False
        """something of a plan was not carried out"""
        self._acting = threading.Lock()
        self._switching = threading.RLock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="act")
        self._broken: BaseException | None = None
        """what the acting thread stumbled over; it ends the loop"""
        self._stop = threading.Event()
        memories = {
            "memory": memory_to_json(pilot.memory),
            "handed_over": guard_memory_to_json(pilot.guard_memory),
        }
        self.journal.append("boot", self.clock.now_s(), {**about, **memories})

    def run(self) -> None:
        """Until `stop`; leaves the cluster to itself at the end."""
        watch = threading.Thread(target=self._watch, name="kill-switch", daemon=True)
        watch.start()
        try:
            while not self._stop.is_set():
                turn = self.step()
                rest_s = 0.0 if turn is not None and turn.acted else self.settings.rest_s
                patience_s = min(self.settings.period_s, max(rest_s, self._wake_s - self.clock.now_s()))
                if not self._stop.is_set():
                    self.source.wait(patience_s)
        finally:
            self._stop.set()
            self._pool.shutdown(wait=True)
            self._leave("smartmig stops")
            self._take_outcomes()
            self.journal.append("memory", self.clock.now_s(), memory_to_json(self.pilot.memory))
            watch.join(5)

    def stop(self) -> None:
        self._stop.set()
        self.source.close()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def step(self) -> Turn | None:
        """One turn of the wheel; None when there was no decision."""
        self._wake_s = math.inf
        self._take_outcomes()
        self._watch_file()
        try:
            self._leave_at_last()
            self._take_charge()
            seen = self.source.observe(self.settings.observe_timeout_s)
        except AdapterError as error:
            self._failed(str(error))
            return None
        self.counts.observations += 1
        self.looked_s = time.monotonic()
        self.books.look(seen)
        self._pending, lost = in_flight.still(self._pending, seen, self.settings.in_flight_s)
        for key in lost:
            self.counts.lost += 1
            self._say("error", {"what": f"job {key.job_id} was released and did not start", "key": list(key)})
        state = in_flight.overlaid(seen, self._pending)
        self.seen = state
        if self.journal.failed and self.in_charge:
            # What cannot be written must not be done. With this state the journal is tried again.
            self.journal.append_state(state)
            self._failed(self.journal.failed)
            return None
        if self.mode is Mode.observe or self.paused:
            self.journal.append_state(state)
            self._recovered()
            self.listener("state", {"time_s": state.time_s})
            return None
        return self._decide(state)

    def _decide(self, state: ClusterState) -> Turn:
        # One that is not carried out would be made again and again; and what failed would stand before all others.
        in_charge = self.mode is Mode.act and self.in_charge and not self.killed
        most_starts = self.settings.most_starts if in_charge and not self._stumbled else ALL
        self._stumbled = False
        gc.disable()  # looking for garbage may take longer than deciding, and can wait that long
        began_s, cpu_s = time.perf_counter(), time.thread_time()
        try:
            judged = self.pilot.decide(state, most_starts)
        finally:
            took_s, cpu_s = time.perf_counter() - began_s, time.thread_time() - cpu_s
            gc.enable()
            # Only now: the writer's thread would take turns with this one.
            self.journal.append_state(state)
        self._wake_s = judged.wake_s
        counts = self.counts
        counts.decisions += 1
        counts.refused += len(judged.refused)
        counts.fallbacks += bool(judged.fallback)
        acts = in_charge and bool(judged.plan)
        number = counts.decisions
        body = decision_body(judged, self.mode, number, took_s, acts) | {"cpu_s": cpu_s}
        if most_starts != ALL:
            body["most_starts"] = most_starts
        if judged.wanted or judged.plan or judged.refused or judged.fallback:
            self.journal.append("decision", state.time_s, body)
        else:
            self.journal.append("decision", state.time_s, {"n": number, "mode": self.mode.value, "plan": []})
        self.refusals.extend({"time_s": state.time_s, **one} for one in body["refused"])
        if counts.decisions % self.settings.memory_every == 0:
            self.journal.append("memory", state.time_s, memory_to_json(self.pilot.memory))
        if acts:
            self.pilot.handed_over(state, judged.plan)
            self._pending = in_flight.handed_over(self._pending, judged.plan, state.time_s)
            self._handed[number] = state
            wait([self._pool.submit(self._act, number, judged.plan)], self.settings.settle_s)
        self._recovered()
        self.turn = Turn(number, state, judged, self.mode, took_s, acts)
        self.listener("decision", body)
        return self.turn

    def _act(self, number: int, plan: Plan) -> None:
        """On the acting thread: write first, then do."""
        outcomes: list[Outcome] = []
        began_s = time.perf_counter()
        try:
            self.journal.sync(self.settings.apply_timeout_s)
            for part in _parts(plan, self.settings.chunk):
                with self._acting:
                    outcomes += self._apply(part)
        except Exception as error:
            if not isinstance(error, AdapterError):
                self._broken = error
            outcomes += [Outcome(action, False, str(error)) for action in plan[len(outcomes) :]]
        self._outcomes.append((number, tuple(outcomes), time.perf_counter() - began_s))

    def _apply(self, part: Plan) -> tuple[Outcome, ...]:
        if self.killed or not self.in_charge or self._stop.is_set():
            return tuple(Outcome(action, False, "smartmig has let go of the cluster") for action in part)
        try:
            return self.actuator.apply(part, self.settings.apply_timeout_s)
        except AdapterError as error:
            return tuple(Outcome(action, False, str(error)) for action in part)

    def _take_outcomes(self) -> None:
        """What the acting thread has finished, in order; what it stumbled over ends the loop."""
        while self._outcomes:
            number, outcomes, took_s = self._outcomes.popleft()
            state = self._handed.pop(number)
            done = [outcome.action for outcome in outcomes if outcome.done]
            started = [action.key for action in done if isinstance(action, Start)]
            self.counts.starts += len(started)
            self.counts.cuts += sum(hasattr(action, "layout") for action in done)
            self.counts.failed += len(outcomes) - len(done)
            self._stumbled |= len(done) < len(outcomes)
            self._pending = in_flight.refused(self._pending, outcomes)
            self.pilot.carried_out(state, started)
            self.books.began(begun_jobs(state, done))
            self._say("outcome", {"n": number, "took_s": took_s, "outcomes": outcomes_to_json(outcomes)})
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken

    def change_mode(self, mode: Mode, who: str) -> None:
        """Takes effect with the next turn; leaving `act` gives the cluster back at once."""
        self.audit(who, "mode", {"from": self.mode.value, "to": mode.value})
        self.mode = mode
        if mode is not Mode.act:
            self._leave(f"mode {mode.value}")

    def pause(self, paused: bool, who: str) -> None:
        """Paused: look, but decide nothing; held jobs stay held."""
        self.audit(who, "pause" if paused else "resume", {})
        self.paused = paused

    def kill(self, why: str) -> int:
        """The cluster's own scheduling, at once, until the kill file is taken away. Returns how many were released."""
        with self._switching:
            before = self.killed
            if not before:
                self._set_killed()
                self._make_file(why)
        return self._leave(why) if before else self._killed_by(why)

    def _make_file(self, why: str) -> None:
        if self.kill_file is None:
            return
        try:
            throw_switch(self.kill_file, why)
        except (OSError, SmartmigError) as error:
            # Letting go must not depend on a file; without it only `revive` takes the switch back.
            self._file_there = False
            self._say("error", {"what": f"the kill file cannot be made: {error}"})

    def revive(self, why: str) -> None:
        """Undo `kill`; in mode `act` the next turn takes over again."""
        with self._switching:
            if self.kill_file is not None:
                try:
                    self.kill_file.unlink(missing_ok=True)
                except OSError as error:
                    raise AdapterError(f"{self.kill_file}: cannot be removed: {error.strerror}") from None
            if not self.killed:
                return
            self._set_revived(why)

    def _set_revived(self, why: str) -> None:
        self.killed = False
        self._failures = 0
        self._say("audit", {"who": "kill switch", "what": "resume", "why": why})

    def _set_killed(self) -> None:
        self.killed = self._file_there = True
        self.counts.kills += 1

    def _killed_by(self, why: str) -> int:
        self._holding = True  # maybe for one before us: who throws the switch wants everything released
        try:
            self._say("audit", {"who": "kill switch", "what": "kill", "why": why})
        finally:
            released = self._leave(why)
        return released

    def audit(self, who: str, what: str, detail: dict[str, Any]) -> None:
        self._say("audit", {"who": who, "what": what, **detail})

    def _say(self, kind: str, body: dict[str, Any]) -> None:
        self.journal.append(kind, self.clock.now_s(), body)
        self.listener(kind, body)

    def _take_charge(self) -> None:
        if self.in_charge:
            return
        with self._acting:
            # Under the lock: whoever lets go meanwhile has the last word.
            if self.mode is not Mode.act or self.killed:
                return
            self._holding = True
            held = self.actuator.take_over(self.settings.apply_timeout_s)
            self.in_charge = True
        self._say("audit", {"who": "loop", "what": "take over", "held": held})

    def _leave(self, why: str) -> int:
        """Let go of everything we hold; how many jobs were released. What fails is tried again with every turn."""
        with self._acting:
            self.in_charge = False
            if not self._holding:
                return 0
            try:
                released = self.actuator.let_go(self.settings.apply_timeout_s)
            except AdapterError as error:
                self._say("error", {"what": f"could not let go: {error}"})
                return 0
            self._holding = False
        self._say("audit", {"who": "loop", "what": "let go", "why": why, "released": released})
        return released

    def _leave_at_last(self) -> None:
        if self._holding and (self.mode is not Mode.act or self.killed):
            self._leave("it could not be done before")

    def _failed(self, why: str) -> None:
        self.trouble = why
        self.counts.errors += 1
        self._failures += 1
        self._say("error", {"what": why, "on_end": self._failures})
        if self._failures % self.settings.max_failures == 0 and self.in_charge and self._can_let_go():
            self.kill(f"{self._failures} failed turns on end: {why}")
        # A cluster that is away is asked less and less often.
        self._stop.wait(min(5.0, 0.1 * 2 ** min(self._failures, 6)))

    def _can_let_go(self) -> bool:
        """A cluster that is away altogether cannot be given back: it is waited for, and then taken over again."""
        with self._acting:
            try:
                self.actuator.let_go(self.settings.observe_timeout_s)
            except PartlyRefused:
                return True  # the rest is tried again with every turn
            except AdapterError:
                return False
            finally:
                self.in_charge = False
        return True

    def _recovered(self) -> None:
        self._failures = 0
        self.trouble = self.journal.failed or self._blind

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self._watch_file()

    def _watch_file(self) -> None:
        if self.kill_file is None:
            return
        with self._switching:
            try:
                there = self.kill_file.exists()
                self._blind = ""
            except OSError as error:
                self._blind = f"the kill file cannot be looked at: {error}"
                return
            thrown = there and not self.killed
            if thrown:
                self._set_killed()
            elif not there and self.killed and self._file_there:
                self._set_revived("the kill file is gone")
        if thrown:
            self._killed_by(f"kill file {self.kill_file}")


def _parts(plan: Plan, chunk: int) -> Iterator[Plan]:
    """Stops and cuts go one after the other anyway, and may take long."""
    starts = tuple(action for action in plan if isinstance(action, Start))
    for action in plan[: len(plan) - len(starts)]:
        yield (action,)
    for at in range(0, len(starts), chunk):
        yield starts[at : at + chunk]
