"""`python -m bench.soak --minutes 60`: a busy simulated cluster with the dashboard open; does anything grow?

Not one of the benchmarks of `python -m bench`: it takes as long as it is told to. Page memory is what V8 and the
document hold after a forced collection; the server's is its resident set. Growth counts from the end of the warm-up,
when tables are full and everything is compiled, to the mean of the last tenth.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.devtools import Tab

MEBI = 2**20
MOST_GROWTH = 0.20


@dataclass(frozen=True)
class Sample:
    minute: float
    events_per_s: float
    page_b: float
    server_b: float
    n_elements: int
    """of the document"""


class Served:
    """`smartmig serve` in a process of its own, by its first token."""

    def __init__(self, folder: Path, adapter: str) -> None:
        self.log = folder / "log"
        flags = f"--port 0 --mode act --repartition mean-field --adapter {adapter}".split()
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("smartmig"), "serve", *flags],
                stderr=stream,
                env={**os.environ, "SMARTMIG_HOME": str(folder)},
            )
        self.url = self._find(r'"url": "(http://[^"]+)"')
        self.token = self._find(r'"token": "([^"]+)"')

    def _find(self, pattern: str) -> str:
        while not (found := re.search(pattern, self._head())):
            if self.process.poll() is not None:
                sys.exit(self._head())
            time.sleep(0.2)
        return found[1]

    def _head(self) -> str:
        with self.log.open() as stream:
            return stream.read(100_000)

    def resident_b(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        return 1024.0 * int(found[1]) if found else float("nan")

    def n_events(self) -> tuple[int, float]:
        """How many events the server has told so far, by the number of the next one, and when it came."""
        request = urllib.request.Request(f"{self.url}/events", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as stream:
            for line in stream:
                if line.startswith(b"id: "):
                    return int(line[4:]), time.monotonic()
        raise ConnectionError("the server ended while its events were counted")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def look(served: Served, tab: Tab, began_s: float, before: tuple[int, float]) -> Sample:
    told, now_s = served.n_events()
    return Sample(
        minute=(time.monotonic() - began_s) / 60,
        events_per_s=(told - before[0]) / max(now_s - before[1], 1e-9),
        page_b=tab.held_b(),
        server_b=served.resident_b(),
        n_elements=int(tab.run("document.getElementsByTagName('*').length")),
    )


def soak(minutes: float, adapter: str) -> list[Sample]:
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        served = Served(Path(folder), adapter)
        tab = None
        try:
            tab = Tab(Path(folder) / "profile", served.url)
            tab.wait_for("document.querySelector('#sign-in:not([hidden])') !== null")
            tab.run(f"document.getElementById('token').value = '{served.token}'")
            tab.run("document.getElementById('token-form').requestSubmit()")
            tab.wait_for("document.querySelector('#effect .bar') !== null")
            began_s, before = time.monotonic(), served.n_events()
            time.sleep(5)
            print("minute  events/s  page MiB  elements  server MiB", flush=True)
            while True:
                one = look(served, tab, began_s, before)
                before = served.n_events()
                samples.append(one)
                print(
                    f"{one.minute:6.1f}  {one.events_per_s:8.0f}  {one.page_b / MEBI:8.2f}  {one.n_elements:8d}  "
                    f"{one.server_b / MEBI:10.1f}",
                    flush=True,
                )
                if one.minute >= minutes:
                    break
                time.sleep(min(max(began_s + 60 * minutes - time.monotonic(), 0), 60))
            if tab.said:
                sys.exit(f"the console was not clean: {tab.said[:5]}")
        finally:
            if tab is not None:
                tab.close()
            served.stop()
    return samples


def growth(samples: list[Sample], name: str, warm_up: float) -> float:
    """From the end of the warm-up to the mean of the last tenth, as a share."""
    settled = [one for one in samples if one.minute >= warm_up]
    last = settled[-max(1, len(samples) // 10) :]
    first = float(getattr(settled[0], name))
    return sum(float(getattr(one, name)) for one in last) / len(last) / first - 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=None, help="minutes; default: a sixth of the run")
    parser.add_argument("--adapter", default="simulated:load=0.8,speedup=0", help="as in `smartmig serve`")
    given = parser.parse_args()
    warm_up = given.warm_up if given.warm_up is not None else given.minutes / 6
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    samples = soak(given.minutes, given.adapter)
    rates = [one.events_per_s for one in samples]
    page, server = (growth(samples, name, warm_up) for name in ("page_b", "server_b"))
    print(f"{sum(rates) / len(rates):.0f} events/s over {samples[-1].minute:.0f} minutes, warm-up {warm_up:g}")
    print(f"page memory {page:+.1%}, server memory {server:+.1%} (at most {MOST_GROWTH:+.0%})")
    return int(max(page, server) > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
