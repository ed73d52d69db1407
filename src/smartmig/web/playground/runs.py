"""Runs of the playground: one worker at a time, its progress, and a folder for each that a restart does not lose.

running -> done | failed | cancelled | interrupted (the server ended before the run did)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from smartmig.atomic import atomic_write
from smartmig.errors import AdapterError, InputError
from smartmig.web.playground.wish import GangWish, MigWish, Wish

MOST_KEPT = 30
"""Runs; older ones are removed."""

MOST_S = 900.0
"""A run that takes longer is ended: rules that look ahead can take hours."""

ID = re.compile(r"[0-9a-f]{10}")

Status = Literal["running", "done", "failed", "cancelled", "interrupted"]
Tell = Callable[[str, dict[str, Any]], None]


class RunAnswer(BaseModel):
    """Where a run stands."""

    id: str
    who: str = Field(description="whose token started it")
    began_s: float = Field(description="seconds since 1970 UTC")
    ended_s: float | None = None
    status: Status = "running"
    what: str = Field(default="starting", description="what is being done")
    done: int = 0
    total: int = 0
    detail: str = Field(default="", description="why it is not done")
    wish: Wish


class Busy(InputError):
    """A run is in progress."""


class Playground:
    """The runs of one server. Any thread may ask."""

    def __init__(self, folder: Path, tell: Tell, most_s: float = MOST_S) -> None:
        self.folder, self.tell, self.most_s = folder, tell, most_s
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self._watch: threading.Thread | None = None
        self._runs: dict[str, RunAnswer] = {}
        for run in self._kept():
            if run.status == "running":
                run = run.model_copy(update={"status": "interrupted", "ended_s": time.time(), "detail": RESTARTED})
                self._save(run)
            self._runs[run.id] = run

    def runs(self) -> list[RunAnswer]:
        """Newest first."""
        with self._lock:
            return sorted(self._runs.values(), key=lambda run: -run.began_s)

    def run(self, run_id: str) -> RunAnswer | None:
        with self._lock:
            return self._runs.get(run_id)

    def place(self, run_id: str, name: str) -> Path | None:
        """A file of a finished run."""
        run = self.run(run_id)
        path = self.folder / run_id / name
        return path if run is not None and run.status == "done" and path.is_file() else None

    def start(self, wish: MigWish | GangWish, who: str) -> RunAnswer:
        """Raises `Busy` while one is in progress, `InputError` for a wish that is too large or names unknown rules,
        `AdapterError` when there is no room for it."""
        wish.scenario()
        with self._lock:
            for other in self._runs.values():
                if other.status == "running":
                    raise Busy(f"a run of {other.who} is in progress; wait for it or cancel it, then try again")
            run = RunAnswer(id=secrets.token_hex(5), who=who, began_s=time.time(), wish=wish)
            place = self.folder / run.id
            try:
                place.mkdir(parents=True, mode=0o700)
                with atomic_write(place / "wish.json") as stream:
                    stream.write(wish.model_dump_json())
                self._save(run)
                self._process = _work(place)
            except (OSError, InputError) as error:
                shutil.rmtree(place, ignore_errors=True)
                raise AdapterError(f"the run cannot be kept: {error}") from None
            self._put(run)
            self._watch = threading.Thread(target=self._follow, args=(run.id, self._process), daemon=True)
            self._watch.start()
            self._forget_old()
            return run

    def cancel(self, run_id: str, who: str) -> RunAnswer | None:
        """Ends the run if it is in progress."""
        return self._end(run_id, "cancelled", f"cancelled by {who}")

    def close(self) -> None:
        """The server ends."""
        with self._lock:
            running = [run.id for run in self._runs.values() if run.status == "running"]
        for run_id in running:
            self._end(run_id, "interrupted", RESTARTED)
        if self._watch is not None:
            self._watch.join(10)

    def _follow(self, run_id: str, process: subprocess.Popen[str]) -> None:
        """Until the worker ends, on a thread of its own."""
        late = threading.Timer(self.most_s, self._end, (run_id, "failed", _too_long(self.most_s)))
        late.daemon = True
        late.start()
        said = ""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with contextlib.suppress(ValueError):
                    heard = json.loads(line)
                    said = heard.get("error", said)
                    if "total" in heard:
                        self._change(run_id, what=heard["what"], done=heard["done"], total=heard["total"])
        code = process.wait()
        late.cancel()
        if code == 0:
            self._change(run_id, status="done", ended_s=time.time(), what="")
        else:
            place = self.folder / run_id / "log"
            detail = said or f"the worker ended with code {code}; {place} tells more"
            self._change(run_id, status="failed", ended_s=time.time(), detail=detail[:500])

    def _end(self, run_id: str, status: Status, why: str) -> RunAnswer | None:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.status != "running":
                return run
            if self._process is not None:
                # The worker's own workers are of its session, and go with it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._change(run_id, status=status, ended_s=time.time(), detail=why)
            return self._runs[run_id]

    def _change(self, run_id: str, **update: Any) -> None:
        """Only a run in progress changes: what has ended stays as it ended."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.status != "running":
                return
            run = run.model_copy(update=update)
            if "status" in update:
                try:
                    self._save(run)
                except (OSError, InputError) as error:  # it has ended all the same
                    told = f"{run.detail}; and this cannot be kept: {error}" if run.detail else f"not kept: {error}"
                    run = run.model_copy(update={"detail": told[:500]})
            self._put(run)

    def _put(self, run: RunAnswer) -> None:
        self._runs[run.id] = run
        self.tell("playground", run.model_dump(mode="json", exclude={"wish"}))

    def _save(self, run: RunAnswer) -> None:
        with atomic_write(self.folder / run.id / "run.json") as stream:
            stream.write(run.model_dump_json())

    def _kept(self) -> list[RunAnswer]:
        """Those a former server left; a folder that cannot be read is nobody's run."""
        runs = []
        for path in sorted(self.folder.glob("*/run.json")):
            with contextlib.suppress(OSError, ValidationError):
                runs.append(TypeAdapter(RunAnswer).validate_json(path.read_bytes()))
        return runs

    def _forget_old(self) -> None:
        for run in self.runs()[MOST_KEPT:]:
            del self._runs[run.id]
            shutil.rmtree(self.folder / run.id, ignore_errors=True)


RESTARTED = "the server ended before the run did; run it again"


def _too_long(most_s: float) -> str:
    return f"ended after {most_s / 60:.0f} minutes; choose fewer days or policies, or a rule that does not look ahead"


def _work(place: Path) -> subprocess.Popen[str]:
    with (place / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "smartmig.web.playground.worker", str(place)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
