"""Job sets whose best schedule is known: the bound reaches it, but for what the climb and the intervals leave."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.bounds import Search, Stage, energy_bound, et_bound, mip_tardiness_bound, pareto_bound, tardiness_bound
from smartmig.hardware.model import gpu_model
from smartmig.types import Jobs

A100 = gpu_model("a100-40gb")
P_0, P_1, P_7 = A100.power.watts[0], A100.power.watts[1], A100.power.watts[7]
LINEAR = (1.0, 2.0, 3.0, 4.0, 7.0)
FLAT = (1.0, 1.0, 1.0, 1.0, 1.0)
THOROUGH = Search(stages=(Stage(40, 600, 1.0, 0.05, 0.2, 0.02), Stage(80, 1500, 0.2, 0.001, 0.05, 0.001)))
WITHIN = 0.01
"""Prices are constant within an interval, and the climb ends near the top, not on it."""


def job_set(*rows: tuple[float, float, float, tuple[float, ...]]) -> Jobs:
    """(arrival, deadline, run time on 1g, speedups)"""
    arrive, deadline, single, speedup = zip(*rows, strict=True)
    run_s = np.array(single)[:, None] / np.array(speedup)
    names = np.array([str(i) for i in range(len(rows))])
    return Jobs(names, np.array(arrive), np.array(deadline), run_s, np.full(len(rows), ""), np.zeros(len(rows)))


def test_energy__of_one_linear_job_is_a_whole_card() -> None:
    jobs = job_set((100.0, 1000.0, 700.0, LINEAR))
    assert energy_bound(jobs, (A100,)).value == pytest.approx(100 * P_0 + 100 * P_7, rel=WITHIN)


def test_energy__of_jobs_that_gain_nothing_is_a_card_full_of_small_slices() -> None:
    jobs = job_set(*[(0.0, 1000.0, 700.0, FLAT)] * 7)
    assert energy_bound(jobs, (A100,), search=THOROUGH).value == pytest.approx(700 * P_7, rel=WITHIN)


def test_energy__charges_a_lone_slice_no_more_than_its_share() -> None:
    """Cards may mix states within an interval: a lone 1g slice costs a seventh of a full card, not its own 119 W."""
    jobs = job_set((0.0, 1000.0, 700.0, FLAT))
    bound = energy_bound(jobs, (A100,), search=THOROUGH).value
    assert bound == pytest.approx(700 * (P_0 + (P_7 - P_0) / 7), rel=WITHIN)
    assert bound <= 700 * P_1


def test_energy__counts_the_idle_card() -> None:
    jobs = job_set((0.0, 1000.0, 700.0, LINEAR))
    assert energy_bound(jobs, (A100, A100)).value == pytest.approx(100 * (P_0 + P_7), rel=WITHIN)


def test_tardiness__of_one_late_job_is_its_fastest_run() -> None:
    jobs = job_set((50.0, 60.0, 700.0, LINEAR))
    assert tardiness_bound(jobs, (A100,), search=THOROUGH).value == pytest.approx(90.0, rel=WITHIN)


def test_tardiness__of_equal_jobs_in_line() -> None:
    """Three jobs of 100 s on a whole card, due at once: 100 + 200 + 300."""
    jobs = job_set(*[(0.0, 0.0, 700.0, LINEAR)] * 3)
    assert tardiness_bound(jobs, (A100,), search=THOROUGH).value == pytest.approx(200.0, rel=WITHIN)


def test_tardiness__of_short_and_long_jobs_is_shortest_first() -> None:
    """On a whole card 50, 100 and 150 s, due at once: 50 + 150 + 300 when the shortest goes first."""
    jobs = job_set((0.0, 0.0, 350.0, LINEAR), (0.0, 0.0, 700.0, LINEAR), (0.0, 0.0, 1050.0, LINEAR))
    bound = tardiness_bound(jobs, (A100,), search=THOROUGH).value
    assert bound <= 500 / 3
    assert bound == pytest.approx(500 / 3, rel=0.03)


def test_et__of_one_job_adds_both() -> None:
    jobs = job_set((0.0, 40.0, 700.0, LINEAR))
    expected = (1e-3 * 100 * P_7 / 60 + 60 / 60) / (1 + 1e-3)
    assert et_bound(jobs, (A100,), 1e-3, search=THOROUGH).value == pytest.approx(expected, rel=WITHIN)


def test_energy_given_tardiness__forces_the_fast_and_hungry_way() -> None:
    """Seven jobs that fill seven 1g slices for 100 s, or a whole card for 80 s each, one after the other."""
    jobs = seven()
    frugal = energy_bound(jobs, (A100,), search=THOROUGH).value
    # On a card each, all are done by 80 s: cards all of 7g.
    punctual = energy_bound(jobs, (A100,) * 7, 0.0, search=THOROUGH).value
    assert frugal == pytest.approx(100 * P_7, rel=WITHIN)
    assert punctual == pytest.approx(7 * 80 * P_7, rel=WITHIN)


def test_pareto__joins_the_frugal_and_the_punctual_end() -> None:
    curve = pareto_bound(seven(), (A100,) * 7, search=THOROUGH, n_lines=5)
    # All on their own cards: no tardiness. Or one card full of 1g slices for 100 s, the other six idle: 20 s late.
    assert curve.energy_at(0.0) <= 7 * 80 * P_7
    assert curve.energy_at(20.0) <= 100 * P_7 + 6 * 100 * P_0
    assert curve.energy_at(0.0) > 1.5 * curve.energy_at(20.0)
    assert curve.energy_at(-1.0) == np.inf


def seven() -> Jobs:
    return job_set(*[(0.0, 80.0, 100.0, (1.0, 1.0, 1.0, 1.0, 1.25))] * 7)


def test_mip__is_at_most_its_stated_error_below_the_optimum() -> None:
    jobs = job_set(*[(0.0, 0.0, 700.0, LINEAR)] * 3)
    bound = mip_tardiness_bound(jobs, (A100,), slot_s=5.0, time_limit_s=300.0)
    assert 200.0 - 2 * 5.0 <= bound.value <= 200.0
    assert "2 n eps = 30 s" in bound.method
    assert bound.certificate is None
