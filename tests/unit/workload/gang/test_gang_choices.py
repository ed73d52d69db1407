"""Filters, periods, requested times and the summary."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smartmig.errors import InputError, UnknownName
from smartmig.registry import REQUESTS
from smartmig.types import GangJobs
from smartmig.workload.gang import requests
from smartmig.workload.gang.filter import GangFilter, split_by_date
from smartmig.workload.gang.requests import with_requests
from smartmig.workload.gang.summary import summarise_gangs

DAY_S = 86400.0
ORIGIN_S = 20000 * DAY_S  # 2024-10-04


def jobs_of(
    submit_s: list[float], n_gpus: list[int] | None = None, run_s: list[float] | None = None, group: str = ""
) -> GangJobs:
    n = len(submit_s)
    return GangJobs(
        job_id=np.arange(n).astype(np.str_),
        submit_s=np.array(submit_s, dtype=float),
        run_s=np.array(run_s or [60.0] * n),
        limit_s=np.full(n, math.inf),
        n_gpus=np.array(n_gpus or [1] * n),
        gpu_model=np.full(n, ""),
        user=np.full(n, ""),
        group=np.array(list(group) or [""] * n),
        waited_s=np.full(n, math.nan),
        origin_s=ORIGIN_S,
    )


def test_filter__keeps_everything_by_default() -> None:
    jobs = jobs_of([3 * DAY_S, 4 * DAY_S])
    assert GangFilter().apply(jobs) == (jobs, {})


def test_filter__by_size_date_and_group() -> None:
    jobs = jobs_of([0, DAY_S - 1, DAY_S, 3 * DAY_S - 0.5, 3 * DAY_S], n_gpus=[1, 2, 4, 8, 16], group="aabbc")
    kept, left_out = GangFilter(max_gpus=8, since="2024-10-05", before="2024-10-07").apply(jobs)
    assert kept.job_id.tolist() == ["2", "3"]
    assert kept.submit_s.tolist() == [0, 2 * DAY_S - 0.5]
    assert kept.origin_s == ORIGIN_S + DAY_S
    assert left_out == {"more than 8 GPUs": 1, "before 2024-10-05": 2}
    assert GangFilter(group=("a", "c")).apply(jobs)[0].job_id.tolist() == ["0", "1", "4"]
    kept, left_out = GangFilter(without_group=("a",)).apply(jobs)
    assert kept.job_id.tolist() == ["2", "3", "4"]
    assert left_out == {"in group a": 2}


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"max_gpus": -1}, "max_gpus: got -1"),
        ({"since": "1 April"}, "--from: got '1 April', allowed is a date like 2020-04-01"),
        ({"before": "2020-02-30"}, "--to: got '2020-02-30'"),
        ({"before": "2020-4-1"}, "--to: got '2020-4-1'"),
        ({"since": "2020-04-02", "before": "2020-04-02"}, "--to: got 2020-04-02, which is not after --from 2020-04-02"),
        ({"since": "2030-01-01"}, "filters: no row is left to become a job: 2 before 2030-01-01"),
        ({"group": ("gpuu",)}, "group: no group 'gpuu'. Did you mean 'gpu'"),
        ({"without_group": ("x",)}, "without_group: no group 'x'"),
    ],
)
def test_filter__refuses(knobs: dict[str, Any], sentence: str) -> None:
    jobs = replace(jobs_of([0, 1]), group=np.array(["gpu", "cpu"]))
    with pytest.raises(InputError, match=sentence):
        GangFilter(**knobs).apply(jobs)


def test_split__loses_nothing_and_starts_each_part_on_its_first_day() -> None:
    jobs = jobs_of([10, DAY_S, DAY_S + 0.25, 4 * DAY_S, 9 * DAY_S - 1])
    parts = split_by_date(jobs, ["2024-10-05", "2024-10-08"])
    assert [part.job_id.tolist() for part in parts] == [["0"], ["1", "2"], ["3", "4"]]
    assert [part.submit_s.tolist() for part in parts] == [[10], [0, 0.25], [0, 5 * DAY_S - 1]]
    moments = np.concatenate([part.origin_s + part.submit_s for part in parts])
    assert np.array_equal(moments, jobs.origin_s + jobs.submit_s)


@pytest.mark.parametrize(
    ("dates", "sentence"),
    [
        (["2024-10-04"], "at: no job was submitted before 2024-10-04; the trace is from 2024-10-04 to 2024-10-07"),
        (["2024-10-05", "2024-10-06"], "at: no job was submitted from 2024-10-05 on until 2024-10-06"),
        (["2024-10-09"], "at: no job was submitted from 2024-10-09 on"),
        (["2024-10-06", "2024-10-05"], "at: got 2024-10-06 and then 2024-10-05, allowed are dates that rise"),
        (["soon"], "at: got 'soon'"),
    ],
)
def test_split__refuses_dates_that_leave_nothing(dates: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        split_by_date(jobs_of([0, 3 * DAY_S]), dates)


LONG = jobs_of([0.0] * 4000, run_s=np.geomspace(1, 40 * DAY_S, 4000).tolist())


@pytest.mark.parametrize("model", REQUESTS)
def test_requests__never_cut_a_job_short(model: str) -> None:
    made = with_requests(LONG, model, 3)
    assert (made.limit_s >= LONG.run_s).all()
    assert np.isfinite(made.limit_s).all()
    assert np.array_equal(made.limit_s, with_requests(LONG, model, 3).limit_s)
    assert "Synthetic" in (getattr(requests, model.replace("-", "_")).__doc__ or "")


def test_requests__of_the_trace_stay() -> None:
    jobs = jobs_of([0, 1], run_s=[60, 60])
    jobs.limit_s[0] = 777.0
    assert with_requests(jobs, "constant").limit_s.tolist() == [777, 7 * DAY_S]


def test_requests__the_same_seed_gives_the_same_used_share_under_every_model() -> None:
    exact = with_requests(LONG, "unrounded", 5).limit_s
    assert (with_requests(LONG, "menu-1h", 5).limit_s >= np.minimum(exact, 7 * DAY_S)).all()
    assert not np.array_equal(exact, with_requests(LONG, "unrounded", 6).limit_s)


def test_requests__by_model() -> None:
    short = jobs_of([0.0] * 20000, run_s=[100.0] * 20000)
    assert with_requests(short, "perfect").limit_s.tolist() == short.run_s.tolist()
    used = 100 / with_requests(short, "unrounded").limit_s
    assert np.median(used) == pytest.approx(0.22, abs=0.01)
    assert used.min() == pytest.approx(0.01)
    hours = {1, 2, 4, 8, 12, 24, 48, 72, 168}
    assert set((with_requests(LONG, "menu-1h").limit_s[LONG.run_s < 7 * DAY_S] / 3600).tolist()) == hours
    assert set((with_requests(short, "menu-15min").limit_s / 3600).tolist()) == {0.25, 1, 2, 4}
    assert set((with_requests(LONG, "three-classes").limit_s[LONG.run_s < 7 * DAY_S] / 3600).tolist()) == {4, 24, 168}
    assert set(with_requests(short, "constant").limit_s.tolist()) == {7 * DAY_S}


def test_requests__unknown_model() -> None:
    with pytest.raises(UnknownName, match=r"no request model 'menu'\. Did you mean 'menu-1h'"):
        with_requests(LONG, "menu")


def test_summary__of_a_few_jobs() -> None:
    jobs = replace(
        jobs_of([0, 3600, DAY_S], n_gpus=[1, 4, 4], run_s=[3600, 7200, 3600]),
        limit_s=np.array([7200, 7200, math.inf]),
        waited_s=np.array([5, math.nan, math.nan]),
        user=np.array(["ann", "bob", "ann"]),
    )
    facts = summarise_gangs(jobs, n_gpus=2)
    assert (facts.first_submit, facts.last_submit, facts.days) == ("2024-10-04 00:00:00", "2024-10-05 00:00:00", 1)
    assert facts.gpu_hours == 13
    assert facts.load == pytest.approx(13 / 48)
    assert facts.jobs_by_gpus == {1: 1, 4: 2}
    assert facts.gpu_hours_by_gpus == {1: 1, 4: 12}
    assert (facts.n_waits, facts.n_limits) == (1, 2)
    assert facts.used_frac[-1] == 1
    assert facts.arrivals_by_hour[:2] == (2, 1)
    assert facts.users == {"ann": 2, "bob": 1}
    assert facts.groups == {}
    assert math.isnan(summarise_gangs(jobs).load)


def test_shares__fit_the_trace_they_come_from() -> None:
    root = Path(__file__).resolve().parents[4]
    found = sorted((root.parent / "shared" / "data" / "traces").glob("drac_slurm_2021/*.csv.gz"))
    if not found:
        pytest.skip("the public trace is not beside the checkout; see docs/traces.md for its source")
    from smartmig.workload.gang.drac import DracJobs

    jobs = DracJobs(found[0]).jobs()
    used = np.clip(jobs.run_s / jobs.limit_s, requests.LEAST_USED, 1)
    drawn = np.clip(np.random.default_rng(0).beta(*requests.USED_BETA, used.size), requests.LEAST_USED, 1)
    assert np.median(used) == pytest.approx(np.median(drawn), abs=0.01)
    assert used.mean() == pytest.approx(drawn.mean(), abs=0.05)
