"""Server-sent events: what the loop says, to everyone who listens."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

HEARTBEAT_S = 15.0
ROOM = 1000
"""A listener that is so many events behind is dropped."""

MOST_STREAMS = 20
"""One holder may have at a time."""

ASK_EVERY_S = 2.0
"""How soon a listener whose token was revoked is sent away."""


class Hub:
    """Any thread may `tell`; listeners live in the server's event loop."""

    def __init__(self) -> None:
        self._listeners: dict[asyncio.Queue[str | None], str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0
        self.streams: Counter[str] = Counter()
        """open ones by their holders' names"""

    def tell(self, event: str, body: dict[str, Any]) -> None:
        if self._loop is None or not self._listeners:
            return
        self._number += 1
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str)
        message = f"id: {self._number}\nevent: {event}\ndata: {text}\n\n"
        try:
            self._loop.call_soon_threadsafe(self._spread, event, message)
        except RuntimeError:
            self._loop = None  # the server has stopped

    def _spread(self, event: str, message: str) -> None:
        for listener, only in list(self._listeners.items()):
            if only and event != only:
                continue
            try:
                listener.put_nowait(message)
            except asyncio.QueueFull:
                del self._listeners[listener]
                while not listener.empty():
                    listener.get_nowait()
                listener.put_nowait(None)

    async def listen(
        self, ends: Callable[[], bool], only: str = "", may: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[str]:
        """Events from now on (`only`: of this kind), until the listener goes, may no longer listen or the server ends.

        `may` is asked on a thread, now and then.
        """
        self._loop = asyncio.get_running_loop()
        mine: asyncio.Queue[str | None] = asyncio.Queue(ROOM)
        self._listeners[mine] = only
        spoke_s = asked_s = time.monotonic()
        try:
            yield ": smartmig events\n\n"
            while not ends():
                if time.monotonic() - asked_s >= ASK_EVERY_S:
                    if not await asyncio.to_thread(may):
                        return
                    asked_s = time.monotonic()
                try:
                    message = await asyncio.wait_for(mine.get(), 0.5)
                except TimeoutError:
                    if time.monotonic() - spoke_s < HEARTBEAT_S:
                        continue
                    message = ": still here\n\n"
                if message is None:
                    return
                spoke_s = time.monotonic()
                yield message
        finally:
            self._listeners.pop(mine, None)


class Stream(StreamingResponse):
    """A holder's stream of events, if there are not too many of theirs."""

    def __init__(self, hub: Hub, name: str, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self.hub, self.name = hub, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams = self.hub.streams
        if streams[self.name] >= MOST_STREAMS:
            detail = f"too many event streams: '{self.name}' has {MOST_STREAMS}"
            await JSONResponse({"detail": detail}, 429, {"Retry-After": "5"})(scope, receive, send)
            return
        streams[self.name] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            streams[self.name] -= 1
            if not streams[self.name]:
                del streams[self.name]
