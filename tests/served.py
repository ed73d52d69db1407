"""`smartmig serve` as a real process, for tests that talk to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SMARTMIG = Path(sys.executable).with_name("smartmig")
PATIENCE_S = 300
"""A fresh checkout compiles each rule on its first use, and the machines are slow."""


def smartmig(folder: Path, *args: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SMARTMIG_HOME": str(folder)}
    command = [str(SMARTMIG), *map(str, args)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


class Daemon:
    """A running controller on a simulated cluster."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.folder = folder
        self.log = folder / f"log-{time.monotonic_ns()}"
        environment = {**os.environ, "SMARTMIG_HOME": str(folder)}
        command = [str(SMARTMIG), "serve", "--port", "0", *args]
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(command, env=environment, stderr=stream, stdout=stream)
        found = self.wait_for(r'"url": "(http://[^"]+)"')
        self.url = found[1]

    def wait_for(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"no {pattern} in:\n{self.log.read_text()[-3000:]}")

    def until(self, happened: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        end_s = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < end_s, f"waited in vain\n{self.log.read_text()[-3000:]}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)
