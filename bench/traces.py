"""How fast traces of a million jobs are read, against the loop over csv.DictReader that anyone would write first."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.measure import Outcome, best_of
from smartmig.types import Floats, Ints
from smartmig.workload.gang.helios import HeliosJobs
from smartmig.workload.gang.sacct import SacctJobs
from smartmig.workload.table import Texts

N_JOBS = 1_000_000
FIRST = np.datetime64("2020-04-01T00:00:00", "s")


class Made:
    """Five months of made-up jobs."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.submit = FIRST + np.sort(rng.integers(0, 13_000_000, N_JOBS))
        self.wait_s = rng.integers(0, 5000, N_JOBS)
        self.run_s = rng.lognormal(6, 2, N_JOBS).astype(np.int64) + 1
        self.n_gpus = rng.choice([1, 1, 2, 4, 8], N_JOBS)


@contextmanager
def written(header: str, rows: Iterator[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        with path.open("w") as stream:
            stream.write(f"{header}\n")
            stream.writelines(rows)
        yield path


def helios_rows(made: Made) -> Iterator[str]:
    stamps = np.strings.replace(made.submit.astype(np.str_), "T", " ").tolist()
    columns = zip(stamps, made.run_s.tolist(), made.n_gpus.tolist(), strict=True)
    return (f"{at}#{at},0.0,{run}.0,{n},{stamp}\n" for at, (stamp, run, n) in enumerate(columns))


def sacct_rows(made: Made) -> Iterator[str]:
    submit = made.submit.astype(np.str_).tolist()
    start = (made.submit + made.wait_s).astype(np.str_).tolist()
    columns = zip(submit, start, made.run_s.tolist(), made.n_gpus.tolist(), strict=True)
    return (
        f"{at // 9}_{at % 9}|u{at % 500}|gpu|COMPLETED|{came}|{began}|{run}|1-00:00:00|"
        f"billing={8 * n},cpu={4 * n},gres/gpu:a100={n},gres/gpu={n},mem={32 * n}G,node=1\n"
        for at, (came, began, run, n) in enumerate(columns)
    )


def plain_loop(path: Path) -> tuple[Texts, Floats, Floats, Ints]:
    ids, submit_s, run_s, n_gpus = [], [], [], []
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            ids.append(row["job_id"])
            submit_s.append(datetime.fromisoformat(row["submit_time_derived"]).replace(tzinfo=UTC).timestamp())
            run_s.append(float(row["service_sec"]))
            n_gpus.append(int(row["gpu_count"]))
    return np.array(ids), np.array(submit_s), np.array(run_s), np.array(n_gpus)


def against_loop() -> Outcome:
    with written("job_id,arrival_s,service_sec,gpu_count,submit_time_derived", helios_rows(Made())) as path:
        jobs, report = HeliosJobs(path).read()
        ids, submit_s, run_s, n_gpus = plain_loop(path)
        # The ids rise with the rows, so (submission, id) is the order of the file.
        assert np.array_equal(jobs.job_id, ids)
        assert np.array_equal(jobs.origin_s + jobs.submit_s, submit_s)
        assert np.array_equal(jobs.run_s, run_s)
        assert np.array_equal(jobs.n_gpus, n_gpus)
        assert report.used == N_JOBS
        loop_s = best_of(1, lambda: plain_loop(path))
        read_s = best_of(3, lambda: HeliosJobs(path).read())
    detail = f"{read_s:.2f} s a million rows of 5 columns; loop {loop_s:.2f} s, unsorted and unchecked"
    return Outcome(loop_s / read_s, "x", detail, at_least=1.5)


def dump() -> Outcome:
    made = Made()
    with written("JobID|User|Partition|State|Submit|Start|ElapsedRaw|Timelimit|AllocTRES", sacct_rows(made)) as path:
        jobs = SacctJobs(path).jobs()
        assert np.array_equal(jobs.run_s, made.run_s)
        assert np.array_equal(jobs.waited_s, made.wait_s)
        assert np.array_equal(jobs.n_gpus, made.n_gpus)
        assert set(jobs.gpu_model.tolist()) == {"a100"}
        megabytes = path.stat().st_size / 1e6
        seconds = best_of(3, lambda: SacctJobs(path).jobs())
    return Outcome(seconds, "s", f"sacct -P, a million jobs, {megabytes:.0f} MB", at_most=10.0)


BENCHMARKS = {"trace-vs-dictreader": against_loop, "trace-sacct-million": dump}
