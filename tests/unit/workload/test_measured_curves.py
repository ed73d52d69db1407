"""Measured throughput: MISO, MIGPerf, ParvaGPU."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from smartmig.errors import InputError
from smartmig.registry import CURVE_SETS, load
from smartmig.workload.poisson import FixedRate
from smartmig.workload.traces import migperf, miso, parvagpu

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "tests" / "samples"
SHARED = ROOT.parent / "shared" / "data" / "traces" / "mig_profiles"


def test_miso__normalises_to_1g_or_the_smallest_that_fits() -> None:
    small, large = miso.read_curves(SAMPLES / "miso_steps.csv")
    assert small.name == "miso:toynet-train-bs8"
    assert small.speedup == pytest.approx((1, 2, 2.5, 2.5, 4))
    assert large.speedup == pytest.approx((math.nan, math.nan, 3, 4, 6), nan_ok=True)


def test_migperf__maps_profiles_and_leaves_4g_unmeasured() -> None:
    small, large = migperf.read_curves(SAMPLES / "migperf_train.csv")
    assert small.name == "migperf:toynet-train-bs8-seq64"
    assert small.speedup == pytest.approx((1, 2, 3, math.nan, 6), nan_ok=True)
    assert large.speedup == pytest.approx((math.nan, math.nan, 3, math.nan, 6), nan_ok=True)
    filled = migperf.read_curves(SAMPLES / "migperf_train.csv", fill_gaps=True)
    assert filled[0].speedup == pytest.approx((1, 2, 3, 3.75, 6))


def test_parvagpu__counts_all_processes_of_a_slice() -> None:
    (one,) = parvagpu.read_curves(SAMPLES / "parvagpu_mps.csv")
    assert one.name == "parvagpu:toynet-infer-bs8"
    assert one.speedup == pytest.approx((1, 1.8, 2.4, 2.3, 3))
    (best,) = parvagpu.read_curves(SAMPLES / "parvagpu_mps.csv", processes=None)
    assert best.speedup == pytest.approx((1, 340 / 120, 2, 230 / 120, 580 / 120))
    with pytest.raises(InputError, match=r"no rows with 9 processes; measured were 1, 2"):
        parvagpu.read_curves(SAMPLES / "parvagpu_mps.csv", processes=9)


@pytest.mark.parametrize(
    ("name", "sample", "old", "new", "sentence"),
    [
        ("miso", "miso_steps.csv", "2g.10gb,2,", "2g.10gb,5,", r"m\.csv:3: gpc is '5'"),
        ("miso", "miso_steps.csv", ",0.40", ",0", r"m\.csv:3: step_time_s_mean is 0"),
        ("migperf", "migperf_train.csv", "3g.40gb", "3h.40gb", r"m\.csv:3: mig_profile is '3h\.40gb'"),
        ("migperf", "migperf_train.csv", "30.0,0.1", "-30,0.1", r"m\.csv:4: latency is -30"),
        ("parvagpu", "parvagpu_mps.csv", ",180.0,", ",fast,", r"m\.csv:4: Throughput is 'fast'"),
        ("parvagpu", "parvagpu_mps.csv", "Throughput", "Speed", r"m\.csv:1: missing column Throughput"),
    ],
)
def test_measured__mistake_has_file_and_line(
    tmp_path: Path, name: str, sample: str, old: str, new: str, sentence: str
) -> None:
    path = tmp_path / "m.csv"
    path.write_text((SAMPLES / sample).read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=sentence):
        load(CURVE_SETS, "curve set", name)(path)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "pattern", "n_curves"),
    [
        ("miso", "miso*step_times.csv", [32]),
        ("migperf", "migperf*.csv", [18, 9, 5, 6, 6, 5]),
        ("parvagpu", "parvagpu*mig_mps.csv", [97]),
    ],
)
def test_measured__reads_the_public_tables(name: str, pattern: str, n_curves: list[int]) -> None:
    paths = sorted(SHARED.glob(pattern))
    if not paths:
        pytest.skip(f"the public measurements {pattern} are not beside the checkout; see docs/workloads.md")
    sets = [load(CURVE_SETS, "curve set", name)(path) for path in paths]
    assert [len(curves) for curves in sets] == n_curves
    for curves in sets:
        assert all(not math.isnan(curve.speedup[-1]) for curve in curves)
        assert len(FixedRate(n_jobs=50, curves=curves).jobs(0)) == 50
