"""Who is asking, and how often: tokens and rate limits for every route."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import sqlalchemy as sa
from fastapi import HTTPException, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smartmig.control.tokens import Holder, Role, holder_of, still_holds
from smartmig.errors import SmartmigError
from smartmig.web.passes import Passes

COOKIE = "smartmig_reports"
COOKIE_PATH = "/playground"
HOLDER = "smartmig.holder"
"""in a request's scope: who was let through already"""

MOST_BODY_BYTES = 65_536
"""The largest wish is a few kilobytes."""

bearer = HTTPBearer(auto_error=False, description="a token made with `smartmig token add`")
cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="a pass of `login`, for reports only")


@dataclass
class Bucket:
    """Requests somebody may still make."""

    left: float
    since_s: float


@dataclass
class RateLimit:
    """So many requests a second on average, with bursts; by name, or by address for those without a token."""

    per_s: float = 50.0
    burst: float = 100.0
    buckets: dict[str, Bucket] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_s(self, who: str, cost: float = 1.0) -> float:
        """0: go on; otherwise how long to wait."""
        now_s = time.monotonic()
        with self.lock:
            if len(self.buckets) > 10_000:
                self.buckets.clear()
            bucket = self.buckets.setdefault(who, Bucket(self.burst, now_s))
            bucket.left = min(self.burst, bucket.left + (now_s - bucket.since_s) * self.per_s)
            bucket.since_s = now_s
            if bucket.left >= cost:
                bucket.left -= cost
                return 0.0
            return (cost - bucket.left) / self.per_s


class Doorkeeper:
    """Knows holders by their tokens, and how often each may come."""

    def __init__(self, engine: sa.Engine, limit: RateLimit) -> None:
        self.engine, self.limit = engine, limit
        self.passes = Passes()

    def holder(self, request: Request, token: str | None) -> Holder:
        """Raises `HTTPException` 401 for who has no valid token, 429 for who comes too often."""
        found = holder_of(self.engine, token) if token else None
        self._count(request, found.name if found else None)
        if found is None:
            raise HTTPException(401, "needs a valid token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"})
        return found

    def let_read(self, request: Request, token: str | None, kept: str | None) -> None:
        """The same for who may show a pass instead, which holds no longer than the token it was given for."""
        name = self.passes.holder(kept) if kept and not token else None
        if name is None or not still_holds(self.engine, name):
            self.holder(request, token)
        else:
            self._count(request, name)

    def _count(self, request: Request, name: str | None) -> None:
        address = request.client.host if request.client else "?"
        # Wrong tokens cost ten times as much: trying them out is slow.
        wait_s = self.limit.wait_s(f"token {name}") if name else self.limit.wait_s(f"address {address}", 10.0)
        if wait_s > 0:
            raise HTTPException(429, "too many requests", {"Retry-After": str(int(wait_s) + 1)})


def asks_for(role: Role, keeper: Doorkeeper) -> Callable[..., Holder]:
    """A dependency that lets holders of the role through."""

    def holder(
        request: Request,
        header: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
    ) -> Holder:
        found: Holder | None = request.scope.get(HOLDER)
        if found is None:
            found = keeper.holder(request, header.credentials if header is not None else None)
        if role is Role.operator and found.role is not Role.operator:
            raise HTTPException(403, f"needs a token with the role operator; '{found.name}' is a {found.role.value}")
        return found

    return holder


def asks_for_pass(keeper: Doorkeeper) -> Callable[..., None]:
    """A dependency that lets through who has a token or, as links send no header, a pass."""

    def reader(
        request: Request,
        header: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
        kept: Annotated[str | None, Security(cookie)],
    ) -> None:
        keeper.let_read(request, header.credentials if header is not None else None, kept)

    return reader


class BodyGate:
    """Of requests that may have a body: asks who it is before any of it is read, and reads little."""

    def __init__(self, app: ASGIApp, keeper: Doorkeeper) -> None:
        self.app, self.keeper = app, keeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        n_left = MOST_BODY_BYTES

        async def little() -> Message:
            nonlocal n_left
            message = await receive()
            n_left -= len(message.get("body", b""))
            if n_left < 0:
                raise HTTPException(413, f"the body is too large: allowed are {MOST_BODY_BYTES:,} bytes")
            return message

        try:
            header = await bearer(request)
            token = header.credentials if header is not None else None
            scope[HOLDER] = await run_in_threadpool(self.keeper.holder, request, token)
        except HTTPException as error:
            await JSONResponse({"detail": error.detail}, error.status_code, error.headers)(scope, receive, send)
        except SmartmigError as error:
            await JSONResponse({"detail": str(error)}, 503)(scope, receive, send)
        else:
            await self.app(scope, little, send)
