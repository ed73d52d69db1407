"""Logs never hold up who logs: readers that stop, go away, or take a few bytes at a time."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smartmig.control.logs import JsonLog


class Stuck:
    """A reader that takes the first line when it is told to."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.got = b""

    def write(self, data: bytes) -> int:
        self.may_go.wait(30)
        self.got += data
        return len(data)


class Narrow(io.BytesIO):
    """Takes three bytes at a time, and now and then none at all, as a pipe that does not block."""

    turns = 0

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        self.turns += 1
        return None if self.turns % 5 == 0 else super().write(data[:3])


def lines(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_log__waits_for_nobody_and_says_what_was_lost() -> None:
    sink = Stuck()
    log = JsonLog(sink, most_lines=5)
    for at in range(1000):
        log.say("info", "line", at=at)
    sink.may_go.set()
    log.end()
    got = lines(sink.got)
    kept = [line["at"] for line in got if line["what"] == "line"]
    lost = sum(line["n"] for line in got if line["what"] == "log lines were lost")
    assert kept == sorted(kept)
    assert len(kept) + lost == 1000
    assert 5 <= len(kept) <= 7


def test_log__ends_though_nobody_reads() -> None:
    log = JsonLog(Stuck(), most_lines=2)
    for _ in range(10):
        log.say("info", "line")
    log.end(patience_s=0.1)


def test_log__goes_on_when_a_line_cannot_be_written() -> None:
    class Full:
        got = b""

        def write(self, data: bytes) -> int:
            if b"first" in data:
                raise OSError(28, "No space left on device")
            self.got += data
            return len(data)

    sink = Full()
    log = JsonLog(sink)
    log.say("info", "first")
    log.say("info", "second")
    log.end()
    assert [line["what"] for line in lines(sink.got)] == ["second"]


def test_log__writes_whole_lines_through_a_narrow_pipe() -> None:
    sink = Narrow()
    log = JsonLog(sink)
    log.say("info", "häß\nlich", who="ann \udcff")
    log.end()
    assert [(line["what"], line["who"]) for line in lines(sink.getvalue())] == [("häß\nlich", "ann ?")]


@contextmanager
def on_root(log: JsonLog) -> Iterator[None]:
    logging.getLogger().addHandler(log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(log)


def test_log__hears_what_others_log() -> None:
    sink = io.BytesIO()
    log = JsonLog(sink)
    with on_root(log):
        logging.getLogger("some.server").warning("Invalid %s", "request")
        logging.getLogger("some.library").info("unimportant")
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("some.library").exception("it broke")
    log.end()
    said = [{name: value for name, value in line.items() if name != "time"} for line in lines(sink.getvalue())]
    assert said == [
        {"level": "warning", "what": "Invalid request", "by": "some.server"},
        {"level": "error", "what": "it broke", "by": "some.library", "error": "ValueError('why')"},
    ]
