"""The trace readers, on made-up samples and, where they lie beside the checkout, on the public files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.registry import TRACES, load
from smartmig.types import Jobs
from smartmig.workload.trace_report import TraceReport
from smartmig.workload.traces.genai import GenaiRequests
from smartmig.workload.traces.openb import OpenbPods

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "tests" / "samples"
SHARED = ROOT.parent / "shared" / "data" / "traces"
OPENB = SAMPLES / "openb_pods.csv"
GENAI = SAMPLES / "genai_requests.csv"


def shared_file(pattern: str) -> Path:
    found = sorted(SHARED.glob(pattern))
    if not found:
        pytest.skip(f"the public trace {pattern} is not beside the checkout; see docs/workloads.md for its source")
    return found[0]


def check_trace(jobs: Jobs, report: TraceReport) -> None:
    """What every trace owes: sorted, unique, possible jobs, and no row unaccounted for."""
    assert report.used + sum(report.skipped.values()) == report.rows
    assert (np.diff(jobs.arrive_s) >= 0).all()
    assert jobs.arrive_s[0] >= 0
    assert (jobs.deadline_s >= jobs.arrive_s).all()
    assert np.isfinite(jobs.deadline_s).all()
    assert np.unique(jobs.job_id).size == len(jobs)
    assert (jobs.run_s > 0).all()
    assert np.isfinite(jobs.run_s).any(axis=1).all()


def test_registry__every_trace_passes_the_checker() -> None:
    samples = {"csv": SAMPLES / "jobs.csv", "openb": OPENB, "genai": GENAI}
    assert set(samples) == set(TRACES), "a new trace brings a sample"
    for name, path in samples.items():
        trace = load(TRACES, "trace", name)(path)
        jobs, report = trace.read(0)
        check_trace(jobs, report)
        assert report.assumptions or name == "csv"
        assert np.array_equal(trace.jobs(1).deadline_s, trace.jobs(1).deadline_s)


def test_openb__counts_what_it_skips() -> None:
    jobs, report = OpenbPods(OPENB).read()
    assert report.rows == 8
    assert report.skipped == {
        "asked for no GPU": 1,
        "asked for more than one GPU": 1,
        "never ran": 1,
        "ran for no time": 1,
    }
    assert jobs.job_id.tolist() == ["pod-b", "pod-a", "pod-c", "pod-h"]
    assert jobs.arrive_s.tolist() == [50, 100, 300, 200000]


def test_openb__observed_time_holds_on_the_asked_share() -> None:
    jobs = OpenbPods(OPENB).jobs()
    by_id = dict(zip(jobs.job_id.tolist(), jobs.run_s, strict=True))
    assert by_id["pod-a"][3] == pytest.approx(600)  # 460 thousandths: 4g
    assert by_id["pod-a"] == pytest.approx(2400 / np.array([1, 2, 3, 4, 7]))
    assert by_id["pod-b"][4] == pytest.approx(800)  # a whole GPU: 7g
    assert by_id["pod-b"][0] == pytest.approx(800 * 10.5 / 2.2)
    assert by_id["pod-c"][0] == pytest.approx(86400)  # cut to a day, on 1g
    assert by_id["pod-h"][1] == pytest.approx(70)  # 230 thousandths: 2g


def test_openb__knobs() -> None:
    strict = OpenbPods(OPENB, smaller_fits=False, gpu_memory_gb=40).jobs()
    assert np.isinf(strict.run_s).sum(axis=1).tolist() == [4, 3, 0, 1]
    assert strict.memory_gb.tolist() == pytest.approx([40, 18.4, 4, 9.2])
    window, report = OpenbPods(OPENB, start_s=100, length_s=1000, time_scale=2).read()
    assert window.arrive_s.tolist() == [0, 100]
    assert report.skipped["outside the time window"] == 2
    assert OpenbPods(OPENB, curve="capped").jobs().run_s[0].tolist() == pytest.approx([2400, 1200, 800, 800, 800])
    tight = OpenbPods(OPENB, deadline=(1.0, 1.0)).jobs()
    assert (tight.deadline_s - tight.arrive_s).tolist() == pytest.approx(tight.run_s[:, 4].tolist())


def test_openb__window_does_not_change_a_pods_deadline() -> None:
    all_pods, some = OpenbPods(OPENB).jobs(4), OpenbPods(OPENB, start_s=100).jobs(4)
    assert all_pods.deadline_s[1] - all_pods.arrive_s[1] == pytest.approx(some.deadline_s[0] - some.arrive_s[0])


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("gpu_milli,", "milli,", r"pods\.csv:1: missing column gpu_milli"),
        ("1,460,", "1,1460,", r"pods\.csv:2: gpu_milli is 1460"),
        ("1,460,", "1.5,460,", r"pods\.csv:2: num_gpu is 1\.5"),
        ("1,460,", "x,460,", r"pods\.csv:2: num_gpu is 'x'"),
        (",50,1050,", ",soon,1050,", r"pods\.csv:3: creation_time is 'soon'"),
        ("pod-b", "pod-a", r"pods\.csv:3: pod name 'pod-a' stands twice"),
    ],
)
def test_openb__mistake_has_file_and_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(OPENB.read_text().replace(old, new))
    with pytest.raises(InputError, match=sentence):
        OpenbPods(path).jobs()


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"length_s": 0}, "length_s"),
        ({"start_s": math.nan}, "start_s"),
        ({"time_scale": 0}, "time_scale"),
        ({"max_run_s": -1}, "max_run_s"),
        ({"gpu_memory_gb": -1}, "gpu_memory_gb"),
        ({"deadline": (4, 2)}, "deadline"),
        ({"milli_to_size": ((500, 3),)}, "milli_to_size"),
        ({"milli_to_size": ((1000, 5),)}, "milli_to_size"),
        ({"start_s": 1e9}, r"openb_pods\.csv: no row is left to become a job: 1 asked for no GPU"),
        ({"curve": "berd"}, "curve: no curve 'berd'"),
    ],
)
def test_openb__refuses_bad_knobs(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        OpenbPods(OPENB, **knobs).jobs()


def test_genai__counts_what_it_skips() -> None:
    jobs, report = GenaiRequests(GENAI).read()
    assert report.skipped == {"status is not SUCCEED": 1, "execution time is missing or not above 0": 1}
    assert jobs.arrive_s.tolist() == [21600, 21630, 90000]
    assert jobs.run_s[:, 4].tolist() == pytest.approx([20, 40, 10])
    assert jobs.run_s[0, 0] == pytest.approx(20 * 18.4 / 3.2)
    assert jobs.kind.tolist() == ["txt-2-img", "img-2-img", "inpainting"]


def test_genai__knobs() -> None:
    second_day = GenaiRequests(GENAI, start_s=86400, exec_size=1, curve="linear").jobs()
    assert second_day.arrive_s.tolist() == [3600]
    assert second_day.run_s[0].tolist() == pytest.approx([10, 5, 10 / 3, 2.5, 10 / 7])
    failed = GenaiRequests(GENAI, statuses=("SUCCEED", "FAILED")).jobs()
    assert len(failed) == 4


def test_genai__load_copies_and_thins() -> None:
    one, three = GenaiRequests(GENAI).jobs(), GenaiRequests(GENAI, load=3, jitter_s=60).jobs()
    assert len(three) == 9
    assert {"0", "0+1", "0+2"} <= set(three.job_id.tolist())
    originals = {i: a for i, a in zip(three.job_id.tolist(), three.arrive_s.tolist(), strict=True) if "+" not in i}
    assert sorted(originals.values()) == one.arrive_s.tolist()
    for job_id, arrive_s in zip(three.job_id.tolist(), three.arrive_s.tolist(), strict=True):
        assert abs(arrive_s - originals[job_id.split("+")[0]]) <= 60
    sizes = [len(GenaiRequests(GENAI, load=1.5).jobs(seed)) for seed in range(60)]
    assert abs(np.mean(sizes) - 4.5) < 0.5
    thinned, report = GenaiRequests(GENAI, load=0.5).read(1)
    assert len(thinned) == report.used < 3
    assert report.skipped["thinned to 0.5 of the load"] == 3 - len(thinned)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("exec_time_seconds", "seconds", r"requests\.csv:1: missing column exec_time_seconds"),
        ("2030-01-05 06:00:30", "yesterday", r"requests\.csv:3: gmt_create is 'yesterday'"),
        ("2030-01-05 06:00:30", "", r"requests\.csv:3: gmt_create is ''"),
        ("SUCCEED,40.0", "SUCCEED,long", r"requests\.csv:3: exec_time_seconds is 'long'"),
    ],
)
def test_genai__mistake_has_file_and_line(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(GENAI.read_text().replace(old, new))
    with pytest.raises(InputError, match=sentence):
        GenaiRequests(path).jobs()


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"load": 0}, "load: got 0"),
        ({"load": 1e12}, "load: this makes about"),
        ({"exec_size": 6}, "exec_size: got 6"),
        ({"jitter_s": -1}, "jitter_s"),
        ({"start_s": 1e9}, "no row is left"),
    ],
)
def test_genai__refuses_bad_knobs(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        GenaiRequests(GENAI, **knobs).jobs()


@pytest.mark.shared
def test_openb__reads_the_public_trace() -> None:
    jobs, report = OpenbPods(shared_file("alibaba_v2023_openb/openb_pod_list*.csv.gz")).read(0)
    check_trace(jobs, report)
    assert (report.rows, report.used) == (5353, 4082)
    assert report.skipped == {"asked for no GPU": 764, "asked for more than one GPU": 51, "never ran": 456}


@pytest.mark.shared
def test_genai__reads_the_public_trace() -> None:
    jobs, report = GenaiRequests(shared_file("alibaba_v2026_genai/lora_request_trace*.csv.gz")).read(0)
    check_trace(jobs, report)
    assert (report.rows, report.used) == (14279, 14033)
    by_hour = np.bincount((jobs.arrive_s // 3600).astype(int) % 24, minlength=24)
    assert by_hour.min() == 0
    assert by_hour.max() > 2000
