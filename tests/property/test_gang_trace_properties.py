"""Any set of whole-GPU jobs survives its file exactly, and a broken line is reported without touching the others."""

from __future__ import annotations

import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartmig.errors import InputError
from smartmig.registry import GANG_TRACES
from smartmig.types import GangJobs
from smartmig.workload.gang.filter import GangFilter, date_of, split_by_date
from smartmig.workload.gang.jobs_csv import CsvGangs, write_gang_jobs
from smartmig.workload.gang.open import gang_trace
from smartmig.workload.order import in_order
from trace_samples import SAMPLE, SAMPLES

names = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=8)
words = st.one_of(st.just(""), names)
seconds = st.floats(0, 1e9)
runs = st.floats(1e-9, 1e9)


@st.composite
def gang_sets(draw: st.DrawFn) -> GangJobs:
    ids = draw(st.lists(names, min_size=1, max_size=8, unique=True))

    def column(values: st.SearchStrategy) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=len(ids), max_size=len(ids))))

    return GangJobs(
        job_id=np.array(ids),
        # Few distinct times, so that ties are common.
        submit_s=column(st.one_of(st.sampled_from([0.0, 1.5, 86400.0]), seconds)),
        run_s=column(runs),
        limit_s=column(st.one_of(st.just(np.inf), runs)),
        n_gpus=column(st.integers(1, 10**6)),
        gpu_model=column(words),
        user=column(words),
        group=column(words),
        waited_s=column(st.one_of(st.just(np.nan), seconds)),
        origin_s=draw(st.one_of(st.just(0.0), st.floats(-1e9, 2e9))),
    )


def assert_same(one: GangJobs, other: GangJobs) -> None:
    for field in fields(GangJobs):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(mine, theirs, equal_nan=field.name == "waited_s"), field.name


@given(gang_sets())
def test_csv__round_trip_is_exact(jobs: GangJobs) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("jobs.csv", "jobs.csv.gz"):
            path = Path(folder) / name
            write_gang_jobs(jobs, path)
            back, report = CsvGangs(path).read()
            assert_same(back, in_order(jobs))
            assert report.used == report.rows == len(jobs)


@given(st.sampled_from(sorted(GANG_TRACES)), st.data())
def test_broken_lines__are_reported_exactly(name: str, data: st.DataObject) -> None:
    lines = (SAMPLES / SAMPLE[name]).read_text().splitlines()
    bad = st.sampled_from(["x", "1 2 3", "nothing,here", "a|b|c", '"', '"open,quote', "é" * 300, "\0"])
    # Behind the header; and rows that name jobs by their number must not move.
    first = len(lines) if name == "philly" else 1
    for _ in range(data.draw(st.integers(1, 4))):
        lines.insert(data.draw(st.integers(first, len(lines))), f"\x01{data.draw(bad)}")
    broken = {number for number, line in enumerate(lines, start=1) if line.startswith("\x01")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken"
        path.write_text("\n".join(line.removeprefix("\x01") for line in lines) + "\n")
        jobs, report = gang_trace(path, name).read()
        assert {line for at in report.broken.values() for line in at} == broken
        assert report.used + sum(report.skipped.values()) + len(broken) == report.rows
        assert_same(jobs, gang_trace(SAMPLES / SAMPLE[name], name).jobs())
        with pytest.raises(InputError, match=rf"^{path}:({'|'.join(map(str, broken))}): [^\n]*$"):
            gang_trace(path, name).jobs()


@given(st.sampled_from(sorted(GANG_TRACES)), st.data())
def test_readers__answer_damaged_files_with_jobs_or_one_sentence(name: str, data: st.DataObject) -> None:
    text = (SAMPLES / SAMPLE[name]).read_bytes()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(start + 40, len(text))))
    put = data.draw(
        st.one_of(st.binary(max_size=6), st.sampled_from([b"nan", b"-1", b",", b"1e999", b'"', b"\n", b"|"]))
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged"
        path.write_bytes(text[:start] + put + text[stop:])
        for strict in (False, True):
            sentence = ""
            try:
                assert len(gang_trace(path, name, strict=strict).read()[0]) > 0
            except InputError as error:
                sentence = str(error)
            assert not sentence or (sentence.startswith(str(path)) and "\n" not in sentence), sentence


@given(gang_sets(), st.data())
def test_split__parts_add_up(jobs: GangJobs, data: st.DataObject) -> None:
    ordered = in_order(jobs)
    days = sorted({date_of(ordered, at) for at in range(len(ordered))})[1:]
    dates = data.draw(st.lists(st.sampled_from(days), unique=True).map(sorted)) if days else []
    parts = split_by_date(ordered, dates)
    assert [job_id for part in parts for job_id in part.job_id.tolist()] == ordered.job_id.tolist()
    assert len(parts) == len(dates) + 1
    for date, part in zip(dates, parts[1:], strict=True):
        assert date_of(part, 0) >= date
        assert len(GangFilter(since=date).apply(part)[0]) == len(part)
