"""Structured logs: one JSON object a line, time first, quiet about turns in which nothing happened.

Lines are written by a thread of their own: whoever reads them may stop reading, and nobody who decides may wait for it.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

MOST_LINES = 10_000
"""that wait to be written; what comes beyond is lost, and a line says how much"""


class Sink(Protocol):
    """Where lines go: an unbuffered stream."""

    def write(self, data: bytes, /) -> int | None: ...


class JsonLog(logging.Handler):
    """Listens to a loop, and to what other parts of the program log."""

    def __init__(self, sink: Sink, most_lines: int = MOST_LINES) -> None:
        super().__init__(logging.WARNING)
        self._sink = sink
        self._lines: queue.Queue[bytes | None] = queue.Queue(most_lines)
        self._n_lost = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def say(self, level: str, what: str, **detail: Any) -> None:
        try:
            self._lines.put_nowait(_line(level, what, **detail))
        except queue.Full:
            self._n_lost += 1

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

    def emit(self, record: logging.LogRecord) -> None:
        """What a library or a thread of ours logs."""
        detail = {"error": repr(record.exc_info[1])} if record.exc_info and record.exc_info[1] else {}
        self.say(record.levelname.lower(), record.getMessage(), by=record.name, **detail)

    def end(self, patience_s: float = 2.0) -> None:
        """Write what waits; whoever does not read by then has it no more."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=patience_s)
            self._thread.join(patience_s)

    def _write(self) -> None:
        going = True
        while going:
            line = self._lines.get()
            going, text = line is not None, line or b""
            if self._n_lost:
                n_lost, self._n_lost = self._n_lost, 0
                text = _line("warning", "log lines were lost", n=n_lost) + text
            # A reader that went away, or a full disk, is no reason to stop what is logged.
            with suppress(OSError, ValueError):
                while text:
                    n_written = self._sink.write(text)
                    text = text[n_written or 0 :]
                    if n_written is None:  # somebody made the stream one that does not block
                        time.sleep(0.01)


def _line(level: str, what: str, **detail: Any) -> bytes:
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "what": what, **detail}
    return (json.dumps(line, ensure_ascii=False, default=str) + "\n").encode(errors="replace")
