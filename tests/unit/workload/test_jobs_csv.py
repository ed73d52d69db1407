"""The job file: what it accepts, and one sentence with file and line for each mistake."""

from __future__ import annotations

import gzip
import io
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.jobs_csv import CsvJobs, read_jobs, write_jobs
from smartmig.workload.order import natural_key

HEADER = "job_id,arrive_s,deadline_s,run_1g_s,run_2g_s,run_3g_s,run_4g_s,run_7g_s"
GOOD = f"{HEADER}\nb,10,90,50,40,30,20,10\na,5,70,,,30,20,10\n"


def same(one: Jobs, other: Jobs) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Jobs))


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_read__sorts_by_arrival_and_keeps_what_does_not_fit(tmp_path: Path) -> None:
    jobs = read_jobs(written(tmp_path, GOOD))
    assert jobs.job_id.tolist() == ["a", "b"]
    assert jobs.run_s[0].tolist() == [np.inf, np.inf, 30.0, 20.0, 10.0]
    assert jobs.kind.tolist() == ["", ""]
    assert jobs.memory_gb.tolist() == [0.0, 0.0]


def test_read__ties_are_in_natural_order(tmp_path: Path) -> None:
    ids = ["job-10", "job-9", "2", "10", "job-010", "a", ""]
    rows = "".join(f"{i},0,9,1,1,1,1,1\n" for i in ids if i)
    jobs = read_jobs(written(tmp_path, f"{HEADER}\n{rows}"))
    assert jobs.job_id.tolist() == ["2", "10", "a", "job-9", "job-010", "job-10"]
    assert sorted(["9" * 5000, "1" + "0" * 5000], key=natural_key)[0] == "9" * 5000
    assert sorted(["a1", "a", "ab", "a01", "a0", "b"], key=natural_key) == ["a", "a0", "a01", "a1", "ab", "b"]


def test_read__columns_stand_in_any_order(tmp_path: Path) -> None:
    text = (
        "memory_gb,run_7g_s,run_4g_s,run_3g_s,run_2g_s,run_1g_s,deadline_s,arrive_s,job_id,kind\n,1,2,3,4,5,7,6,x,k\n"
    )
    jobs = read_jobs(written(tmp_path, text))
    assert jobs.run_s.tolist() == [[5, 4, 3, 2, 1]]
    assert (jobs.arrive_s[0], jobs.deadline_s[0], jobs.kind[0], jobs.memory_gb[0]) == (6, 7, "k", 0)


def test_read__takes_gzip_bom_crlf_blank_lines_and_spaces(tmp_path: Path) -> None:
    plain = read_jobs(written(tmp_path, GOOD))
    dressed = "\ufeff" + GOOD.replace(",", ", ").replace("\n", "\r\n") + "\r\n\r\n"
    assert same(plain, read_jobs(written(tmp_path, dressed)))
    packed = tmp_path / "jobs.csv.gz"
    packed.write_bytes(gzip.compress(GOOD.encode(), mtime=0))
    assert same(plain, read_jobs(packed))
    assert same(plain, CsvJobs(packed).jobs())
    assert CsvJobs(packed).read()[1].used == 2


def test_read__run_times_may_rise_with_size(tmp_path: Path) -> None:
    assert len(read_jobs(written(tmp_path, f"{HEADER}\na,0,9,1,2,3,4,5\n"))) == 1


ROW = "a,0,9,5,4,3,2,1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"jobs\.csv:1: empty file; expected a header with job_id"),
        ("\n\n", r"jobs\.csv:1: empty file"),
        (HEADER, r"jobs\.csv: no rows below the header"),
        ("job_id,arrive_s,run_1g_s\n1,2,3\n", r"jobs\.csv:1: missing columns deadline_s, run_2g_s, run_3g_s"),
        (HEADER.removesuffix(",run_7g_s") + "\n", r"jobs\.csv:1: missing column run_7g_s"),
        (f"{HEADER},knd\n{ROW},x\n", r"jobs\.csv:1: no column 'knd'. Did you mean 'kind'\?"),
        (f"{HEADER},job_id\n{ROW},x\n", r"jobs\.csv:1: column 'job_id' stands twice"),
        (f"{HEADER}\n{ROW}\nb,x,9,5,4,3,2,1\n", r"jobs\.csv:3: arrive_s is 'x', not a number"),
        (f"{HEADER}\n{ROW}\nb,1_0,90,5,4,3,2,1\n", r"jobs\.csv:3: arrive_s is '1_0', not a number"),
        (f"{HEADER}\n{ROW}\n\nb,,9,5,4,3,2,1\n", r"jobs\.csv:4: arrive_s is empty"),
        (f"{HEADER}\n{ROW}\nb,0,nan,5,4,3,2,1\n", r"jobs\.csv:3: deadline_s is 'nan', not a number"),
        (f"{HEADER}\n{ROW}\nb,0,9,inf,4,3,2,1\n", r"jobs\.csv:3: run_1g_s is 'inf', not a number"),
        (f"{HEADER}\n{ROW}\nb,0,9,,nan,3,2,1\n", r"jobs\.csv:3: run_2g_s is 'nan', not a number"),
        (f"{HEADER}\n{ROW}\nb,0,1e99,5,4,3,2,1\n", r"jobs\.csv:3: deadline_s is '1e99', not a number up to 1e\+15"),
        (f"{HEADER}\n{ROW}\nb,-1,9,5,4,3,2,1\n", r"jobs\.csv:3: arrive_s is -1\.0, below 0"),
        (f"{HEADER}\n{ROW}\nb,0,9,5,-4,3,2,1\n", r"jobs\.csv:3: run_2g_s is -4\.0; a run time is above 0"),
        (f"{HEADER}\n{ROW}\nb,0,9,5,4,3,2,0\n", r"jobs\.csv:3: run_7g_s is 0\.0; a run time is above 0"),
        (f"{HEADER}\n{ROW}\nb,10,9,5,4,3,2,1\n", r"jobs\.csv:3: deadline_s 9\.0 is before arrive_s 10\.0"),
        (f"{HEADER}\n{ROW}\nb,0,9,,,,,\n", r"jobs\.csv:3: job 'b' has no run time on any size"),
        (f"{HEADER}\n{ROW}\nb,0,9,5,4,3,2,1\n{ROW}\n", r"jobs\.csv:4: job_id 'a' stands twice"),
        (f"{HEADER}\n{ROW}\n,0,9,5,4,3,2,1\n", r"jobs\.csv:3: job_id is empty"),
        (f"{HEADER}\n{ROW}\n{'x' * 300},0,9,5,4,3,2,1\n", r"jobs\.csv:3: job_id has 300 characters"),
        (f"{HEADER}\n{ROW}\nb,0,9,5,4,3,2\n", r"jobs\.csv:3: 7 fields, but the header has 8"),
        (f"{HEADER}\n{ROW}\n\nb,0,9,5,4,3,2,1,7\n", r"jobs\.csv:4: 9 fields, but the header has 8"),
        (f'{HEADER},kind\n{ROW},"k,l"\nc,x,9,5,4,3,2,1,k\n', r"jobs\.csv:3: arrive_s is 'x'"),
        (f'{HEADER}\n{ROW}\n"b\nc",0,9,5,4,3,2,1\n', r"jobs\.csv:3: not a CSV: a quote is not closed"),
        (f'{HEADER}\n{ROW}\n"b,0,9,5,4,3,2,1\n', r"jobs\.csv:3: not a CSV: a quote is not closed"),
        (f'{HEADER}\n{ROW}\nb"c"d,0,9,5,4,3,2,1\n', r"jobs\.csv:3: not a CSV: .* inside a cell"),
        (f"{HEADER},memory_gb\n{ROW},-1\n", r"jobs\.csv:2: memory_gb is -1\.0, below 0"),
        (f"{HEADER}\n{ROW}\nb\0,0,9,5,4,3,2,1\n", r"jobs\.csv:3: holds a NUL"),
        (f"{HEADER}\n{ROW}\n".encode() + b"\xff,0,9,5,4,3,2,1\n", r"jobs\.csv:3: not UTF-8 text \(byte 0xff\)"),
        (b"\x1f\x8b\x08 not really gzip", r"jobs\.csv: damaged gzip file"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-12], r"jobs\.csv: damaged gzip file"),
    ],
)
def test_read__mistake_is_one_sentence_with_file_and_line(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read_jobs(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_read__says_when_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv: no such file"):
        read_jobs(tmp_path / "gone.csv")
    with pytest.raises(InputError, match="cannot read"):
        read_jobs(tmp_path)


@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz"])
def test_write__round_trip_is_exact(tmp_path: Path, name: str) -> None:
    day = DiurnalDay(multiplier=2).jobs(5)
    day.run_s[0, :2] = np.inf
    write_jobs(day, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert same(day, read_jobs(tmp_path / name))
    write_jobs(day, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_write__refuses_line_breaks(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=1).jobs(5)
    day.kind[3] = "a\rb"
    with pytest.raises(InputError, match=r"day\.csv: cannot write kind 'a\\rb'"):
        write_jobs(day, tmp_path / "day.csv")
    assert list(tmp_path.iterdir()) == []


def test_dash__is_standard_output_and_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day = DiurnalDay(multiplier=1).jobs(5)
    write_jobs(day, Path("-"))
    text = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert same(day, read_jobs(Path("-")))
    assert list(tmp_path.iterdir()) == []
