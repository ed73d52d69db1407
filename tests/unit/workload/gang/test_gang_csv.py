"""Our own file of whole-GPU jobs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.workload.gang.jobs_csv import CsvGangs, write_gang_jobs

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "gang_jobs.csv"
HEADER = "job_id,submit_s,run_s,n_gpus"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return path


def test_read__sorts_and_keeps_what_is_unknown() -> None:
    jobs = CsvGangs(SAMPLE).jobs()
    assert jobs.job_id.tolist() == ["first", "job-2", "job-10"]
    assert jobs.limit_s.tolist() == [math.inf, math.inf, 3600]
    assert np.array_equal(jobs.waited_s, [math.nan, math.nan, 12], equal_nan=True)
    assert jobs.group.tolist() == ["", "a, b", "gpu"]
    assert jobs.gpu_model.tolist() == ["", "", "a100|v100"]
    assert jobs.origin_s == 1.6e9


def test_read__four_columns_are_enough(tmp_path: Path) -> None:
    jobs = CsvGangs(written(tmp_path, f"{HEADER}\na,5,60,2\n")).jobs()
    assert (jobs.user[0], jobs.origin_s, jobs.limit_s[0]) == ("", 0, math.inf)


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.csv.gz"])
def test_write__gives_the_same_bytes_every_time(tmp_path: Path, name: str) -> None:
    jobs = CsvGangs(SAMPLE).jobs()
    write_gang_jobs(jobs, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    write_gang_jobs(CsvGangs(tmp_path / name).jobs(), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_write__refuses_line_breaks(tmp_path: Path) -> None:
    jobs = CsvGangs(SAMPLE).jobs()
    jobs.user[1] = "a\nb"
    with pytest.raises(InputError, match=r"jobs\.csv: cannot write user 'a\\nb': it holds a line break"):
        write_gang_jobs(jobs, tmp_path / "jobs.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{HEADER},colour\na,0,1,1,x\n", r":1: no column 'colour'"),
        ("job_id,submit_s,run_s\na,0,1\n", r":1: missing column n_gpus"),
        (f"{HEADER}\na,-1,1,1\n", r":2: submit_s is '-1', not a number from 0"),
        (f"{HEADER}\na,0,0,1\n", r":2: run_s is '0', not a number above 0"),
        (f"{HEADER}\na,0,1,0\n", r":2: n_gpus is '0', not a whole number from 1"),
        (f"{HEADER}\na,0,1,1.5\n", r":2: n_gpus is '1.5', not a whole number from 1"),
        (f"{HEADER},limit_s\na,0,1,1,0\n", r":2: limit_s is '0', not a number above 0"),
        (f"{HEADER},waited_s\na,0,1,1,-3\n", r":2: waited_s is '-3', not a number from 0"),
        (f"{HEADER}\n,0,1,1\n", r":2: job_id is empty"),
        (f"{HEADER}\na,0,1,1\na,0,1,1\n", r":3: job_id 'a' stands twice"),
        (f"{HEADER},origin_s\na,0,1,1,5\nb,0,1,1,6\n", r":3: origin_s is 6.0, but 5.0 further up"),
    ],
)
def test_read__mistake_is_one_sentence_with_file_and_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"jobs\.csv{sentence}"):
        CsvGangs(written(tmp_path, text)).jobs()
