"""What a browser may open without a header: passes to the reports, which say nothing of the token they stand for.

A cookie goes to every server on the same host, whatever its port, and outlives the tab; so it holds no token.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field

AGE_S = 12 * 3600.0
MOST_EACH = 20
"""Passes of one holder: tabs and browsers. The oldest goes first."""


@dataclass
class Passes:
    """Only in memory: with the server they are gone."""

    held: dict[str, dict[str, float]] = field(default_factory=dict)
    """by the holder's name: pass -> until when"""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def give(self, name: str) -> str:
        now_s, made = time.monotonic(), secrets.token_urlsafe(32)
        with self.lock:
            valid = [(one, end_s) for one, end_s in self.held.get(name, {}).items() if end_s > now_s]
            self.held[name] = {**dict(valid[-MOST_EACH + 1 :]), made: now_s + AGE_S}
        return made

    def holder(self, text: str) -> str | None:
        """Whose pass this is."""
        now_s = time.monotonic()
        with self.lock:
            return next((name for name, mine in self.held.items() if mine.get(text, 0.0) > now_s), None)

    def take_back(self, name: str) -> None:
        """All of that holder's: a browser does not say here which is its own."""
        with self.lock:
            self.held.pop(name, None)
