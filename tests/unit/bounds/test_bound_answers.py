"""Bounds as a program uses them: refusals, limits, stopping, certificates on disk, mixed clusters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smartmig.bounds import (
    QUICK,
    Search,
    check_certificate,
    energy_bound,
    et_bound,
    load_certificates,
    mip_tardiness_bound,
    paper_energy_bound,
    save_certificates,
    tardiness_bound,
)
from smartmig.bounds.relaxation import MOST_CURVES, MOST_JOBS, relax, time_grid
from smartmig.errors import InputError
from smartmig.hardware.model import gpu_model
from smartmig.types import Jobs
from smartmig.workload.poisson import FixedRate

A100 = gpu_model("a100-40gb")
FAST = Search(stages=QUICK)


@pytest.fixture(scope="module")
def jobs() -> Jobs:
    return FixedRate(n_jobs=60, rate_per_min=4.0).jobs(seed=1)


def only(jobs: Jobs, rows: slice) -> Jobs:
    return Jobs(*(getattr(jobs, name)[rows] for name in Jobs.__dataclass_fields__))


def test_bound__refuses_no_jobs(jobs: Jobs) -> None:
    for bound in (et_bound, energy_bound, tardiness_bound, mip_tardiness_bound):
        with pytest.raises(InputError, match="no jobs"):
            bound(only(jobs, slice(0)), (A100,))


def test_bound__refuses_too_many_jobs() -> None:
    n = MOST_JOBS + 1
    text = np.full(n, "")
    many = Jobs(text, np.zeros(n), np.zeros(n), np.ones((n, 5)), text, np.zeros(n))
    with pytest.raises(InputError, match="too many"):
        et_bound(many, (A100,))
    with pytest.raises(InputError, match="slots"):
        mip_tardiness_bound(many, (A100,))


def test_bound__refuses_a_job_that_fits_nowhere(jobs: Jobs) -> None:
    with pytest.raises(InputError, match="fits no slice of a100-40gb"):
        et_bound(replace(jobs, memory_gb=np.full(len(jobs), 41.0)), (A100,))


def test_papers_bounds__refuse_mixed_clusters(jobs: Jobs) -> None:
    mixed = (A100, gpu_model("h200-141gb"))
    for bound in (paper_energy_bound, mip_tardiness_bound):
        with pytest.raises(InputError, match="one GPU model"):
            bound(jobs, mixed)


def test_priced_bound__takes_mixed_clusters(jobs: Jobs) -> None:
    mixed = (A100, gpu_model("a30"), gpu_model("h200-141gb"))
    bound = et_bound(jobs, mixed, estimated_speed=True, search=FAST)
    assert bound.certificate is not None
    assert check_certificate(bound.certificate, jobs, mixed).valid
    assert not check_certificate(bound.certificate, jobs, (A100,)).valid


def test_bound__stops_at_the_time_limit_with_a_valid_bound(jobs: Jobs) -> None:
    bound = et_bound(jobs, (A100,) * 2, search=Search(time_limit_s=0.0))
    assert bound.stopped
    assert not bound.interrupted
    assert bound.certificate is not None
    assert check_certificate(bound.certificate, jobs, (A100,) * 2).valid
    assert bound.value <= et_bound(jobs, (A100,) * 2, search=FAST).value


@pytest.mark.parametrize("max_tardiness_s", [None, 30.0])
def test_bound__stopped_by_the_user_is_the_best_so_far(jobs: Jobs, max_tardiness_s: float | None) -> None:
    heard = 0

    def stop(what: str, done: int, total: int) -> None:
        nonlocal heard
        assert what
        assert done <= total
        heard += 1
        if heard == 15:
            raise KeyboardInterrupt

    bound = energy_bound(jobs, (A100,) * 2, max_tardiness_s, search=Search(stages=QUICK, progress=stop))
    assert bound.interrupted
    assert bound.stopped
    assert bound.certificate is not None
    assert check_certificate(bound.certificate, jobs, (A100,) * 2).valid


def test_certificates__survive_the_disk(jobs: Jobs, tmp_path: Path) -> None:
    bound = et_bound(jobs, (A100,), search=FAST)
    assert bound.certificate is not None
    save_certificates(tmp_path / "proof.npz", {"et": bound.certificate})
    loaded = load_certificates(tmp_path / "proof.npz")["et"]
    assert loaded.value == bound.certificate.value
    assert np.array_equal(loaded.prices, bound.certificate.prices)
    assert check_certificate(loaded, jobs, (A100,)).valid


def test_certificates__refuse_other_files(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("prices")
    np.savez(tmp_path / "other.npz", prices=np.zeros(3))
    np.savez(tmp_path / "old.npz", version=np.array(0))
    np.savez(tmp_path / "part.npz", **{"version": np.array(1), "et/prices": np.zeros(3)})
    for name in ("missing.npz", "text.npz", "other.npz", "old.npz", "part.npz"):
        with pytest.raises(InputError, match=name):
            load_certificates(tmp_path / name)


def test_check__refuses_prices_that_prove_nothing(jobs: Jobs) -> None:
    proof = et_bound(jobs, (A100,), search=FAST).certificate
    assert proof is not None
    wrong = {
        "prices must be": replace(proof, prices=-proof.prices),
        "open-ended": replace(proof, prices=proof.prices * 50),
        "edges must": replace(proof, edges_s=proof.edges_s[::-1].copy()),
        "do not belong": replace(proof, prices=proof.prices[1:]),
        "less than is claimed": replace(proof, value=proof.value * 1.01),
        "no price for": replace(proof, kinds=proof.kinds[1:], prices=proof.prices[:, 1:]),
        "weights": replace(proof, late_weight=-1.0),
    }
    for reason, certificate in wrong.items():
        verdict = check_certificate(certificate, jobs, (A100,))
        assert not verdict.valid
        assert reason in verdict.reason


def test_relaxation__rounds_many_curves_up_to_few(jobs: Jobs) -> None:
    rng = np.random.default_rng(0)
    speed = np.sort(rng.uniform(1, 7, size=(400, 5)), axis=1)
    many = FixedRate(n_jobs=400).jobs(seed=0)
    many = replace(many, run_s=many.run_s[:, :1] / speed)
    relaxation = relax(many, (A100,))
    assert relaxation.speed.shape[0] <= MOST_CURVES
    order = np.argsort(many.arrive_s, kind="stable")
    with np.errstate(divide="ignore"):
        relaxed_s = relaxation.work[:, None] / relaxation.speed[relaxation.curve]
    assert (relaxed_s <= many.run_s[order] * (1 + 1e-12)).all()
    assert relax(jobs, (A100,)).speed.shape[0] == 4


def test_relaxation__tells_slices_apart_by_memory_only_where_jobs_do(jobs: Jobs) -> None:
    assert relax(jobs, (A100,)).n_kinds == 5
    needy = replace(jobs, memory_gb=np.full(len(jobs), 8.0))
    assert relax(needy, (A100,)).n_kinds == 6, "1g.5gb and 1g.10gb differ for jobs of 8 GB"


def test_time_grid__has_the_earliest_end_as_an_edge_and_no_end(jobs: Jobs) -> None:
    relaxation = relax(jobs, (A100,) * 3)
    for n_intervals in (1, 60, 1000):
        edges = time_grid(relaxation, n_intervals)
        assert edges[0] == 0
        assert edges[-1] == np.inf
        assert edges.size > n_intervals
        assert (np.diff(edges) > 0).all()
        assert relaxation.end_s in edges


def test_bound__does_not_mind_when_time_starts(jobs: Jobs) -> None:
    """Seconds since 1970 leave as many intervals to the jobs."""
    later = replace(jobs, arrive_s=jobs.arrive_s + 1e9, deadline_s=jobs.deadline_s + 1e9)
    early, late = (tardiness_bound(some, (A100,), search=FAST).value for some in (jobs, later))
    assert late == pytest.approx(early, rel=0.01)


def test_bound__says_how_far_above_a_schedule_is(jobs: Jobs) -> None:
    bound = paper_energy_bound(jobs, (A100,))
    assert bound.above_frac(bound.value * 1.25) == pytest.approx(0.25)
    assert replace(bound, value=0.0).above_frac(1.0) == np.inf
