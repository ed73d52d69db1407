"""Dumps of Slurm's accounting."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from smartmig.errors import InputError
from smartmig.workload.gang.sacct import SacctJobs, duration_s
from smartmig.workload.gang.tres import gpu_count, gpu_models

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "sacct.txt"
HEADER = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES"
ROW = "7|COMPLETED|2024-05-01T08:00:00|2024-05-01T08:00:10|60|cpu=1,gres/gpu=2"


def dump(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "dump.txt"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def test_read__takes_jobs_that_ran_with_gpus() -> None:
    jobs, report = SacctJobs(SAMPLE).read()
    assert jobs.job_id.tolist() == ["100", "101_1", "101_2", "104", "100#2"]
    assert jobs.n_gpus.tolist() == [4, 1, 1, 3, 1]
    assert jobs.gpu_model.tolist() == ["a100", "", "", "a100|v100", ""]
    assert jobs.run_s.tolist() == [93784, 3610, 60, 20, 7]
    assert jobs.limit_s.tolist() == [172800, 3600, 3600, math.inf, math.inf]
    assert jobs.waited_s.tolist() == [600, 30, 300, 0, 2]
    assert jobs.user.tolist() == ["ann", "bob", "bob", "cid", "ann"]
    assert set(jobs.group.tolist()) == {"gpu"}
    assert report.broken == {}
    assert report.skipped == {
        "a step of a job": 2,
        "ran on another cluster of the federation": 1,
        "still running when the dump was made": 1,
        "never started": 2,
        "asked for no GPU": 1,
        "ran for no time": 1,
    }


def test_columns__stand_in_any_order_and_may_be_few(tmp_path: Path) -> None:
    names = HEADER.split("|")
    path = dump(tmp_path, "|".join(reversed(ROW.split("|"))), header="|".join(reversed(names)))
    jobs = SacctJobs(path).jobs()
    assert (jobs.run_s[0], jobs.n_gpus[0], jobs.waited_s[0]) == (60, 2, 10)
    assert (jobs.user[0], jobs.group[0], jobs.limit_s[0]) == ("", "", math.inf)


def test_parsable__with_a_separator_at_the_end(tmp_path: Path) -> None:
    assert len(SacctJobs(dump(tmp_path, f"{ROW}|", header=f"{HEADER}|")).jobs()) == 1


@pytest.mark.parametrize(
    ("header", "row", "run_s", "limit_s"),
    [
        ("Elapsed|Timelimit", "1-00:00:01|00:30:00", 86401, 1800),
        ("Elapsed|TimelimitRaw", "05:06|90", 306, 5400),
        ("End|TimelimitRaw", "2024-05-01T09:00:10|UNLIMITED", 3600, math.inf),
        ("ElapsedRaw|Timelimit", "5|Partition_Limit", 5, math.inf),
        ("ElapsedRaw|Timelimit", "5|", 5, math.inf),
    ],
)
def test_times__in_every_form(tmp_path: Path, header: str, row: str, run_s: float, limit_s: float) -> None:
    base = "1|COMPLETED|2024-05-01T08:00:00|2024-05-01T08:00:10|gres/gpu=1"
    jobs = SacctJobs(dump(tmp_path, f"{base}|{row}", header=f"JobID|State|Submit|Start|ReqTRES|{header}")).jobs()
    assert (jobs.run_s[0], jobs.limit_s[0]) == (run_s, limit_s)


def test_arrays__that_ran_are_taken_apart(tmp_path: Path) -> None:
    path = dump(tmp_path, ROW.replace("7|", "7_[2-4,8-12:2,20%3]|"), ROW.replace("7|", "7_1|"))
    jobs, report = SacctJobs(path).read()
    assert jobs.job_id.tolist() == [f"7_{task}" for task in (1, 2, 3, 4, 8, 10, 12, 20)]
    assert set(jobs.n_gpus.tolist()) == {2}
    assert (report.rows, report.used) == (2, 2)


def test_broken_rows__are_reported(tmp_path: Path) -> None:
    rows = [
        ROW,
        ROW.replace("COMPLETED", "DONE"),
        ROW.replace("|60|", "|a while|"),
        ROW.replace("gpu=2", "gpu=two"),
        ROW.replace("2024-05-01T08:00:10", "yesterday"),
        ROW.replace("2024-05-01T08:00:00", "Unknown"),
        ROW.replace("T08:00:10", "T07:00:00"),
        ROW.replace("7|", "7_[1,2,...]|"),
        ROW.replace("7|", "7_[1-99999999]|"),
        ROW.replace("cpu=1", "cpu=1|1"),
        ROW.replace("7|", "|"),
        ROW,
        "8.batch||nonsense||||",
    ]
    _, report = SacctJobs(dump(tmp_path, *rows)).read()
    assert (report.used, report.skipped) == (1, {})
    assert report.broken == {
        "other than 6 fields": (11, 14),
        "JobID is empty": (12,),
        "State is not a state of a Slurm job": (3,),
        "Start is not a time like 2020-04-01 12:00:00": (6,),
        "Submit is not a time like 2020-04-01 12:00:00": (7,),
        "AllocTRES is not a list of resources with whole numbers of GPUs": (5,),
        "ElapsedRaw is not a number from 0 to 1e+15": (4,),
        "Start is before Submit": (8,),
        "JobID is not a job or a list of array tasks": (9, 10),
        "JobID stands twice": (13,),
    }


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("JobID|State|Submit|Start|ElapsedRaw", "missing column AllocTRES or ReqTRES"),
        ("JobID|State|Submit|Start|ReqTRES", "missing column ElapsedRaw, Elapsed or End"),
        ("JobID|State|Submit|ReqTRES|ElapsedRaw", "missing column Start"),
    ],
)
def test_columns__that_are_missing_are_named(tmp_path: Path, header: str, said: str) -> None:
    values = dict(zip(HEADER.split("|"), ROW.split("|"), strict=True)) | {"ReqTRES": "gres/gpu=1"}
    row = "|".join(values[name] for name in header.split("|"))
    with pytest.raises(InputError, match=rf"dump\.txt:1: {said}"):
        SacctJobs(dump(tmp_path, row, header=header)).read()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00:00", 0), ("1-02:03:04", 93784), ("02:03:04", 7384), ("03:04", 184), ("00:01.500", 1.5),
     ("100-00:00:00", 8640000)],
)  # fmt: skip
def test_duration__is_read(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "1-02", "UNLIMITED", "1-02:03", "-1:00", "1:2:3:4", "a:b"])
def test_duration__refuses(text: str) -> None:
    assert math.isnan(duration_s(text))


@pytest.mark.parametrize(
    ("tres", "count", "models"),
    [
        ("", 0, ""),
        ("cpu=4,mem=8G,node=1", 0, ""),
        ("billing=8,gres/gpu=2", 2, ""),
        ("gres/gpu:a100=2,gres/gpu=2", 2, "a100"),
        ("gres/gpu=3,gres/gpu:v100=1,gres/gpu:a100=2", 3, "a100|v100"),
        ("gres/gpu:v100=1,gres/gpu:a100=2", 3, "a100|v100"),
        ("gres/gpumem=80G,gres/gpuutil=5", 0, ""),
        ("gres/gpu:a100_3g.20gb=1", 1, "a100_3g.20gb"),
    ],
)
def test_tres__has_gpus(tres: str, count: float, models: str) -> None:
    assert (gpu_count(tres), gpu_models(tres)) == (count, models)


@pytest.mark.parametrize("tres", ["gres/gpu=", "gres/gpu", "gres/gpu=-1", "gres/gpu=1.5", "gres/gpu:a100=x,gres/gpu=1"])
def test_tres__refuses(tres: str) -> None:
    assert math.isnan(gpu_count(tres))
