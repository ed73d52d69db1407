"""Any set of jobs survives the job file exactly, whatever the order of its rows and columns."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Sized
from dataclasses import fields
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smartmig.errors import InputError
from smartmig.types import Jobs
from smartmig.workload.jobs_csv import read_jobs, write_jobs
from smartmig.workload.order import in_order
from smartmig.workload.table import Table
from smartmig.workload.traces import migperf, miso, parvagpu
from smartmig.workload.traces.genai import GenaiRequests
from smartmig.workload.traces.openb import OpenbPods

SAMPLE_FOLDER = Path(__file__).resolve().parents[1] / "samples"
SAMPLES: dict[str, Callable[[Path], Sized]] = {
    "jobs.csv": read_jobs,
    "openb_pods.csv": lambda path: OpenbPods(path).jobs(),
    "genai_requests.csv": lambda path: GenaiRequests(path).jobs(),
    "miso_steps.csv": miso.read_curves,
    "migperf_train.csv": migperf.read_curves,
    "parvagpu_mps.csv": parvagpu.read_curves,
}

names = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=8)
times = st.floats(0, 1e9)
runs = st.one_of(st.just(np.inf), st.floats(1e-12, 1e12))


@st.composite
def job_sets(draw: st.DrawFn) -> Jobs:
    ids = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    n = len(ids)
    # Few distinct arrivals, so that ties are common.
    arrive_s = np.array(draw(st.lists(st.one_of(st.sampled_from([0.0, 1.5]), times), min_size=n, max_size=n)))
    run_s = np.array(draw(st.lists(st.lists(runs, min_size=5, max_size=5), min_size=n, max_size=n)))
    run_s[np.isinf(run_s).all(axis=1), 4] = 1.0
    return Jobs(
        job_id=np.array(ids),
        arrive_s=arrive_s,
        deadline_s=arrive_s + np.array(draw(st.lists(times, min_size=n, max_size=n))),
        run_s=run_s,
        kind=np.array(draw(st.lists(st.one_of(st.just(""), names), min_size=n, max_size=n))),
        memory_gb=np.array(draw(st.lists(times, min_size=n, max_size=n))),
    )


def assert_same(one: Jobs, other: Jobs) -> None:
    for field in fields(Jobs):
        assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name


@given(job_sets())
def test_jobs_csv__round_trip_is_exact(jobs: Jobs) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("jobs.csv", "jobs.csv.gz"):
            path = Path(folder) / name
            write_jobs(jobs, path)
            assert_same(read_jobs(path), in_order(jobs))


@given(st.data())
def test_readers__answer_damaged_files_with_jobs_or_one_sentence(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SAMPLES)))
    text = (SAMPLE_FOLDER / name).read_bytes()
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(start + 40, len(text))))
    put = data.draw(st.one_of(st.binary(max_size=6), st.sampled_from([b"nan", b"-1", b",", b"1e999", b'"', b"\n"])))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.csv"
        path.write_bytes(text[:start] + put + text[stop:])
        sentence = ""
        try:
            assert len(SAMPLES[name](path)) > 0
        except InputError as error:
            sentence = str(error)
        assert not sentence or (sentence.startswith(str(path)) and "\n" not in sentence), sentence


@given(job_sets(), st.randoms(use_true_random=False))
def test_jobs_csv__order_of_rows_and_columns_does_not_matter(jobs: Jobs, random: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, shuffled = Path(folder) / "jobs.csv", Path(folder) / "shuffled.csv"
        write_jobs(jobs, path)
        with path.open(newline="", encoding="utf-8") as stream:
            header, *rows = csv.reader(stream)
        order = list(range(len(header)))
        random.shuffle(order)  # type: ignore[attr-defined]
        random.shuffle(rows)  # type: ignore[attr-defined]
        with shuffled.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([row[i] for i in order] for row in [header, *rows])
        assert_same(read_jobs(shuffled), read_jobs(path))


@given(st.lists(st.lists(st.text(st.sampled_from('a1",; é'), max_size=4), min_size=3, max_size=3), min_size=1))
def test_table__reads_what_the_csv_module_writes(rows: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([["x", "y", "z"], *rows])
        table = Table.read(path, ("x", "y", "z"))
        assert [list(row) for row in zip(*(table.texts(name).tolist() for name in "xyz"), strict=True)] == rows


@given(st.lists(st.text(st.sampled_from('a",\n'), max_size=12), min_size=1))
def test_table__a_broken_line_never_changes_another(lines: list[str]) -> None:
    """Cut line by line: what the csv module makes of each line alone is what the table has, or has refused."""
    text = "\n".join(["x,y", *lines])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text(text + "\nlast,one\n", encoding="utf-8")
        table = Table.read(path, ("x", "y"), strict=False)
        read = {
            line: (x, y)
            for line, x, y, keep in zip(
                table.line.tolist(), table.texts("x"), table.texts("y"), table.rows.keep, strict=True
            )
            if keep
        }
        refused = {line for lines in table.rows.broken.values() for line in lines}
    for number, line in enumerate(text.split("\n")[1:], start=2):
        if number in read:
            assert tuple(next(csv.reader([line]))) == read[number]
        else:
            assert number in refused or line == ""
    assert ("last", "one") in read.values()
