"""Who is asking, and how often: tokens and rate limits for every route."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import sqlalchemy as sa
from fastapi import HTTPException, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from smartmig.control.tokens import Holder, Role, holder_of

COOKIE = "smartmig_token"

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


def asks_for(role: Role, engine: sa.Engine, limit: RateLimit) -> Callable[..., Holder]:
    """A dependency that lets holders of the role through."""

    def holder(
        request: Request,
        header: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
        kept: Annotated[str | None, Security(cookie)],
    ) -> Holder:
        address = request.client.host if request.client else "?"
        # A cookie goes along with requests other sites cause, so it is good for reading only.
        reads = request.method in ("GET", "HEAD")
        token = header.credentials if header is not None else (kept if reads else None)
        found = holder_of(engine, token) if token else None
        # Wrong tokens cost ten times as much: trying them out is slow.
        wait_s = limit.wait_s(f"token {found.name}") if found else limit.wait_s(f"address {address}", 10.0)
        if wait_s > 0:
            raise HTTPException(429, "too many requests", {"Retry-After": str(int(wait_s) + 1)})
        if found is None:
            raise HTTPException(401, "needs a valid token: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"})
        if role is Role.operator and found.role is not Role.operator:
            raise HTTPException(403, f"needs a token with the role operator; '{found.name}' is a {found.role.value}")
        return found

    return holder
