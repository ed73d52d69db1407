"""`smartmig token`: who may use the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from smartmig.cli.console import Json, output, print_json
from smartmig.cli.live_places import JournalPlace, journal_place, needs

app = typer.Typer(help="Tokens of the API: add, list, revoke. Only hashes are kept.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Small letters, digits and dashes.")]


def _store(journal: str, create: bool = True) -> Any:
    needs("smartmig token", "sqlalchemy", "alembic")
    from smartmig.control.store import open_store

    return open_store(journal_place(journal), create)


@app.command()
def add(
    name: Name,
    role: Annotated[str, typer.Option(help="viewer or operator.")] = "viewer",
    journal: JournalPlace = "",
    json_output: Json = False,
) -> None:
    """Make a token and print it: it is shown this once."""
    store = _store(journal)
    from smartmig.control.tokens import Role, add_token
    from smartmig.errors import InputError

    if role not in [one.value for one in Role]:
        raise InputError(f"--role: got '{role}', allowed are {', '.join(Role)}")
    token = add_token(store, name, Role(role))
    if json_output:
        print_json({"name": name, "role": role, "token": token})
    else:
        print(token)


@app.command("list")
def list_all(journal: JournalPlace = "", json_output: Json = False) -> None:
    """Tokens by name and role, without their secrets."""
    from dataclasses import asdict

    store = _store(journal, create=False)
    from smartmig.control.tokens import list_tokens

    holders = list_tokens(store)
    if json_output:
        print_json([asdict(holder) for holder in holders])
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "role", "made", "revoked"):
        table.add_column(column)
    for holder in holders:
        revoked = _day(holder.revoked_s) if holder.revoked_s is not None else ""
        table.add_row(holder.name, holder.role.value, _day(holder.made_s), revoked)
    output().print(table)


@app.command()
def revoke(name: Name, journal: JournalPlace = "") -> None:
    """Make a token invalid, from now on and for good."""
    _store(journal, create=False).dispose()  # a journal that is not there holds no token, and need not be made
    store = _store(journal)
    from smartmig.control.tokens import revoke_token

    revoke_token(store, name)
    print(f"token '{name}' no longer holds")


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
