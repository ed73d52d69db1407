"""Where records lie: SQLite in a file by default, PostgreSQL by URL; its tables, and how older ones are brought up to
date.

Records can be added and read, never changed: the database itself refuses. In SQLite every commit reaches the disk
(write-ahead log, synchronous=FULL) before it counts: a process that is killed, or a log cut off at any byte, leaves the
records committed up to there.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.exc import DatabaseError, SQLAlchemyError

from smartmig.errors import AdapterError, InputError

METADATA = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up in an INTEGER only

RECORDS = sa.Table(
    "smartmig_journal",
    METADATA,
    sa.Column("seq", _ID, primary_key=True, autoincrement=True),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)

TOKENS = sa.Table(
    "smartmig_tokens",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("salt", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("made_s", sa.Double, nullable=False),
    sa.Column("revoked_s", sa.Double),
)

SCHEMA = sa.Table("smartmig_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True))


def _make_journal(change: Operations) -> None:
    change.create_table(
        "smartmig_journal",
        sa.Column("seq", _ID, primary_key=True, autoincrement=True),
        sa.Column("time_s", sa.Double, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    change.create_index("smartmig_journal_kind", "smartmig_journal", ["kind", "seq"])
    if change.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            change.execute(
                f"CREATE TRIGGER smartmig_no_{verb.lower()} BEFORE {verb} ON smartmig_journal "
                "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
            )
        return
    change.execute(
        "CREATE FUNCTION smartmig_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$"
    )
    change.execute(
        "CREATE TRIGGER smartmig_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON smartmig_journal "
        "FOR EACH STATEMENT EXECUTE FUNCTION smartmig_append_only()"
    )


def _make_tokens(change: Operations) -> None:
    change.create_table(
        "smartmig_tokens",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("salt", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("made_s", sa.Double, nullable=False),
        sa.Column("revoked_s", sa.Double),
    )


PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""For a PostgreSQL server whose machine is gone, by libpq's names; seconds, the last one milliseconds."""

MIGRATIONS: tuple[Callable[[Operations], None], ...] = (_make_journal, _make_tokens)
"""Version n is what the first n make; never change one that was released, add another."""


def open_store(place: str, create: bool = True) -> sa.Engine:
    """An engine for a file or a URL, its tables up to date; not `create`: for a look, which changes nothing.

    Raises `InputError` for a place that is none or holds no journal, `AdapterError` for a database that does not answer
    or refuses.
    """
    url = _url(place, create)
    sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"connect_args": {"timeout": 30} if sqlite else PATIENCE}
    if sqlite and not create:
        options = {"creator": partial(_look_at, str(url.database))}
    elif not sqlite and create:
        options["pool_pre_ping"] = True
    elif not sqlite:
        options |= {"poolclass": sa.NullPool, "execution_options": {"postgresql_readonly": True}}
    try:
        engine = sa.create_engine(url, **options)
    except ImportError as error:
        raise AdapterError(f"{_shown(url)}: a driver is missing ({error.name}); pip install 'smartmig[live]'") from None
    except SQLAlchemyError as error:
        raise InputError(f"{_shown(url)}: not a database URL ({error})") from None
    if sqlite and create:
        sa.event.listen(engine, "connect", _prepare_sqlite)
    with refusing(url):
        (migrate if create else _require)(engine)
    return engine


def _url(place: str, create: bool) -> sa.URL:
    if "://" not in place:
        return _file_url(place, place, create)
    try:
        url = sa.make_url(place)
    except (SQLAlchemyError, ValueError):
        raise InputError(f"{place.rpartition('@')[2]}: not a database URL, as postgresql://user@host:5432/db") from None
    if url.get_backend_name() == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() != "sqlite":
        raise InputError(f"{_shown(url)}: a journal lies in SQLite or PostgreSQL, not in {url.get_backend_name()}")
    if not url.database or url.database == ":memory:" or url.host or url.query:
        raise InputError(
            f"{_shown(url)}: a journal lies in a file, and nothing else is set, as in sqlite:///journal.db"
        )
    return _file_url(_shown(url), url.database, create)


def _file_url(named: str, place: str, create: bool) -> sa.URL:
    path = Path(place)
    doing = "write" if create else "read"
    try:
        if path.is_dir():
            raise InputError(f"{named}: cannot {doing}: it is a folder")
        if not create and not path.is_file():
            raise InputError(f"{named}: no such journal")
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{named}: cannot {doing}: {error.strerror}") from None
    return sa.URL.create("sqlite", database=str(path))


def _look_at(path: str) -> sqlite3.Connection:
    """For reading. Where there is no write-ahead log nobody writes, and nothing need be made beside the file."""
    quiet = "" if Path(f"{os.path.realpath(path)}-wal").exists() else "&immutable=1"
    return sqlite3.connect(f"file:{quote(path)}?mode=ro{quiet}", uri=True, timeout=30, check_same_thread=False)


def _shown(url: sa.URL) -> str:
    return url.render_as_string(hide_password=True)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


@contextmanager
def refusing(url: sa.URL) -> Iterator[None]:
    """A database's complaint as one sentence of ours."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, UnicodeError) as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise AdapterError(f"{_shown(url)}: the database refuses: {reason[:300]}") from None


def migrate(engine: sa.Engine) -> int:
    """Bring the tables to the newest version; refuses those of a newer smartmig. Returns the version."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Two daemons that start together must not both create the tables.
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(760314)"))
        else:
            # Python's driver begins none for tables: one that is killed half-way must leave nothing, and two not meet.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        SCHEMA.create(connection, checkfirst=True)
        present = _version(connection)
        change = Operations(MigrationContext.configure(connection))
        for version in range(present, len(MIGRATIONS)):
            MIGRATIONS[version](change)
            connection.execute(SCHEMA.insert().values(version=version + 1))
    return len(MIGRATIONS)


def _require(engine: sa.Engine) -> None:
    """Our tables, of this version or an older one: every version so far has its records in the same table."""
    try:
        with engine.connect() as connection:
            found = sa.inspect(connection).has_table(SCHEMA.name) and _version(connection) > 0
    except DatabaseError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:
            raise
        found = False
    if not found:
        raise InputError(f"{_shown(engine.url)}: not a journal: smartmig has written nothing there")


def _version(connection: sa.Connection) -> int:
    """0: nothing yet."""
    present: int = connection.scalar(sa.select(sa.func.max(SCHEMA.c.version))) or 0
    if present > len(MIGRATIONS):
        raise AdapterError(
            f"{_shown(connection.engine.url)}: schema {present} is from a newer smartmig; "
            f"this one knows {len(MIGRATIONS)}"
        )
    return present


class OnlyWriter:
    """One controller per journal: the second is refused while the first lives, however it ends."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._file: Any = None
        self._connection: sa.Connection | None = None
        if engine.url.get_backend_name() == "sqlite":
            place = f"{engine.url.database}.lock"
            try:
                self._file = Path(place).open("w")  # noqa: SIM115 (held as long as we live)
            except OSError as error:
                raise InputError(f"{place}: cannot write: {error.strerror}") from None
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise AdapterError(f"{engine.url.database}: another smartmig writes this journal") from None
            return
        self.hold()

    def hold(self) -> None:
        """Still, or again: a server that was away has forgotten. Raises `AdapterError` when another one has come."""
        if self._file is not None:
            return
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.scalar(sa.text("SELECT 1"))
                return
            with suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None
        with refusing(self._engine.url):
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            if not connection.scalar(sa.text("SELECT pg_try_advisory_lock(760315)")):
                connection.close()
                raise AdapterError(f"{_shown(self._engine.url)}: another smartmig writes this journal")
        self._connection = connection

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._connection is not None:
            self._connection.close()
