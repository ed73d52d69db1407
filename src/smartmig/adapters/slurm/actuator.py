"""Changes a Slurm cluster: starts, stops, cuts; takes over and lets go."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from smartmig.adapters.slurm import asks, cards, marks
from smartmig.adapters.slurm.calls import Release, SlurmReads, SlurmSilence, SlurmWrites
from smartmig.adapters.slurm.keeper import COOL_S, LONGEST_COOL_S, Keeper, release_all
from smartmig.adapters.slurm.paths import switch_off
from smartmig.adapters.slurm.reach import own_nodes
from smartmig.adapters.slurm.records import JobRecord, NodeRecord
from smartmig.adapters.slurm.recut import recut
from smartmig.adapters.slurm.rooms import Room, counts_memory, needs_of, room_on
from smartmig.adapters.slurm.source import Cooling, SlurmSource
from smartmig.adapters.slurm.started import Started
from smartmig.adapters.slurm.states import JobState
from smartmig.adapters.slurm.translate import keys_of
from smartmig.errors import AdapterError
from smartmig.types import JobKey, Outcome, Plan, Repartition, Share, Start, Stop

NO_TIME = "there was no time left for it"
LOOK_AGAIN_S = 0.5
"""until then what is late may have come, where somebody lets go"""


class NoRoom(AdapterError):
    """On the node just now, beside its GPUs. The next look at the cluster knows that."""


@dataclass(frozen=True)
class Rules:
    """What the actuator may do."""

    partition: str
    mig: cards.MigKnobs
    off_file: Path | None
    """while it is there, the submit script holds nothing; None = nothing is installed"""
    start_grace_s: float
    """a started job that does not run after so long is taken back"""
    recut_command: tuple[str, ...]
    """cuts the card itself: called with node, card and layout; empty = Slurm's counts only"""


class SlurmActuator:
    """`ports.Actuator`."""

    def __init__(
        self,
        writers: Sequence[SlurmWrites],
        open_both: Callable[[], tuple[SlurmReads, SlurmWrites]],
        source: SlurmSource,
        cooling: Cooling,
        started: Started,
        rules: Rules,
    ) -> None:
        self._writers, self._open_both, self._source = writers, open_both, source
        self._free: queue.SimpleQueue[SlurmWrites] = queue.SimpleQueue()
        for writer in writers:
            self._free.put(writer)
        self._pool = ThreadPoolExecutor(len(writers), thread_name_prefix="slurm-start")
        self._cooling, self._started, self._rules = cooling, started, rules
        self._one_at_a_time = threading.Lock()
        self._keepers: list[Keeper] = []
        """the newest, and those of which something may still be under way"""
        self._in_doubt = False
        """whether a start that Slurm did not answer may have happened since somebody looked"""
        self._rooms: dict[str, Room] = {}
        """what the starts of this plan leave on their nodes"""
        self._seen: dict[int, JobRecord] = {}
        self._acted_on: dict[JobKey, JobRecord] = {}

    def apply(self, plan: Plan, timeout_s: float) -> tuple[Outcome, ...]:
        end_s = time.monotonic() + timeout_s
        self._rooms, self._seen = {}, self._source.jobs()
        self._acted_on = {key: seen for key, seen in self._acted_on.items() if self._seen.get(seen.job_id) is seen}
        outcomes: dict[int, Outcome] = {}
        for kind in (Stop, Repartition):
            for at, action in enumerate(plan):
                if isinstance(action, kind):
                    outcomes[at] = self._try(action, end_s)
        with self._one_at_a_time:
            starts = [(at, action) for at, action in enumerate(plan) if isinstance(action, Start)]
            ready = [(at, action, self._prepared(action, end_s)) for at, action in starts]
            # Each call mostly waits for slurmctld, which takes several at a time.
            done = self._pool.map(lambda one: self._release(one[1], one[2], end_s), ready)
            outcomes |= {at: outcome for (at, _, _), outcome in zip(ready, done, strict=True)}
        return tuple(outcomes[at] for at in range(len(plan)))

    def take_over(self, timeout_s: float) -> int:
        if self._rules.off_file is None:
            raise AdapterError("mode act needs the submit script; put it there with `smartmig slurm install`")
        self._end_keepers()
        keeper = Keeper(
            *self._open_both(), self._rules.partition, self._rules.start_grace_s, self._cooling, self._one_at_a_time
        )
        try:
            self._rules.off_file.unlink(missing_ok=True)
            n_held = keeper.tend(timeout_s)
        except OSError as error:
            keeper.stop()
            raise AdapterError(f"{self._rules.off_file}: cannot be removed: {error.strerror}") from None
        except Exception:
            self._keepers.append(keeper)
            self._end_keepers()
            # Nobody would start what is held from now on.
            with suppress(OSError):
                switch_off(self._rules.off_file)
            raise
        keeper.start()
        self._keepers.append(keeper)
        return n_held

    def let_go(self, timeout_s: float) -> int:
        end_s = time.monotonic() + timeout_s
        if self._rules.off_file is not None:
            # Even where that is not allowed, what is held must be released.
            with suppress(OSError):
                switch_off(self._rules.off_file)
        n_released = 0
        while True:
            settled = self._settled()
            reads, writes = self._open_both()
            try:
                n_released += release_all(reads, writes, self._rules.partition, max(end_s - time.monotonic(), 0.001))
            finally:
                reads.close()
            if settled:
                return n_released
            # What was late may have come after the look.
            if time.monotonic() + LOOK_AGAIN_S > end_s:
                raise SlurmSilence(f"{n_released} jobs were let go; slurmctld still owes an answer to an earlier call")
            time.sleep(LOOK_AGAIN_S)

    def close(self) -> None:
        self._end_keepers()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for writer in self._writers:
            writer.close()

    def _settled(self) -> bool:
        """Whether nothing that was asked for can happen any more, nor has happened since this was asked last."""
        owed = any(writer.owes() for writer in self._writers)
        in_doubt, self._in_doubt = owed or self._in_doubt, owed
        return self._end_keepers() and not in_doubt

    def _end_keepers(self) -> bool:
        """Whether nothing of theirs is under way any more."""
        self._keepers = [keeper for keeper in self._keepers if not keeper.stop()]
        return not self._keepers

    def _try(self, action: Stop | Repartition, end_s: float) -> Outcome:
        begun_s = time.monotonic()
        left_s = end_s - begun_s
        why = NO_TIME
        if left_s > 0:
            try:
                if isinstance(action, Stop):
                    why = self._stop(action, left_s)
                else:
                    why = recut(self._writers[0], action, self._rules.mig, self._rules.recut_command, left_s)
            except AdapterError as error:
                why = str(error)
        return Outcome(action, done=not why, why=why, took_s=time.monotonic() - begun_s)

    def _release(self, action: Start, release: Release | Exception | str, end_s: float) -> Outcome:
        """On a thread of the pool."""
        begun_s = time.monotonic()
        why: Exception | str = ""
        if not isinstance(release, Release):
            why = release
        elif end_s <= begun_s:
            why = SlurmSilence(NO_TIME)
        else:
            writer = self._free.get()
            self._started.note(action.key, tuple(share.node for share in action.shares))
            try:
                writer.release(action.key.job_id, release, end_s - begun_s)
            except AdapterError as error:
                why = error
                if isinstance(error, SlurmSilence):
                    self._in_doubt = True
            finally:
                self._free.put(writer)
        # Silence is not the job's fault, and perhaps it was done all the same: the next observation tells.
        if why and not isinstance(why, SlurmSilence | NoRoom):
            self._cooling.leave(action.key, time.time(), COOL_S, LONGEST_COOL_S)
        return Outcome(action, done=not why, why=str(why), took_s=time.monotonic() - begun_s)

    def _prepared(self, action: Start, end_s: float) -> Release | Exception | str:
        """How to let the job start; else why it must not."""
        try:
            record = self._record(action.key, max(end_s - time.monotonic(), 0.001))
        except AdapterError as error:
            return error
        if isinstance(record, str):
            return record
        if record.holds or record.base_state != JobState.PENDING:
            return f"job {action.key.job_id} is {record.state} already"
        mark = marks.read_start(record.admin_comment)
        if mark is not None and mark.submit_s == record.submit_s and record.priority != 0:
            return f"job {action.key.job_id} was started before"
        why = self._lacks(record, action)
        if why:
            return why
        parked = marks.read_parked(record.admin_comment) is not None
        return Release(
            mark=marks.write_start(record.submit_s, time.time(), action.shares, own_nodes(record)),
            nodes=tuple(share.node for share in action.shares),
            partition=self._rules.partition if len(record.partitions) > 1 else "",
            begin_s=int(time.time()) if parked else 0,
        )

    def _stop(self, action: Stop, timeout_s: float) -> str:
        """Why it was not done, empty if it was."""
        record = self._record(action.key, timeout_s)
        if isinstance(record, str):
            return record
        if record.base_state != JobState.RUNNING:
            return f"job {action.key.job_id} is {record.state}, not running"
        # Held at once it could not be told from a job that somebody held. The keeper holds it before it may run.
        self._writers[0].requeue(action.key.job_id, timeout_s)
        return ""

    def _record(self, key: JobKey, timeout_s: float) -> JobRecord | str:
        """The job as it was seen last, or, if we have acted on that before, as Slurm has it now; if it still is the
        same job. A job that went or started meanwhile stays as it is: Slurm refuses to change the one, and a pin does
        nothing to the other."""
        number, _, task = key.job_id.partition("_")
        seen = self._seen.get(int(number))
        if seen is None or task or self._acted_on.get(key) is seen:
            found = self._writers[0].job(int(number), timeout_s)
        else:
            found = (seen,)
            self._acted_on[key] = seen
        for record in found:
            same = not task or record.array_task_id == int(task)
            among_others = bool(task) and record.array_task_id is None and key in keys_of(record)
            if (same or among_others) and record.submit_s == key.submit_s:
                return record
        return f"job {key.job_id} submitted at {key.submit_s:.0f} is gone"

    def _lacks(self, record: JobRecord, action: Start) -> Exception | str:
        """CPUs and memory, which policies do not look at: a plan may give a node's to several jobs. And the right
        slice. The last observation is recent enough for that."""
        known = self._source.nodes()
        counted = counts_memory(known.values())
        ask = asks.read_ask(record)
        for share in action.shares:
            node = known.get(share.node)
            if node is None:
                return f"job {action.key.job_id}: Slurm has no node {share.node}"
            needs = needs_of(record, len(action.shares), share.n_gpus)
            room = self._rooms.get(share.node) or room_on(node)
            if not room.holds(needs):
                return NoRoom(f"job {action.key.job_id}: node {node.name} lacks {needs} beside its GPUs")
            self._rooms[share.node] = room.without(needs, counted)
            if not share.n_gpus and not isinstance(ask, str) and self._profile_at(node, share) != ask.profile:
                place = f"slice {share.start} of card {share.gpu}"
                return f"job {action.key.job_id}: node {node.name} has no {ask.profile} at {place}"
        return ""

    def _profile_at(self, node: NodeRecord, share: Share) -> str:
        found = cards.layouts_of(node, self._rules.mig)
        if isinstance(found, str) or not 0 <= share.gpu < len(found[1]):
            return ""
        return next((p.profile for p in found[1][share.gpu] if p.start == share.start), "")
