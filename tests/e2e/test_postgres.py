"""The journal in a real PostgreSQL: started here in a temporary folder, as a user who may."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from live_cluster import again, gang_loop, turn_all
from smartmig.cli.live_policy import PolicyNames
from smartmig.control.history import histories
from smartmig.control.journal import Journal, open_journal
from smartmig.control.store import MIGRATIONS, RECORDS, migrate, open_store
from smartmig.control.tokens import Role, add_token, holder_of, revoke_token
from smartmig.errors import AdapterError
from strategies import make_gangs

JOBS = make_gangs((0, 4, 30, 40), (0, 3, 20, 60), (1, 8, 10, 20), (2, 1, 5, 10), user="uvuv")


def programs() -> Path | None:
    """Debian keeps initdb and postgres out of the path."""
    for place in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (place / "initdb").exists():
            return place
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


class PostgresServer:
    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.binaries, self.user = folder, binaries, user()
        if self.user is not None:
            shutil.chown(folder, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        made = [binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "smartmig", "-E", "UTF8", "-N"]
        subprocess.run([*map(str, made)], user=self.user, check=True, capture_output=True, cwd=folder, timeout=120)
        self.url = f"postgresql://smartmig@127.0.0.1:{self.port}/postgres"
        self.start()

    def start(self) -> None:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder)]
        command = [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), *options]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, user=self.user, stdout=log, stderr=log, cwd=self.folder)
        engine = sa.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        for _ in range(300):
            try:
                engine.connect().close()
                break
            except sa.exc.OperationalError:
                time.sleep(0.1)
        engine.dispose()

    def stop(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes connections and what is sent, and answers nothing."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        family = [self.process.pid, *map(int, task.read_text().split())]
        try:
            for pid in family:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in family:
                os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    binaries = programs()
    if binaries is None:
        pytest.skip("needs a PostgreSQL server; install it with: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="smartmig-pg-"))  # pytest's own folders are closed to other users
    folder.chmod(0o755)
    running = PostgresServer(folder, binaries)
    yield running
    running.stop(signal.SIGINT)
    shutil.rmtree(folder, ignore_errors=True)


def test_postgres__holds_a_journal_that_gives_the_same_plans(server: PostgresServer, tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS, journal=server.url)
    turn_all(loop, cluster)
    assert len(cluster.ended) == len(JOBS)
    with pytest.raises(AdapterError, match="another smartmig writes this journal"):
        Journal(server.url)
    loop.journal.close()
    assert again(server.url, PolicyNames(), ("gang",)).n_different == 0
    (past,) = histories(open_journal(server.url).records())
    assert len(past.finished) == len(JOBS)


def test_postgres__is_append_only_and_up_to_date(server: PostgresServer) -> None:
    engine = open_store(server.url)
    assert migrate(engine) == len(MIGRATIONS)
    for statement in (RECORDS.delete(), RECORDS.update().values(kind="x"), sa.text("TRUNCATE smartmig_journal")):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
            connection.execute(statement)
    engine.dispose()


def test_postgres__keeps_tokens(server: PostgresServer) -> None:
    engine = open_store(server.url)
    token = add_token(engine, "ann", Role.operator)
    holder = holder_of(engine, token)
    assert holder is not None
    assert holder.role is Role.operator
    assert holder_of(engine, token + "x") is None
    revoke_token(engine, "ann")
    assert holder_of(engine, token) is None
    engine.dispose()


def test_postgres__what_was_synced_survives_kill_9_of_the_server(server: PostgresServer) -> None:
    journal = Journal(server.url)
    journal.append("audit", 1.0, {"what": "before"})
    journal.sync(30)
    server.stop(signal.SIGQUIT)  # immediate: no shutdown checkpoint, as after a crash
    journal.append("audit", 2.0, {"what": "while it is away"})
    with pytest.raises(AdapterError, match="the database refuses"):
        journal.sync(30)
    journal.close()
    server.start()
    kept = [record.body["what"] for record in open_journal(server.url).records(kinds=("audit",))]
    assert kept[-1] == "before"


def test_postgres__a_server_that_comes_back_gets_every_record_once(server: PostgresServer) -> None:
    journal = Journal(server.url)
    journal.append("audit", 1.0, {"what": "first"})
    journal.sync(30)
    server.stop(signal.SIGQUIT)
    journal.append("audit", 2.0, {"what": "second"})
    with pytest.raises(AdapterError, match="the database refuses"):
        journal.sync(30)
    server.start()
    journal.append("audit", 3.0, {"what": "third"})
    journal.sync(30)
    with pytest.raises(AdapterError, match="another smartmig writes this journal"):
        Journal(server.url)  # the lock came back with the server
    mine = [record.body["what"] for record in journal.reader.records() if record.session == journal.session]
    assert mine == ["first", "second", "third"]
    journal.close()


def test_postgres__a_server_that_hangs_is_said_to_and_costs_no_more_memory_than_allowed(server: PostgresServer) -> None:
    journal = Journal(server.url, most_late=100, silent_s=0.5)
    journal.append("audit", 1.0, {"what": "first"})
    journal.sync(30)
    assert journal.failed == ""
    with server.hanging():
        for at in range(10_000):
            journal.append("audit", 2.0, {"what": at})
            if at == 0:
                time.sleep(1.0)  # the writer has begun
                assert "has not answered for 1 s" in journal.failed
        with pytest.raises(AdapterError, match="has not answered"):
            journal.sync(0.1)
    journal.append("audit", 3.0, {"what": "last"})
    journal.sync(30)
    assert journal.failed == ""
    mine = [record for record in journal.reader.records() if record.session == journal.session]
    kept = [record.body["what"] for record in mine if record.kind == "audit"]
    (lost,) = [record.body["what"] for record in mine if record.kind == "error"]
    assert kept[:3] == ["first", 0, 1]
    assert len(kept) < 110
    assert lost == f"{10_002 - len(kept)} records were lost: the database did not take them in time"
    journal.close()


def test_postgres__whoever_comes_while_the_writer_was_cut_off_keeps_the_journal(server: PostgresServer) -> None:
    cut_off = Journal(server.url)
    cut_off.append("audit", 1.0, {"what": "first"})
    cut_off.sync(30)
    server.stop(signal.SIGQUIT)
    server.start()
    other = Journal(server.url)
    cut_off.append("audit", 2.0, {"what": "second"})
    with pytest.raises(AdapterError, match="another smartmig writes this journal"):
        cut_off.sync(30)
    other.append("audit", 3.0, {"what": "other"})
    other.sync(30)
    kept = [record.body["what"] for record in other.reader.records(kinds=("audit",))]
    assert kept[-2:] == ["first", "other"]
    other.close()
    cut_off.close()


def test_postgres__an_unreachable_server_is_one_sentence() -> None:
    with pytest.raises(AdapterError, match="the database refuses") as error:
        open_store("postgresql://ann:secret@127.0.0.1:1/none")
    assert "secret" not in str(error.value)
