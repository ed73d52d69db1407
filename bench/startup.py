"""How long the first use takes (everything compiled) and every later one (loaded from the cache)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Outcome

SCRIPT = """
from smartmig.cli import main
import sys
sys.argv = ["smartmig", "simulate", "--jobs", sys.argv[1], "--json"]
main()
"""


def _run(cache: Path, jobs: Path) -> tuple[float, str]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(jobs)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - begun, done.stdout


def _jobs(folder: Path) -> Path:
    from smartmig.workload.jobs_csv import write_jobs
    from smartmig.workload.poisson import FixedRate

    path = folder / "jobs.csv"
    write_jobs(FixedRate(n_jobs=50).jobs(seed=0), path)
    return path


def first_use() -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = _run(Path(folder) / "cache", _jobs(Path(folder)))
    return Outcome(seconds, "s", "smartmig simulate, empty cache", at_most=60.0)


def later_use() -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        jobs = _jobs(Path(folder))
        _, first = _run(Path(folder) / "cache", jobs)
        again = [_run(Path(folder) / "cache", jobs) for _ in range(3)]
    assert all(out == first for _, out in again), "the cached kernel gave another answer"
    return Outcome(min(seconds for seconds, _ in again), "s", "the same, cache filled", at_most=2.0)


BENCHMARKS = {"first-use": first_use, "later-use": later_use}
