"""The made-up workloads against the numbers of arXiv 2606.29775, within four standard errors."""

from __future__ import annotations

import math
import time
from dataclasses import fields

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.types import Jobs
from smartmig.workload.curves import Curve, sublinearity
from smartmig.workload.diurnal import HOURLY_RATE_PER_MIN, DiurnalDay
from smartmig.workload.mix import parse_deadline, size_run
from smartmig.workload.poisson import FixedRate

SEEDS = range(12)


@pytest.fixture(scope="module")
def days() -> list[Jobs]:
    return [DiurnalDay().jobs(seed) for seed in SEEDS]


def pooled(days: list[Jobs], name: str) -> np.ndarray:
    return np.concatenate([getattr(day, name) for day in days])


def assert_share(hits: np.ndarray, share: float) -> None:
    assert abs(hits.mean() - share) < 4 * math.sqrt(share * (1 - share) / hits.size)


def test_day__has_about_4150_jobs(days: list[Jobs]) -> None:
    expected = sum(HOURLY_RATE_PER_MIN) * 60 * 20
    assert 4140 < expected < 4160
    counts = np.array([len(day) for day in days])
    assert abs(counts.mean() - expected) < 4 * math.sqrt(expected / counts.size)


def test_day__follows_the_hours(days: list[Jobs]) -> None:
    arrive_s = pooled(days, "arrive_s")
    counts = np.bincount((arrive_s // 3600).astype(int), minlength=24)
    expected = np.array(HOURLY_RATE_PER_MIN) * 60 * 20 * len(SEEDS)
    assert counts.size == 24
    assert (np.abs(counts - expected) < 4.5 * np.sqrt(expected)).all()
    minute_in_hour = (arrive_s % 3600) / 3600
    assert abs(minute_in_hour.mean() - 0.5) < 4 / math.sqrt(12 * arrive_s.size)


def test_day__mixes_kinds_and_curves(days: list[Jobs]) -> None:
    kind = pooled(days, "kind")
    infers = np.char.endswith(kind, "-infer")
    assert_share(infers, 0.8)
    assert_share(np.char.startswith(kind[infers], "bert"), 2 / 3)
    assert_share(np.char.startswith(kind[~infers], "bert"), 2 / 3)
    assert set(kind) == {"bert-infer", "resnet50-infer", "bert-train", "resnet50-train"}


def test_day__run_times_have_the_stated_laws(days: list[Jobs]) -> None:
    infers = np.char.endswith(pooled(days, "kind"), "-infer")
    run_1g_s = pooled(days, "run_s")[:, 0]
    inference_s, train_s = run_1g_s[infers], run_1g_s[~infers]
    assert abs(inference_s.mean() - 180) < 4 * 180 / math.sqrt(inference_s.size)
    assert_share(inference_s > 180 * math.log(2), 0.5)
    log_s = np.log(train_s)
    mu, sigma = (math.log(2400) + math.log(3600)) / 2, (math.log(60) - math.log(40)) / 3.29
    assert abs(log_s.mean() - mu) < 4 * sigma / math.sqrt(log_s.size)
    assert abs(log_s.std() - sigma) < 4 * sigma / math.sqrt(2 * log_s.size)
    assert_share((train_s > 2400) & (train_s < 3600), 0.90)


def test_day__run_times_fall_along_the_curve(days: list[Jobs]) -> None:
    run_s, kind = days[0].run_s, days[0].kind
    assert (np.diff(run_s, axis=1) < 0).all()
    ratio = run_s[kind == "bert-train"][:, [0]] / run_s[kind == "bert-train"]
    assert ratio == pytest.approx(np.tile(np.array([2.2, 4.1, 5.8, 7.1, 10.5]) / 2.2, (len(ratio), 1)))


def test_day__deadlines_are_uniform_in_the_7g_run_time(days: list[Jobs]) -> None:
    slack = (pooled(days, "deadline_s") - pooled(days, "arrive_s")) / pooled(days, "run_s")[:, 4]
    # A tiny run late in the day loses digits in arrival + slack.
    assert slack.min() > 1 - 1e-3
    assert slack.max() < 1.5 + 1e-3
    assert abs(slack.mean() - 1.25) < 4 * 0.5 / math.sqrt(12 * slack.size)


def test_day__deadline_knobs() -> None:
    day = DiurnalDay(deadline=(2.0, 4.0), deadline_size=1).jobs(1)
    slack = (day.deadline_s - day.arrive_s) / day.run_s[:, 0]
    assert 1.99 < slack.min() < 2.1
    assert 3.9 < slack.max() < 4.01


@pytest.mark.parametrize("workload", [DiurnalDay(multiplier=3), FixedRate(n_jobs=200)])
def test_generator__seed_fixes_everything(workload: DiurnalDay | FixedRate) -> None:
    one, same, other = workload.jobs(7), workload.jobs(7), workload.jobs(8)
    for field in fields(Jobs):
        assert np.array_equal(getattr(one, field.name), getattr(same, field.name))
    assert not np.array_equal(one.arrive_s[:10], other.arrive_s[:10])
    assert one.job_id.tolist() == [str(i) for i in range(len(one))]
    assert (np.diff(one.arrive_s) >= 0).all()


def test_generator__one_knob_leaves_the_other_draws_alone() -> None:
    plain, capped = DiurnalDay().jobs(3), DiurnalDay(capped_frac=0.5, deadline=(2, 4)).jobs(3)
    assert np.array_equal(plain.arrive_s, capped.arrive_s)
    assert np.array_equal(plain.run_s[:, 0], capped.run_s[:, 0])


def test_mix__replaces_curves() -> None:
    linear = DiurnalDay(linear_frac=1.0).jobs(0)
    assert sublinearity(linear.run_s) == pytest.approx(1.0)
    mixed = DiurnalDay(linear_frac=0.3, capped_frac=0.2).jobs(0)
    assert_share(mixed.kind == "linear", 0.3)
    assert_share(mixed.kind == "capped", 0.2)
    assert set(DiurnalDay(capped_frac=1.0).jobs(0).kind) == {"capped"}


def test_mix__draws_from_given_curves_by_tag() -> None:
    nan = math.nan
    given = (
        Curve("a-train", (nan, 2.0, 3.0, 4.0, 5.0), "s"),
        Curve("b-train", (1.0, 2.0, 3.0, 4.0, 5.0), "s"),
        Curve("c-infer", (1.0, 1.5, 2.0, 2.5, nan), "s"),
    )
    jobs = FixedRate(n_jobs=4000, curves=given).jobs(0)
    assert_share(jobs.kind == "c-infer", 0.8)
    assert_share(jobs.kind == "a-train", 0.1)
    assert np.isinf(jobs.run_s[jobs.kind == "a-train", 0]).all()
    # c does not fit 7g: its deadlines count in the largest size that does.
    c = jobs.kind == "c-infer"
    assert ((jobs.deadline_s - jobs.arrive_s)[c] >= jobs.run_s[c, 3] * (1 - 1e-6)).all()
    untagged = FixedRate(n_jobs=400, curves=(Curve("x", (1.0, 2.0, 2.0, 2.0, 2.0), "s"),)).jobs(0)
    assert set(untagged.kind) == {"x"}


def test_size_run__falls_back_to_a_size_that_fits() -> None:
    inf = np.inf
    run_s = np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [inf, inf, 3.0, 2.0, 1.0], [5.0, 4.0, inf, inf, inf]])
    assert size_run(run_s, 2).tolist() == [4.0, 3.0, 4.0]
    assert size_run(run_s, 7).tolist() == [1.0, 1.0, 4.0]


def test_fixed_rate__has_the_rate() -> None:
    jobs = FixedRate(n_jobs=4000, rate_per_min=8).jobs(0)
    assert len(jobs) == 4000
    assert abs(jobs.arrive_s[-1] / 4000 - 7.5) < 4 * 7.5 / math.sqrt(4000)


def test_days__follow_each_other() -> None:
    jobs = DiurnalDay(days=3, multiplier=2).jobs(0)
    assert 2 * 86400 < jobs.arrive_s[-1] < 3 * 86400


def test_day__is_fast() -> None:
    day = DiurnalDay()
    day.jobs(0)
    best = math.inf
    for seed in range(5):
        start = time.perf_counter()
        day.jobs(seed)
        best = min(best, time.perf_counter() - start)
    assert best < 0.010


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"multiplier": 0}, "multiplier: got 0"),
        ({"multiplier": 1e9}, "at most 1e"),
        ({"days": 0}, "days: got 0"),
        ({"deadline": (2, 1)}, "deadline: got 2:1"),
        ({"deadline_size": 5}, "deadline_size: got 5"),
        ({"inference_frac": 1.1}, "inference_frac: got 1.1"),
        ({"linear_frac": 0.6, "capped_frac": 0.6}, "linear_frac"),
        ({"inference_mean_s": math.nan}, "inference_mean_s: got nan"),
        ({"train_p05_s": 4000}, "train_p05_s: got 4000"),
        ({"hourly_rate_per_min": (1.0,)}, "24 hours"),
    ],
)
def test_day__refuses_bad_knobs(knobs: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        DiurnalDay(**knobs)  # type: ignore[arg-type]


def test_fixed_rate__refuses_bad_knobs() -> None:
    with pytest.raises(InputError, match="n_jobs: got 0"):
        FixedRate(n_jobs=0)
    with pytest.raises(InputError, match="rate_per_min: got -1"):
        FixedRate(rate_per_min=-1)


def test_parse_deadline__reads_ranges() -> None:
    assert parse_deadline("1:1.5") == (1.0, 1.5)
    assert parse_deadline("2") == (2.0, 2.0)
    for text in ("x", "2:", "3:1", "-1:2", "nan:2", "1:inf"):
        with pytest.raises(InputError, match="--deadline: got"):
            parse_deadline(text, "--deadline")
