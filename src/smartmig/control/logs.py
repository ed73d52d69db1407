"""Structured logs: one JSON object a line, time first, quiet about turns in which nothing happened."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import IO, Any


class JsonLog:
    """Listens to a loop."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._lock = threading.Lock()

    def say(self, level: str, what: str, **detail: Any) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "what": what, **detail}
        with self._lock:
            self.stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
            self.stream.flush()

    def hear(self, event: str, body: dict[str, Any]) -> None:
        if event == "error":
            self.say("error", str(body["what"]))
        elif event == "audit":
            self.say("info", "audit", **{("did" if name == "what" else name): value for name, value in body.items()})
        elif event == "decision" and (body["plan"] or body["refused"]):
            numbers = {"n": body["n"], "mode": body["mode"], "actions": len(body["plan"])}
            self.say("info", "decision", **numbers, refused=len(body["refused"]), took_s=round(body["took_s"], 6))
            for one in body["refused"]:
                self.say("warning", "refused", why=one["why"])
            if "fallback" in body:
                self.say("warning", "fallback", why=body["fallback"])
        elif event == "outcome":
            for one in body["outcomes"]:
                if not one["done"]:
                    self.say("warning", "not done", why=one["why"])
