"""A journal cut off at any byte is a journal of what was committed before; states survive the way to JSON and back.

What SQLite promises with a write-ahead log and synchronous=FULL: a commit is a run of checksummed frames at the end of
the log, on disk before it counts; a torn one is not read. The main file changes only while a checkpoint copies frames
that stay in the log until it is done. So the log is cut at any byte here, and the main file is left half copied.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.control.journal import Journal, JournalReader, States, open_journal
from smartmig.control.memory import Memory, Promise, Use
from smartmig.control.store import MIGRATIONS, RECORDS, SCHEMA, migrate, open_store
from smartmig.control.wire import (
    changed_state,
    difference,
    memory_from_json,
    memory_to_json,
    plan_from_json,
    plan_to_json,
    recorded_state,
    state_to_json,
)
from smartmig.errors import AdapterError
from smartmig.types import (
    ClusterState,
    Instance,
    JobKey,
    JobRequest,
    MigGpu,
    NodeInfo,
    NodeState,
    Placement,
    Repartition,
    RunningJob,
    Share,
    Start,
    Stop,
)

N_RECORDS = 40


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with one record per commit, its log not yet copied into the main file."""
    folder = tmp_path_factory.mktemp("journal")
    engine = open_store(str(folder / "made.db"))
    with engine.connect() as connection:
        connection.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)"))
        connection.execute(sa.text("PRAGMA wal_autocheckpoint=0"))
        connection.commit()
        shutil.copy(folder / "made.db", folder / "before.db")
        for at in range(N_RECORDS):
            row = {"time_s": float(at), "session": "s", "kind": "audit", "body": json.dumps({"n": at, "x": "y" * 300})}
            connection.execute(RECORDS.insert(), [row])
            connection.commit()
        shutil.copy(folder / "made.db-wal", folder / "log")
        connection.execute(sa.text("PRAGMA wal_checkpoint(FULL)"))
        shutil.copy(folder / "made.db", folder / "after.db")
    engine.dispose()
    return folder


def numbers(main: bytes, log: bytes, folder: Path) -> list[int]:
    """The records that a journal of these two files gives."""
    place = folder / "cut.db"
    for path in folder.glob("cut.db*"):
        path.unlink()
    place.write_bytes(main)
    (folder / "cut.db-wal").write_bytes(log)
    reader = open_journal(str(place))
    found = [int(record.body["n"]) for record in reader.records()]
    reader.engine.dispose()
    with sqlite3.connect(place) as check:
        assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()
    return found


@given(share=st.floats(0, 1))
@hypothesis_settings(max_examples=60)
def test_journal__cut_at_any_byte_keeps_what_was_committed(written: Path, share: float) -> None:
    log = (written / "log").read_bytes()
    found = numbers((written / "before.db").read_bytes(), log[: round(share * len(log))], written)
    assert found == list(range(len(found)))
    assert len(found) >= N_RECORDS * share - 2


@given(share=st.floats(0, 1))
@hypothesis_settings(max_examples=30)
def test_journal__half_copied_checkpoint_loses_nothing(written: Path, share: float) -> None:
    before, after = ((written / name).read_bytes() for name in ("before.db", "after.db"))
    cut = round(share * len(after))
    assert numbers(after[:cut] + before[cut:], (written / "log").read_bytes(), written) == list(range(N_RECORDS))


@given(garbage=st.binary(min_size=1, max_size=200))
@hypothesis_settings(max_examples=20)
def test_journal__garbage_behind_the_log_is_not_read(written: Path, garbage: bytes) -> None:
    log = (written / "log").read_bytes()
    assert numbers((written / "before.db").read_bytes(), log + garbage, written) == list(range(N_RECORDS))


def test_journal__refuses_to_change_what_it_holds(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    journal.append("audit", 0.0, {"what": "x"})
    journal.sync(10)
    for statement in (RECORDS.delete(), RECORDS.update().values(kind="other")):
        with pytest.raises(sa.exc.IntegrityError, match="append-only"), journal.engine.begin() as connection:
            connection.execute(statement)
    journal.close()


def test_journal__has_one_writer(tmp_path: Path) -> None:
    first = Journal(str(tmp_path / "j.db"))
    with pytest.raises(AdapterError, match="another smartmig writes this journal"):
        Journal(str(tmp_path / "j.db"))
    first.close()
    Journal(str(tmp_path / "j.db")).close()


def test_journal__says_what_it_cannot_write_and_goes_on(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    whole = ClusterState(1.0, (), (JobRequest(JobKey("a", 0.0)),))
    half = replace(whole, queued=(JobRequest(JobKey("\ud800", 0.0)),))
    journal.append("audit", 0.0, {"what": "half a character \ud800"})
    journal.append("audit", 0.0, {"what": object()})
    for state in (whole, half, whole):
        journal.append_state(state)
    journal.sync(10)
    assert not journal.failed
    found = list(journal.reader.records())
    assert [record.kind for record in found] == ["error", "error", "state", "error", "state"]
    assert "kind audit cannot be written" in found[0].body["what"]
    assert "full" in found[-1].body, "a state that follows a lost one stands alone"
    journal.close()


def test_journal__tells_of_any_failure_and_writes_again_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(str(tmp_path / "j.db"))

    def fails() -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(journal.engine, "begin", fails)
        journal.append("audit", 0.0, {"what": "first"})
        with pytest.raises(AdapterError, match="no room"):
            journal.sync(10)
    journal.append("audit", 0.0, {"what": "second"})
    journal.sync(10)
    assert [record.body["what"] for record in journal.reader.records()] == ["first", "second"]
    journal.close()


def test_migrations__bring_an_older_journal_up_to_date(tmp_path: Path) -> None:
    place = tmp_path / "old.db"
    engine = open_store(str(place))
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE smartmig_tokens"))
        connection.execute(SCHEMA.delete().where(SCHEMA.c.version == 2))
        connection.execute(
            RECORDS.insert(), [{"time_s": 0.0, "session": "s", "kind": "audit", "body": '{"what": "kept"}'}]
        )
    assert migrate(engine) == len(MIGRATIONS)
    assert "smartmig_tokens" in sa.inspect(engine).get_table_names()
    assert [record.body for record in JournalReader(engine).records()] == [{"what": "kept"}]
    with engine.begin() as connection:
        connection.execute(SCHEMA.insert().values(version=99))
    with pytest.raises(AdapterError, match="newer smartmig"):
        migrate(engine)
    engine.dispose()


names = st.text("abc1.-", min_size=1, max_size=4)
times = st.one_of(st.floats(0, 1e9), st.just(1.7e9 + 1 / 3))
keys = st.builds(JobKey, names, times)
requests = st.builds(
    JobRequest,
    keys,
    n_gpus=st.integers(1, 9),
    limit_s=st.one_of(st.just(float("inf")), st.floats(1, 1e6)),
    gpu_model=st.sampled_from(["", "a100|v100"]),
    nodes=st.sampled_from([(), ("n1", "n2")]),
    user=st.sampled_from(["", "ü"]),
    run_s=st.sampled_from([(), (1.0, float("inf"), 0.5, 0.4, 1 / 3)]),
    deadline_s=st.sampled_from([float("inf"), 5.5]),
)
nodes = st.builds(
    NodeInfo,
    st.sampled_from(["n1"]),
    n_gpus=st.just(4),
    n_free=st.integers(0, 4),
    state=st.sampled_from(NodeState),
    gpus=st.sampled_from([(), (MigGpu("a100-40gb", (Instance(0, "7g.40gb", False),), (0,)),)]),
)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    jobs = draw(st.lists(requests, max_size=8, unique_by=lambda one: one.key))
    cut = draw(st.integers(0, len(jobs)))
    running = tuple(RunningJob(one, 3.25, (Share("n1", one.n_gpus),)) for one in jobs[cut:])
    return ClusterState(draw(times), (draw(nodes),), tuple(jobs[:cut]), running)


@given(state=states())
@hypothesis_settings(max_examples=60)
def test_state__survives_json(state: ClusterState) -> None:
    text = json.dumps(state_to_json(state), allow_nan=False)
    assert recorded_state(json.loads(text), "state") == state


@given(before=states(), after=states(), keep=st.integers(0, 8))
@hypothesis_settings(max_examples=100)
def test_difference__gives_the_state_again(before: ClusterState, after: ClusterState, keep: int) -> None:
    kept = before.queued[:keep]
    fresh = tuple(one for one in after.queued if one.key not in {other.key for other in before.queued})
    after = replace(after, queued=(*kept, *fresh))
    change = difference(before, after)
    if change is not None:
        assert changed_state(before, json.loads(json.dumps(change, allow_nan=False))) == after


@given(sequence=st.lists(states(), min_size=1, max_size=6))
@hypothesis_settings(max_examples=15)
def test_journal__gives_back_the_states_it_was_told(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[ClusterState]
) -> None:
    place = tmp_path_factory.mktemp("states") / "j.db"
    journal = Journal(str(place))
    for state in sequence:
        journal.append_state(state)
    journal.sync(10)
    reader, whole = States(), [record for record in journal.reader.records() if record.kind == "state"]
    assert [reader.read(record) for record in whole] == sequence
    for record, state in zip(whole, sequence, strict=True):
        found = journal.reader.state_at(record.seq)
        assert found == (record, state)
    assert journal.reader.state_at(whole[0].seq - 1) is None
    journal.close()


def test_records__are_found_by_what_they_hold_and_where_they_stand(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    assert journal.reader.span() is None
    for what in ("100 % late", "100 times", "ann_1", "annx1"):
        journal.append("audit", 0.0, {"what": what})
    journal.sync(10)

    def found(**wish: Any) -> list[str]:
        return [record.body["what"] for record in journal.reader.records(**wish)]

    assert journal.reader.span() == (1, 4)
    assert found(text="0 %") == ["100 % late"]
    assert found(text="n_1") == ["ann_1"]
    assert found(text="100", newest=True, before=2) == ["100 % late"]
    assert found(before=3, newest=True) == ["100 times", "100 % late"]
    journal.close()


def test_plan_and_memory__survive_json() -> None:
    plan = (
        Stop(JobKey("1", 2.5)),
        Repartition("n", 0, (Placement(0, "4g.20gb"), Placement(4, "3g.20gb"))),
        Start(JobKey("a", 1 / 3), (Share("n", 2), Share("m", 0, 1, 4))),
    )
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    memory = Memory(
        origin_s=0.0,
        n_events=3,
        next_check_s=float("inf"),
        seen=frozenset({JobKey("1", 0.5)}),
        held={JobKey("1", 0.5): ("u", 2)},
        users={"u": Use(1, 1 / 3, 2.0)},
        mix=(0.0, 1.5),
        flow=(1.0, 2.0, 3.0),
        up=("n",),
        promises={JobKey("2", 1.0): Promise(7.5, (("n", 2),))},
        targets={"n/0": (Placement(0, "7g.40gb"),)},
    )
    assert memory_from_json(json.loads(json.dumps(memory_to_json(memory), allow_nan=False))) == memory
