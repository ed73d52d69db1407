"""Changes a Slurm cluster: starts, stops, cuts; lets go and takes over."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from smartmig.adapters.slurm import asks, cards, marks
from smartmig.adapters.slurm.calls import Release, SlurmReads, SlurmRefusal, SlurmSilence, SlurmWrites
from smartmig.adapters.slurm.gres import Gres, by_type, write_gres
from smartmig.adapters.slurm.records import JobRecord, NodeRecord
from smartmig.adapters.slurm.source import Cooling, SlurmSource
from smartmig.adapters.slurm.states import HELD_BY_ADMIN, JobState
from smartmig.adapters.slurm.translate import held_by_owner, key_of, keys_of, own_nodes
from smartmig.errors import AdapterError
from smartmig.types import Action, JobKey, Layout, Outcome, Plan, Repartition, Share, Start, Stop

COOL_S, LONGEST_COOL_S = 5.0, 300.0
"""A job that could not start is left alone for so long, twice as long each time."""

BEHIND = 1_000_000
"""Niceness of a job that is given back."""
CURABLE = frozenset({"", "0", "None", "Priority", "Resources", "BeginTime", "Cleaning", "Dependency"})
"""Reasons for which Slurm may start a job by itself in a moment; for any other it is taken back after `HOPELESS_S`."""
HOPELESS_S = 2.0


@dataclass(frozen=True)
class Rules:
    """What the actuator may do."""

    partition: str
    mig_model: str
    mig_cards: int
    off_file: Path | None
    """while it is there, the submit script holds nothing; None = nothing is installed"""
    start_grace_s: float
    """a started job that does not run after so long is taken back"""
    recut_command: tuple[str, ...]
    """cuts the card itself: called with node, card and layout; empty = Slurm's counts only"""


class SlurmActuator:
    """`ports.Actuator`. While in charge, a thread of its own tends the queue once a second."""

    def __init__(
        self,
        writes: SlurmWrites,
        open_keeper: Callable[[], tuple[SlurmReads, SlurmWrites]],
        source: SlurmSource,
        cooling: Cooling,
        rules: Rules,
    ) -> None:
        self._writes, self._open_keeper, self._source = writes, open_keeper, source
        self._cooling, self._rules = cooling, rules
        self._booked: dict[str, tuple[int, int]] = {}
        self._one_at_a_time = threading.Lock()
        self._stop_tending = threading.Event()
        self._keeper: threading.Thread | None = None
        self.remarks: dict[str, str] = {}
        """by job: the last thing that was done about it besides plans"""

    def apply(self, plan: Plan, timeout_s: float) -> tuple[Outcome, ...]:
        end_s = time.monotonic() + timeout_s
        outcomes: dict[int, Outcome] = {}
        self._booked = {}
        for kind in (Stop, Repartition, Start):
            for at, action in enumerate(plan):
                if isinstance(action, kind):
                    outcomes[at] = self._try(action, end_s)
        return tuple(outcomes[at] for at in range(len(plan)))

    def _try(self, action: Action, end_s: float) -> Outcome:
        begun_s = time.monotonic()
        left_s = end_s - begun_s
        why = "there was no time left for it"
        if left_s > 0:
            try:
                match action:
                    case Start():
                        why = self._start(action, left_s)
                    case Stop():
                        why = self._stop(action, left_s)
                    case Repartition():
                        why = self._recut(action, left_s)
            except SlurmSilence as error:
                # Not the job's fault, and perhaps done all the same: the next observation tells.
                return Outcome(action, done=False, why=str(error), took_s=time.monotonic() - begun_s)
            except AdapterError as error:
                why = str(error)
        if why and isinstance(action, Start):
            self._cooling.leave(action.key, time.time(), COOL_S, LONGEST_COOL_S)
        return Outcome(action, done=not why, why=why, took_s=time.monotonic() - begun_s)

    # ------------------------------------------------------------------ actions; each returns why it was not done

    def _start(self, action: Start, timeout_s: float) -> str:
        with self._one_at_a_time:
            return self._start_now(action, timeout_s)

    def _start_now(self, action: Start, timeout_s: float) -> str:
        record = self._record(action.key, timeout_s)
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
        release = Release(
            mark=marks.write_start(record.submit_s, time.time(), action.shares, own_nodes(record)),
            nodes=tuple(share.node for share in action.shares),
            partition=self._rules.partition if len(record.partitions) > 1 else "",
            begin_s=int(time.time()) if parked else 0,
        )
        self._writes.release(action.key.job_id, release, timeout_s)
        return ""

    def _record(self, key: JobKey, timeout_s: float) -> JobRecord | str:
        """The job as Slurm has it now, if it still is the same job."""
        number, _, task = key.job_id.partition("_")
        found = self._writes.job(int(number), timeout_s)
        for record in found:
            same_task = not task or record.array_task_id == int(task)
            shared = bool(task) and record.array_task_id is None and key in keys_of(record)
            if (same_task or shared) and record.submit_s == key.submit_s:
                return record
        return f"job {key.job_id} submitted at {key.submit_s:.0f} is gone"

    def _lacks(self, record: JobRecord, action: Start) -> str:
        """CPUs and memory, which policies do not look at, and the right slice; the last observation is recent enough
        for that."""
        known = self._source.nodes()
        cpus = asks.cpus_per_node(record, len(action.shares))
        memory_mb = asks.memory_per_node(record, len(action.shares))
        ask = asks.read_ask(record)
        for share in action.shares:
            node = known.get(share.node)
            if node is None:
                return f"job {action.key.job_id}: Slurm has no node {share.node}"
            cpus_booked, memory_booked_mb = self._booked.get(share.node, (0, 0))
            free_cpus = node.n_cpus - node.n_cpus_used - cpus_booked
            free_mb = node.memory_mb - node.memory_used_mb - memory_booked_mb
            if free_cpus < cpus or free_mb < memory_mb:
                return f"job {action.key.job_id}: node {node.name} lacks {cpus} CPUs or {memory_mb} MB beside its GPUs"
            self._booked[share.node] = (cpus_booked + cpus, memory_booked_mb + memory_mb)
            if not share.n_gpus and not isinstance(ask, str) and self._profile_at(node, share) != ask.profile:
                place = f"slice {share.start} of card {share.gpu}"
                return f"job {action.key.job_id}: node {node.name} has no {ask.profile} at {place}"
        return ""

    def _profile_at(self, node: NodeRecord, share: Share) -> str:
        found = cards.layouts_of(node, self._rules.mig_model, self._rules.mig_cards)
        if isinstance(found, str) or not 0 <= share.gpu < len(found[1]):
            return ""
        return next((p.profile for p in found[1][share.gpu] if p.start == share.start), "")

    def _stop(self, action: Stop, timeout_s: float) -> str:
        record = self._record(action.key, timeout_s)
        if isinstance(record, str):
            return record
        if record.base_state != JobState.RUNNING:
            return f"job {action.key.job_id} is {record.state}, not running"
        self._writes.requeue_held(action.key.job_id, timeout_s)
        return ""

    def _recut(self, action: Repartition, timeout_s: float) -> str:
        """Take the vanishing slices away from Slurm, cut, then offer the new ones; back to the old on any failure."""
        end_s = time.monotonic() + timeout_s
        old = self._writes.node(action.node, timeout_s)
        found = cards.layouts_of(old, self._rules.mig_model, self._rules.mig_cards)
        if isinstance(found, str):
            return found
        model, layouts = found
        if not 0 <= action.gpu < len(layouts):
            return f"node {action.node} has {len(layouts)} MIG cards, not one with the number {action.gpu}"
        kept = tuple(placement for placement in layouts[action.gpu] if placement in action.layout)
        staying = (*layouts[: action.gpu], kept, *layouts[action.gpu + 1 :])
        target = (*layouts[: action.gpu], action.layout, *layouts[action.gpu + 1 :])
        why = _in_use(old, staying)
        if why:
            return why
        self._offer(old, model, staying, timeout_s)
        # Slurm does not refuse to take away what is in use: a job may have come in between.
        now = self._writes.node(action.node, max(end_s - time.monotonic(), 0.1))
        why = _in_use(now, staying) or self._cut_card(action, end_s)
        if not why:
            self._offer(old, model, target, max(end_s - time.monotonic(), 0.1))
            now = self._writes.node(action.node, max(end_s - time.monotonic(), 0.1))
            wanted = dict(cards.counts_of(target))
            if {kind: count for kind, count in by_type(now.has, "mig").items() if count} == wanted:
                return ""
            why = f"node {action.node} has {now.gres} after it was cut into {wanted}"
        self._offer(old, model, layouts, max(end_s - time.monotonic(), 1.0))
        return f"{why}; the old cut is back"

    def _cut_card(self, action: Repartition, end_s: float) -> str:
        if not self._rules.recut_command:
            return ""
        layout = ",".join(f"{placement.start}:{placement.profile}" for placement in action.layout)
        command = [*self._rules.recut_command, action.node, str(action.gpu), layout]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=max(end_s - time.monotonic(), 0.1), check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{command[0]}: {error}"
        return f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[:200]}" if done.returncode else ""

    def _offer(self, old: NodeRecord, model: str, layouts: tuple[Layout, ...], timeout_s: float) -> None:
        counts = {gres: count for gres, count in old.has.items() if gres.name != "mig"}
        of_mig = cards.counts_of(layouts)
        for kind, count in of_mig.items():
            counts[Gres("mig", kind)] = count
        self._writes.set_node(old.name, write_gres(counts), cards.write_comment(model, layouts), timeout_s)

    # ------------------------------------------------------------------ who is in charge

    def take_over(self, timeout_s: float) -> int:
        if self._rules.off_file is not None:
            self._rules.off_file.unlink(missing_ok=True)
        reads, writes = self._open_keeper()
        held = self._tend(reads, writes, timeout_s)
        if self._keeper is None:
            self._stop_tending.clear()
            self._keeper = threading.Thread(target=self._keep, args=(reads, writes), name="slurm-keeper", daemon=True)
            self._keeper.start()
        return held

    def let_go(self, timeout_s: float) -> int:
        if self._rules.off_file is not None:
            self._rules.off_file.parent.mkdir(parents=True, exist_ok=True)
            self._rules.off_file.touch()
        self._end_keeper()
        reads, writes = self._open_keeper()
        try:
            return release_all(reads, writes, self._rules.partition, timeout_s)
        finally:
            reads.close()
            writes.close()

    def close(self) -> None:
        self._end_keeper()
        self._writes.close()

    def _end_keeper(self) -> None:
        self._stop_tending.set()
        if self._keeper is not None:
            self._keeper.join(timeout=10.0)
            self._keeper = None

    def _keep(self, reads: SlurmReads, writes: SlurmWrites) -> None:
        while not self._stop_tending.wait(1.0):
            # A controller that is away comes back; then everything is looked at again.
            with suppress(AdapterError):
                self._tend(reads, writes, 10.0)
        reads.close()
        writes.close()

    def _tend(self, reads: SlurmReads, writes: SlurmWrites, timeout_s: float) -> int:
        """Bring strays into our queue, hand back what we cannot place, take back what did not start; how many we
        hold."""
        end_s = time.monotonic() + timeout_s
        found = reads.jobs(self._rules.partition, timeout_s)
        if found is not None:
            self._jobs = found
        held = 0
        present: set[JobKey] = set()
        for record in self._jobs:
            if record.base_state != JobState.PENDING or self._rules.partition not in record.partitions:
                continue
            present.update(keys_of(record))
            duty = duty_of(record, time.time(), self._rules.start_grace_s)
            held += duty in (Duty.none, Duty.hold, Duty.park, Duty.take_back)
            if duty in (Duty.none, Duty.not_ours):
                continue
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            with suppress(SlurmRefusal), self._one_at_a_time:
                # The list may be older than the last plan.
                for now in writes.job(record.job_id, left_s):
                    if now.job_id == record.job_id and now.submit_s == record.submit_s:
                        self._do_duty(now, writes, left_s)
        self._cooling.forget(present)
        return held

    _jobs: tuple[JobRecord, ...] = ()

    def _do_duty(self, record: JobRecord, writes: SlurmWrites, timeout_s: float) -> None:
        name, now_s = name_of(record), time.time()
        match duty_of(record, now_s, self._rules.start_grace_s):
            case Duty.take_back:
                writes.hold(name, marks.HELD, True, timeout_s)
                patience_s = self._cooling.leave(key_of(record), now_s, COOL_S, LONGEST_COOL_S)
                self.remarks[name] = f"did not start ({record.reason}); left alone for {patience_s:g} s"
            case Duty.give_back:
                why = str(asks.read_ask(record))
                mark = marks.write_given_back(record.submit_s, why)
                # It must not block what we start later: Slurm's plain scheduler stops at the first that does not fit.
                writes.release(name, Release(mark, own_nodes(record), nice=BEHIND), timeout_s)
                self.remarks[name] = f"given back to Slurm: {why}"
            case Duty.park:
                begin_s = 0 if record.eligible_s >= marks.FAR_S else record.eligible_s
                release = Release(marks.write_parked(begin_s), own_nodes(record), begin_s=marks.FAR_S)
                writes.release(name, release, timeout_s)
            case Duty.hold:
                writes.hold(name, marks.HELD, marks.read_start(record.admin_comment) is not None, timeout_s)


class Duty(Enum):
    """What to do about a pending job, plans aside."""

    not_ours = auto()
    none = auto()
    """it waits for a plan, or starts"""
    hold = auto()
    """Slurm would start it on its own: submitted before we came, queued again, or let go by an administrator"""
    park = auto()
    """it has dependencies, which Slurm looks at only while the job is not held"""
    take_back = auto()
    """we started it, and it does not run: a limit, a licence, a node that went"""
    give_back = auto()
    """only Slurm can place it"""


def duty_of(record: JobRecord, now_s: float, start_grace_s: float) -> Duty:
    comment, held = record.admin_comment, record.priority == 0
    if (
        record.state != JobState.PENDING
        or record.reason == HELD_BY_ADMIN
        or held_by_owner(record)
        or marks.is_given_back(comment, record.submit_s)
        or not asks.asks_gpus(record)
        or (held and not marks.is_ours(comment))  # its owner held it before we came
    ):
        return Duty.not_ours
    mark = marks.read_start(comment)
    if mark is not None and mark.submit_s == record.submit_s and not held:
        patience_s = start_grace_s if record.reason in CURABLE else min(HOPELESS_S, start_grace_s)
        late = now_s - mark.at_s > patience_s and not record.dependency
        return Duty.take_back if late else Duty.none
    if isinstance(asks.read_ask(record), str):
        return Duty.give_back
    if marks.read_parked(comment) is not None:
        return Duty.none
    if record.dependency:
        return Duty.park
    return Duty.none if held else Duty.hold


def release_all(reads: SlurmReads, writes: SlurmWrites, partition: str, timeout_s: float) -> int:
    """Every job that we hold, parked or pinned is Slurm's again; how many. Goes on past jobs that Slurm refuses."""
    end_s = time.monotonic() + timeout_s
    released = 0
    for record in reads.jobs(partition, timeout_s) or ():
        comment = record.admin_comment
        if (
            record.base_state != JobState.PENDING
            or partition not in record.partitions
            or not marks.is_ours(comment)
            or comment == marks.LET_GO
            or marks.is_given_back(comment, record.submit_s)
            or record.reason == HELD_BY_ADMIN
            or held_by_owner(record)
        ):
            continue
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise SlurmSilence(f"only {released} jobs were let go before the time was over; call it again")
        parked_s = marks.read_parked(comment)
        begin_s = 0 if parked_s is None else max(parked_s, int(time.time()))
        with suppress(SlurmRefusal):
            writes.release(name_of(record), Release(marks.LET_GO, own_nodes(record), begin_s=begin_s), left_s)
            released += 1
    return released


def name_of(record: JobRecord) -> str:
    """As Slurm's calls take it: waiting array tasks that share a record go together."""
    return str(record.job_id) if record.array_task_id is None else key_of(record).job_id


def _in_use(node: NodeRecord, layouts: tuple[Layout, ...]) -> str:
    """Why these layouts are too small for what runs there."""
    counts = cards.counts_of(layouts)
    for kind, used in by_type(node.used, "mig").items():
        if used > counts.get(kind, 0):
            return f"node {node.name}: {used} slices of {kind} are in use"
    return ""
