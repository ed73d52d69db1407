"""Who may look and who may change things: named tokens with a role, kept only as salted hashes.

A token is `name.secret` with 256 random bits, so a plain fast hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from smartmig.control.store import RECORDS, TOKENS, refusing
from smartmig.errors import AdapterError, InputError

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Role(StrEnum):
    viewer = "viewer"
    """may read everything"""
    operator = "operator"
    """may also pause, change the mode and throw the kill switch"""


@dataclass(frozen=True)
class Holder:
    """A token, without its secret."""

    name: str
    role: Role
    made_s: float
    revoked_s: float | None = None


def add_token(engine: sa.Engine, name: str, role: Role) -> str:
    """A new token, shown once. Raises `InputError` for a bad or a known name."""
    if not NAME.fullmatch(name):
        raise InputError(f"'{name[:40]}': a token's name has 1 to 63 small letters, digits and dashes")
    secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
    with refusing(engine.url), engine.begin() as connection:
        if connection.scalar(sa.select(TOKENS.c.name).where(TOKENS.c.name == name)) is not None:
            raise InputError(f"there is, or was, a token '{name}'; choose another name")
        row = {"name": name, "role": role.value, "salt": salt, "digest": _digest(salt, secret), "made_s": time.time()}
        connection.execute(TOKENS.insert().values(**row))
        _audit(connection, "token add", name, role.value)
    return f"{name}.{secret}"


def revoke_token(engine: sa.Engine, name: str) -> None:
    """Holds from now on. Raises `InputError` when there is no such token."""
    with refusing(engine.url), engine.begin() as connection:
        valid = (TOKENS.c.name == name) & TOKENS.c.revoked_s.is_(None)
        done = connection.execute(TOKENS.update().where(valid).values(revoked_s=time.time()))
        if done.rowcount == 0:
            raise InputError(f"there is no valid token '{name[:40]}'")
        _audit(connection, "token revoke", name)


def _audit(connection: sa.Connection, what: str, name: str, role: str = "") -> None:
    """In the journal, in the same transaction; the controller may be running or not."""
    body = {"who": "command line", "what": what, "name": name} | ({"role": role} if role else {})
    record = {"time_s": time.time(), "session": "command line", "kind": "audit", "body": json.dumps(body)}
    connection.execute(RECORDS.insert().values(**record))


def list_tokens(engine: sa.Engine) -> list[Holder]:
    with refusing(engine.url), engine.connect() as connection:
        rows = connection.execute(sa.select(TOKENS).order_by(TOKENS.c.made_s)).all()
    return [Holder(row.name, Role(row.role), row.made_s, row.revoked_s) for row in rows]


def holder_of(engine: sa.Engine, token: str) -> Holder | None:
    """Whose token this is, if it is one and still holds."""
    name, _, secret = token.partition(".")
    if not NAME.fullmatch(name) or not secret.isascii() or len(token) > 200:
        return None
    with refusing(engine.url), engine.connect() as connection:
        row = connection.execute(sa.select(TOKENS).where(TOKENS.c.name == name)).one_or_none()
    if row is None or row.revoked_s is not None or not hmac.compare_digest(row.digest, _digest(row.salt, secret)):
        return None
    return Holder(row.name, Role(row.role), row.made_s)


def still_holds(engine: sa.Engine, name: str) -> bool:
    """Whether the token of that name, once shown to be somebody's, was not revoked since; False when nobody can say."""
    query = sa.select(TOKENS.c.name).where(TOKENS.c.name == name, TOKENS.c.revoked_s.is_(None))
    try:
        with refusing(engine.url), engine.connect() as connection:
            return connection.scalar(query) is not None
    except AdapterError:
        return False


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}{secret}".encode()).hexdigest()
