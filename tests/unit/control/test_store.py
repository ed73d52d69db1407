"""Where journals lie: what may be opened, and that a look changes nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from smartmig.cli.app import make_app
from smartmig.control.journal import Journal, open_journal
from smartmig.control.store import MIGRATIONS, open_store
from smartmig.control.tokens import Role, add_token
from smartmig.errors import InputError, SmartmigError


def run(*args: object) -> str:
    done = CliRunner().invoke(make_app([str(args[0])]), [str(arg) for arg in args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def looks(place: object) -> list[tuple[object, ...]]:
    return [
        ("journal", "show", place),
        ("journal", "export", place, "-o", "/dev/null"),
        ("replay", place),
        ("token", "list", "--journal", place),
        ("token", "revoke", "ann", "--journal", place),
    ]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Somebody else's database, an empty file, and a text."""
    for name, mode in (("plain.db", "delete"), ("log.db", "wal")):
        with sqlite3.connect(tmp_path / name) as made:
            made.execute(f"PRAGMA journal_mode={mode}")
            made.execute("CREATE TABLE theirs (x)")
        made.close()
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("not a database, though long enough to be looked at as one\n" * 20)
    return tmp_path


@pytest.mark.parametrize("name", ["plain.db", "log.db", "empty.db", "text.db"])
def test_looks__leave_what_is_no_journal_as_it_is(foreign: Path, name: str) -> None:
    before = contents(foreign)
    for place in (foreign / name, f"sqlite:///{foreign / name}"):
        for words in looks(place):
            with pytest.raises(InputError, match=f"{name}: not a journal"):
                run(*words)
    assert contents(foreign) == before


def test_looks__make_no_journal_that_is_missing(tmp_path: Path) -> None:
    for place in (tmp_path / "none.db", f"sqlite:///{tmp_path / 'none.db'}"):
        for words in looks(place):
            with pytest.raises(InputError, match=r"none\.db: no such journal"):
                run(*words)
    assert contents(tmp_path) == {}


def test_looks__change_nothing_in_a_journal(tmp_path: Path) -> None:
    place = tmp_path / "a %41?#.db"
    journal = Journal(str(place))
    journal.append("audit", 0.0, {"what": "x"})
    journal.close()
    place.with_name(f"{place.name}.lock").unlink()
    before = contents(tmp_path)
    assert json.loads(run("journal", "show", place, "--json"))[0]["body"] == {"what": "x"}
    assert run("token", "list", "--journal", place)
    assert contents(tmp_path) == before


def test_looks__see_what_a_killed_controller_left_in_the_log(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    journal.append("audit", 0.0, {"what": "x"})
    journal.sync(10)
    left = tmp_path / "left"
    left.mkdir()
    for name in ("j.db", "j.db-wal"):
        shutil.copy(tmp_path / name, left / name)
    journal.close()
    before = contents(left)
    assert [record.body for record in open_journal(str(left / "j.db")).records()] == [{"what": "x"}]
    assert {name: data for name, data in contents(left).items() if name in before} == before


def test_looks__read_journals_of_older_versions(tmp_path: Path) -> None:
    engine = open_store(str(tmp_path / "old.db"))
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE smartmig_tokens"))
        connection.execute(sa.text("DELETE FROM smartmig_schema WHERE version = 2"))
    engine.dispose()
    reader = open_journal(str(tmp_path / "old.db"))
    assert list(reader.records()) == []
    with pytest.raises(sa.exc.OperationalError, match="readonly"), reader.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE more (x)"))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("sqlite://", "a journal lies in a file"),
        ("sqlite:///:memory:", "a journal lies in a file"),
        ("sqlite://journal.db", "a journal lies in a file"),
        ("sqlite:///journal.db?mode=memory", "a journal lies in a file"),
        ("postgresql://ann:secret@host:port/db", "host:port/db: not a database URL"),
        ("postgresql://[::1/db", "not a database URL"),
        ("postgresql://127.0.0.1:1/db?plugin=x", "not a database URL"),
        ("postgresql://127.0.0.1:1/db?colour=red", "the database refuses"),
        ("postgresql://a\ud800/db", "the database refuses"),
        (".", "it is a folder"),
        ("j" * 300, "File name too long"),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_places__that_are_none_are_refused_in_a_sentence(
    place: str, said: str, create: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SmartmigError, match=said) as refused:
        open_store(place, create)
    assert "secret" not in str(refused.value)
    assert contents(tmp_path) == {}


def test_writer__says_when_its_lock_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "j.db.lock").mkdir()
    with pytest.raises(InputError, match=r"j\.db\.lock: cannot write"):
        Journal(str(tmp_path / "j.db"))


def test_tokens__are_listed_by_url_as_by_path(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path / 'j.db'}")
    add_token(engine, "ann", Role.viewer)
    engine.dispose()
    assert json.loads(run("token", "list", "--journal", tmp_path / "j.db", "--json"))[0]["name"] == "ann"


KILLED = """
import os, sys
from itertools import count
import sqlalchemy as sa
from smartmig.control.store import MIGRATIONS, open_store

for last in count(1):
    child = os.fork()
    if child == 0:
        done = count(1)
        sa.event.listen(sa.Engine, "after_cursor_execute", lambda *_: next(done) == last and os._exit(9))
        open_store(f"{sys.argv[1]}/{last}.db")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    open_store(f"{sys.argv[1]}/{last}.db")
print(last)
"""


def test_store__can_be_opened_though_the_first_opening_was_killed_at_any_statement(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > len(MIGRATIONS)


def test_store__is_made_once_by_many_who_open_it_at_the_same_time(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(open_store, [str(tmp_path / "journal.db")] * 8))
    with engines[0].connect() as connection:
        versions = connection.scalars(sa.text("SELECT version FROM smartmig_schema")).all()
    assert versions == list(range(1, len(MIGRATIONS) + 1))
    for engine in engines:
        engine.dispose()


def test_journal__its_writer_waits_for_nobody_who_looks(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal.db"))
    journal.append("audit", 1.0, {"what": "x"})
    journal.sync(30)
    with ExitStack() as looking:
        for _ in range(15):
            looking.enter_context(journal.reader.engine.connect()).execute(sa.text("SELECT 1"))
        journal.append("audit", 2.0, {"what": "y"})
        journal.sync(5)
    assert journal.reader.span() == (1, 2)
    journal.close()
