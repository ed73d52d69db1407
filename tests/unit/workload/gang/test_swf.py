"""Logs of the Parallel Workloads Archive."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.workload.gang.swf import SwfJobs

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "log.swf"
RECORD = "1 0 10 100 8 -1 -1 8 600 -1 1 11 5 -1 -1 2 -1 -1"


def log(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_read__takes_waits_requests_and_groups_from_the_log() -> None:
    jobs, report = SwfJobs(SAMPLE).read()
    assert jobs.job_id.tolist() == ["1", "2", "5", "6"]
    assert jobs.origin_s == 1600000000 // 86400 * 86400
    assert (jobs.origin_s + jobs.submit_s).tolist() == [1600000000, 1600000050, 1600000080, 1600000090]
    assert jobs.n_gpus.tolist() == [8, 16, 6, 4]  # asked for; used where nothing was asked
    assert jobs.limit_s.tolist() == [600, math.inf, 600, 600]
    assert np.array_equal(jobs.waited_s, [10, math.nan, 0, 0], equal_nan=True)
    assert jobs.user.tolist() == ["11", "12", "", "11"]
    assert jobs.group.tolist() == ["hybrid", "cpu", "3", ""]  # two partitions are called spare
    assert report.skipped == {
        "a stretch of a job that another line sums up": 1,
        "run time unknown": 1,
        "ran for no time": 1,
        "processors unknown": 1,
    }


def test_procs_per_gpu__rounds_up() -> None:
    assert SwfJobs(SAMPLE, procs_per_gpu=4).jobs().n_gpus.tolist() == [2, 4, 2, 1]
    with pytest.raises(InputError, match="procs_per_gpu: got 0"):
        SwfJobs(SAMPLE, procs_per_gpu=0)


def test_groups__are_queues_or_groups_where_there_are_no_partitions(tmp_path: Path) -> None:
    queue = log(tmp_path, "; Queue: 3 night", RECORD.replace("-1 -1 2 -1 -1", "-1 3 -1 -1 -1"))
    assert SwfJobs(queue).jobs().group.tolist() == ["night"]
    users = log(tmp_path, RECORD.replace("-1 -1 2 -1 -1", "-1 -1 -1 -1 -1"))
    jobs, report = SwfJobs(users).read()
    assert jobs.group.tolist() == ["5"]
    assert "unknown" in report.assumptions["clock"]


def test_broken_lines__are_reported(tmp_path: Path) -> None:
    other = RECORD.replace("1 0 10", "2 0 10", 1)
    path = log(
        tmp_path,
        "; UnixStartTime: 10",
        RECORD,
        "1 2 3",
        other.replace("600", "long"),
        other.replace(" 1 11 ", " 9 11 "),
        other.replace("2 0 10", "2 -1 10"),
        RECORD,
        other,
    )
    jobs, report = SwfJobs(path).read()
    assert jobs.job_id.tolist() == ["1", "2"]
    assert report.broken == {
        "other than 18 fields": (3,),
        "time is not a number from -1 to 1e+15": (4,),
        "status is not a whole number from -1 to 5": (5,),
        "submit is not a number from 0 to 1e+15": (6,),
        "job id stands twice": (7,),
    }
    with pytest.raises(InputError, match=r"log\.swf:3: 3 fields, but a row has 18"):
        SwfJobs(path).jobs()


@pytest.mark.parametrize(
    ("start", "fits"),
    [("; Version: 2\n", True), (f"{RECORD}\n", True), (f"; x\n{RECORD}", True), ("a,b\n", False), ("1 2 3\n", False),
     ("", False), (RECORD.replace("600", "x"), False)],
)  # fmt: skip
def test_missing__tells_logs_from_other_files(start: str, fits: bool) -> None:
    assert (SwfJobs.missing(start) == []) is fits
