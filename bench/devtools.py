"""Chromium by its own protocol, over a pipe: a driver that follows every request makes the page keep each of them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --window-size=1440,900"


class Tab:
    """One page of a browser of its own."""

    def __init__(self, profile: Path, address: str) -> None:
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()
        command = f"exec chromium {FLAGS} --remote-debugging-pipe --user-data-dir={shlex.quote(str(profile))}"
        # The protocol is spoken on the descriptors 3 and 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f"{command} 3<&{to_browser} 4>&{from_browser}"],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._out, self._in = os.fdopen(ours, "wb", 0), os.fdopen(theirs, "rb")
        self._number, self._session, self._left = 0, "", b""
        self.said: list[str] = []
        """errors of the page and what it wrote to the console"""
        target = self.ask("Target.createTarget", url=address)["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Runtime.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            heard = self._next()
            if heard.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.said.append(json.dumps(heard["params"])[:300])
            if heard.get("id") == self._number:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']['message']}")
                result: dict[str, Any] = heard["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._in.fileno(), 1 << 16)
            if not part:
                raise ConnectionError("Chromium has ended")
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        heard: dict[str, Any] = json.loads(text)
        return heard

    def run(self, script: str) -> Any:
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"])[:500])
        return found["result"].get("value")

    def wait_for(self, script: str, timeout_s: float = 120.0) -> None:
        _until(lambda: bool(self.run(script)), timeout_s, script)

    def held_b(self) -> float:
        """What V8 and the document hold after a collection."""
        self.ask("HeapProfiler.collectGarbage")
        use = self.ask("Runtime.getHeapUsage")
        return float(use["usedSize"] + use["embedderHeapUsedSize"] + use["backingStorageSize"])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def _until(there: Callable[[], bool], timeout_s: float, what: str) -> None:
    end_s = time.monotonic() + timeout_s
    while not there():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.2)
