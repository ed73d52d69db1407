"""Where records lie: SQLite in a file by default, PostgreSQL by URL; its tables, and how older ones are brought up to
date.

Records can be added and read, never changed: the database itself refuses. In SQLite every commit reaches the disk
(write-ahead log, synchronous=FULL) before it counts: a process that is killed, or a log cut off at any byte, leaves the
records committed up to there.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

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


MIGRATIONS: tuple[Callable[[Operations], None], ...] = (_make_journal, _make_tokens)
"""Version n is what the first n make; never change one that was released, add another."""


def open_store(place: str, create: bool = True) -> sa.Engine:
    """An engine for a file or a URL, its tables up to date.

    Raises `InputError` for a place that is none, `AdapterError` for a database that does not answer or refuses.
    """
    url = _url(place, create)
    options: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 10}}
        if not create:
            options = {"poolclass": sa.NullPool, "connect_args": {"connect_timeout": 10}}  # a look leaves nothing open
    else:
        options = {"connect_args": {"timeout": 30}}
    try:
        engine = sa.create_engine(url, **options)
    except ImportError as error:
        raise AdapterError(f"{_shown(url)}: a driver is missing ({error.name}); pip install 'smartmig[live]'") from None
    if url.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
    with refusing(url):
        migrate(engine)
    return engine


def _url(place: str, create: bool) -> sa.URL:
    if "://" in place:
        try:
            url = sa.make_url(place)
        except SQLAlchemyError:
            raise InputError(f"{place.partition('@')[2] or place}: not a database URL") from None
        if url.get_backend_name() not in ("postgresql", "sqlite"):
            raise InputError(f"{_shown(url)}: a journal lies in SQLite or PostgreSQL, not in {url.get_backend_name()}")
        return url.set(drivername="postgresql+psycopg") if url.get_backend_name() == "postgresql" else url
    path = Path(place)
    if not create and not path.is_file():
        raise InputError(f"{place}: no such journal")
    if path.is_dir():
        raise InputError(f"{place}: cannot write: it is a folder")
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{place}: cannot write: {error.strerror}") from None
    return sa.URL.create("sqlite", database=str(path))


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
    except (DBAPIError, SQLAlchemyError) as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise AdapterError(f"{_shown(url)}: the database refuses: {reason[:300]}") from None


def migrate(engine: sa.Engine) -> int:
    """Bring the tables to the newest version; refuses those of a newer smartmig. Returns the version."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # Two daemons that start together must not both create the tables.
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(760314)"))
        SCHEMA.create(connection, checkfirst=True)
        present = connection.scalar(sa.select(sa.func.max(SCHEMA.c.version))) or 0
        if present > len(MIGRATIONS):
            raise AdapterError(
                f"{_shown(engine.url)}: schema {present} is from a newer smartmig; this one knows {len(MIGRATIONS)}"
            )
        change = Operations(MigrationContext.configure(connection))
        for version in range(present, len(MIGRATIONS)):
            MIGRATIONS[version](change)
            connection.execute(SCHEMA.insert().values(version=version + 1))
    return len(MIGRATIONS)


class OnlyWriter:
    """One controller per journal: the second is refused while the first lives, however it ends."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._file: Any = None
        self._connection: sa.Connection | None = None
        if engine.url.get_backend_name() == "sqlite":
            place = f"{engine.url.database}.lock"
            self._file = Path(place).open("w")  # noqa: SIM115 (held as long as we live)
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
