"""The readers of whole-GPU traces, on made-up samples and, where they lie beside the checkout, on the public files."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError, UnknownName
from smartmig.registry import GANG_TRACES, load
from smartmig.types import GangJobs
from smartmig.workload.gang.filter import GangFilter
from smartmig.workload.gang.open import gang_trace
from smartmig.workload.gang.summary import summarise_gangs
from smartmig.workload.gang.trace import GangTrace
from smartmig.workload.trace_report import TraceReport
from trace_samples import SAMPLE, SAMPLES

ROOT = Path(__file__).resolve().parents[4]
SHARED = ROOT.parent / "shared" / "data" / "traces"


def check_gangs(jobs: GangJobs, report: TraceReport) -> None:
    """What every trace owes: sorted, unique, possible jobs, and no row unaccounted for."""
    assert report.used + sum(report.skipped.values()) + sum(map(len, report.broken.values())) == report.rows
    assert (np.diff(jobs.submit_s) >= 0).all()
    assert (jobs.submit_s >= 0).all()
    assert np.unique(jobs.job_id).size == len(jobs) > 0
    assert (jobs.run_s > 0).all()
    assert np.isfinite(jobs.run_s).all()
    assert (jobs.limit_s > 0).all()
    assert (jobs.n_gpus >= 1).all()
    assert not (jobs.waited_s < 0).any()
    for field in fields(GangJobs):
        column = getattr(jobs, field.name)
        assert field.name == "origin_s" or column.shape == (len(jobs),)


def sample(name: str) -> GangTrace:
    return gang_trace(SAMPLES / SAMPLE[name], name)


@pytest.mark.parametrize("name", GANG_TRACES)
def test_registry__every_trace_passes_the_checker(name: str) -> None:
    trace = sample(name)
    jobs, report = trace.read()
    check_gangs(jobs, report)
    assert [field.name for field in fields(trace)][:2] == ["path", "strict"]
    assert np.array_equal(trace.jobs().job_id, jobs.job_id)


@pytest.mark.parametrize("name", GANG_TRACES)
def test_open__tells_the_format_from_the_content(name: str) -> None:
    assert type(gang_trace(SAMPLES / SAMPLE[name])) is load(GANG_TRACES, "trace format", name)


def test_open__says_what_does_not_fit(tmp_path: Path) -> None:
    odd = tmp_path / "odd.csv"
    odd.write_text("job_id,submit_s\n1,2\n")
    with pytest.raises(
        InputError, match=r"odd\.csv:1: .* nearest is 'csv', without run_s, n_gpus\. Known: csv, helios"
    ):
        gang_trace(odd)
    with pytest.raises(UnknownName, match="Did you mean 'philly'"):
        gang_trace(odd, "phily")
    with pytest.raises(InputError, match="procs_per_gpu: the format 'csv' has no such knob"):
        gang_trace(odd, "csv", procs_per_gpu=2)


def test_jobs__refuses_broken_rows_as_it_cannot_report_them(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text((SAMPLES / "gang_jobs.csv").read_text() + "x,0,soon,1,,,,,,\n")
    assert len(gang_trace(path).read()[0]) == 3
    for refused in (gang_trace(path).jobs, gang_trace(path, strict=True).read):
        with pytest.raises(InputError, match=r"jobs\.csv:5: run_s is 'soon', not a number"):
            refused()


def test_helios__takes_the_derived_times() -> None:
    jobs, report = sample("helios").read()
    assert report.skipped == {"asked for no GPU": 1, "ran for no time": 1}
    assert jobs.job_id.tolist() == ["900#0", "901#1", "905#2", "908#5"]
    assert jobs.origin_s == np.datetime64("2021-03-30", "s").astype(np.int64)
    assert jobs.submit_s.tolist() == [22 * 3600, 24 * 3600 + 800, 47 * 3600, 48 * 3600 + 1400]
    assert jobs.run_s.tolist() == [172800, 60, 600.5, 30]
    assert np.isinf(jobs.limit_s).all()
    assert np.isnan(jobs.waited_s).all()
    assert report.assumptions["run_s"].startswith("1 of them")


def test_philly__names_jobs_after_rows_and_keeps_repeated_ones() -> None:
    jobs, report = sample("philly").read()
    assert jobs.job_id.tolist() == ["1", "0", "2"]
    assert jobs.group.tolist() == ["bb22", "aa11", "aa11"]
    assert jobs.n_gpus.tolist() == [8, 1, 1]
    assert report.skipped == {"ran for no time": 1}


def test_pai__has_no_calendar() -> None:
    jobs, report = sample("pai").read()
    assert jobs.submit_s.tolist() == [400, 500, 90000]
    assert jobs.origin_s == 0
    assert "unknown" in report.assumptions["clock"]


def test_drac__has_limits_waits_and_models() -> None:
    jobs, report = sample("drac").read()
    assert jobs.job_id.tolist() == ["12", "11"]
    assert jobs.n_gpus.tolist() == [2, 8]
    assert jobs.gpu_model.tolist() == ["t4", ""]
    assert jobs.limit_s.tolist() == [3600, 3600]
    assert jobs.waited_s.tolist() == [2000, 1000]
    assert jobs.group.tolist() == ["8", "7"]
    assert report.skipped == {"ran for no time": 1}


def test_beocat__has_limits_and_no_waits() -> None:
    jobs, report = sample("beocat").read()
    assert jobs.job_id.tolist() == ["job4", "job2"]
    assert jobs.limit_s.tolist() == [3600, 7200]
    assert np.isnan(jobs.waited_s).all()
    assert report.skipped == {"asked for no GPU": 1, "ran for no time": 1}


def test_openb__gives_a_whole_gpu_for_a_part() -> None:
    jobs, report = sample("openb").read()
    assert jobs.n_gpus.tolist()[:2] == [1, 1]
    assert set(jobs.group.tolist()) <= {"LS", "BE", "Burstable", "Guaranteed"}
    assert (jobs.waited_s >= 0).all()
    assert "a part of a GPU" in report.assumptions["n_gpus"]


@pytest.mark.parametrize("name", [name for name in GANG_TRACES if name != "swf"])
def test_readers__ragged_rows_are_reported_by_line(tmp_path: Path, name: str) -> None:
    lines = (SAMPLES / SAMPLE[name]).read_text().splitlines()
    path = tmp_path / "t"
    path.write_text("\n".join([lines[0], "one,two|three", *lines[1:]]) + "\n")
    jobs, report = gang_trace(path, name).read()
    assert list(report.broken.values()) == [(2,)]
    assert np.array_equal(jobs.job_id[:1], sample(name).read()[0].job_id[:1]) or name == "philly"
    with pytest.raises(InputError, match=r"t:2: \d fields, but the header has \d+"):
        gang_trace(path, name, strict=True).read()


def shared_file(pattern: str) -> Path:
    found = sorted(SHARED.glob(pattern))
    if not found:
        pytest.skip(f"the public trace {pattern} is not beside the checkout; see docs/traces.md for its source")
    return found[0]


PUBLIC = {
    "helios": ("helios_venus/venus_gpu_jobs*.csv.gz", 99707, 99707),
    "philly": ("philly/philly_jobs*.csv.gz", 62194, 62194),
    "swf": ("swf/CEA-Curie*gpu.swf.gz", 14260, 13408),
    "openb": ("alibaba_v2023_openb/openb_pod_list*.csv.gz", 5353, 4132),
    "pai": ("alibaba_v2020_pai_sample/*.csv.gz", 39043, 39043),
    "drac": ("drac_slurm_2021/*.csv.gz", 19407, 19407),
    "beocat": ("ksu_beocat_2021/*.csv.gz", 68552, 1649),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLIC)
def test_readers__read_the_public_traces(name: str) -> None:
    pattern, rows, used = PUBLIC[name]
    jobs, report = gang_trace(shared_file(pattern), None if name != "openb" else name, strict=True).read()
    check_gangs(jobs, report)
    assert (report.rows, report.used, report.broken) == (rows, used, {})


@pytest.mark.shared
def test_helios__is_the_stand_in_trace() -> None:
    venus = gang_trace(shared_file(PUBLIC["helios"][0])).jobs()
    jobs, _ = GangFilter(max_gpus=8, since="2020-04-01", before="2020-09-01").apply(venus)
    assert len(jobs) == 89_589
    assert summarise_gangs(jobs, n_gpus=240).load == pytest.approx(0.89, abs=0.005)
    assert jobs.submit_s[0] < 86400


@pytest.mark.shared
def test_swf__a_partition_of_the_log_is_the_cut_of_its_lines() -> None:
    whole = gang_trace(shared_file("swf/CEA-Curie-2011-2.1-cln.swf.gz"), procs_per_gpu=4).jobs()
    part = gang_trace(shared_file("swf/CEA-Curie*gpu.swf.gz"), procs_per_gpu=4).jobs()
    cut, _ = GangFilter(group=("hybrid",)).apply(whole)
    assert cut.origin_s == part.origin_s
    for name in ("job_id", "submit_s", "run_s", "n_gpus", "limit_s", "user", "waited_s"):
        assert np.array_equal(getattr(cut, name), getattr(part, name)), name
    assert not math.isnan(summarise_gangs(cut, 288).load)
