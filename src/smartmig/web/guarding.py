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

from smartmig.control.tokens import Holder, Role, holder_of
from smartmig.errors import SmartmigError

COOKIE = "smartmig_token"
HOLDER = "smartmig.holder"
"""in a request's scope: who was let through already"""

MOST_BODY_BYTES = 65_536
"""The largest wish is a few kilobytes."""

bearer = HTTPBearer(auto_error=False, description="a token made with `smartmig token add`")
cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="the same token, for pages that only read")


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

    def holder(self, request: Request, token: str | None) -> Holder:
        """Raises `HTTPException` 401 for who has no valid token, 429 for who comes too often."""
        address = request.client.host if request.client else "?"
        found = holder_of(self.engine, token) if token else None
        # Wrong tokens cost ten times as much: trying them out is slow.
        wait_s = self.limit.wait_s(f"token {found.name}") if found else self.limit.wait_s(f"address {address}", 10.0)
        if wait_s > 0:
            raise HTTPException(429, "too many requests", {"Retry-After": str(int(wait_s) + 1)})
        if found is None:
            raise HTTPException(401, "needs a valid token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"})
        return found


def asks_for(role: Role, keeper: Doorkeeper) -> Callable[..., Holder]:
    """A dependency that lets holders of the role through."""

    def holder(
        request: Request,
        header: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
        kept: Annotated[str | None, Security(cookie)],
    ) -> Holder:
        found: Holder | None = request.scope.get(HOLDER)
        if found is None:
            found = keeper.holder(request, header.credentials if header is not None else kept)
        if role is Role.operator and found.role is not Role.operator:
            raise HTTPException(403, f"needs a token with the role operator; '{found.name}' is a {found.role.value}")
        return found

    return holder


class BodyGate:
    """Of requests that may have a body: asks who it is before any of it is read, and reads little.

    A cookie goes along with requests that other sites cause, so it is good for reading only, not here.
    """

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
