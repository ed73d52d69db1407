"""Waiting, slowdown, utilisation and fairness of small runs, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.hardware.nodes import Node, NodeCluster, Outage, parse_nodes
from smartmig.metrics.gang import (
    bounded_slowdowns,
    busy_windows,
    jain,
    saturated,
    saturated_utilisation,
    size_classes,
    stranded,
    summarise,
    utilisation,
)
from smartmig.sim.gang.run import simulate
from smartmig.types import GangJobs, GangRun
from strategies import gang_policy, make_gangs

FCFS = gang_policy("fcfs", "best-fit")
PAIR = parse_nodes("1x2")


def blocked() -> tuple[GangJobs, GangRun]:
    """One GPU until 10; two from 10 to 15; one from 20 to 120."""
    jobs = make_gangs((0, 1, 10, 10), (4, 2, 5, 5), (20, 1, 100, 100), user="xyx")
    return jobs, simulate(jobs, PAIR, FCFS)


def test_summary__of_three_jobs() -> None:
    jobs, run = blocked()
    summary = summarise(jobs, run, PAIR)
    assert summary.n_jobs == 3
    assert summary.mean_wait_s == pytest.approx(6 / 3)
    assert summary.median_wait_s == 0
    assert summary.worst_wait_s == 6
    assert summary.mean_turnaround_s == pytest.approx((10 + 11 + 100) / 3)
    # (6 + 5) / max(5, 10)
    assert summary.mean_bounded_slowdown == pytest.approx((1 + 1.1 + 1) / 3)
    assert summary.gpu_utilisation == pytest.approx((10 + 10) / (2 * 20))
    # One GPU is free while the second job waits from 4 to 10.
    assert summary.stranded_frac == pytest.approx(6 / (2 * 20))
    assert summary.makespan_s == 120
    assert summary.wait_by_size_s == {"1": 0, "2": 6}
    assert summary.wait_by_user_s == {"x": 0, "y": 6}
    assert summary.user_fairness == pytest.approx(2.1**2 / (2 * (1 + 1.21)))
    assert (summary.n_starved, summary.n_killed, summary.n_restarts) == (0, 0, 0)


def test_summary__without_users_has_no_fairness_among_them() -> None:
    jobs = make_gangs((0, 1, 10, 10))
    summary = summarise(jobs, simulate(jobs, PAIR, FCFS), PAIR)
    assert summary.user_fairness is None
    assert summary.wait_by_user_s == {}
    # All came at once: until the last completion.
    assert summary.gpu_utilisation == 0.5


def test_summary__counts_the_starved() -> None:
    week = 7 * 86_400.0
    jobs = make_gangs((0, 2, week + 1, week + 1), (0, 2, 1, 1), (2, 2, 1, 1))
    assert summarise(jobs, simulate(jobs, PAIR, FCFS), PAIR).n_starved == 1


def test_utilisation__over_the_windows_in_which_jobs_waited() -> None:
    jobs, run = blocked()
    assert busy_windows(jobs, run) == [(4.0, 10.0)]
    assert utilisation(run, PAIR, [(4.0, 10.0)]) == 0.5
    assert utilisation(run, PAIR, [(4.0, 10.0), (10.0, 15.0)]) == pytest.approx((6 + 10) / 22)
    assert utilisation(run, PAIR, []) == 0.0


def test_utilisation__of_a_saturated_queue() -> None:
    jobs = saturated(make_gangs((0, 1, 10, 10), (4, 2, 5, 5), (20, 1, 100, 100)))
    run = simulate(jobs, PAIR, FCFS)
    assert run.start_s.tolist() == [0, 10, 15]
    assert saturated_utilisation(run, PAIR) == pytest.approx((10 + 10) / 30)
    assert saturated_utilisation(run, PAIR, started_frac=0.6) == 0.5


def test_stranded__gpus_of_a_node_that_is_away_are_not_free() -> None:
    cluster = NodeCluster((Node(1), Node(1)), (Outage(1, 2.0, 6.0),))
    jobs = make_gangs((0, 1, 10, 10), (2, 2, 5, 5), (12, 1, 1, 1))
    run = simulate(jobs, cluster, FCFS)
    assert run.start_s.tolist() == [0, 10, 15]
    # The pair waits from 2 to 10, node 1 is away until 6; the third waits from 12 to 15 with nothing free.
    assert stranded(jobs, run, cluster, (0.0, 12.0)) == pytest.approx(4 / 24)


def test_slowdown__is_bounded_below() -> None:
    jobs = make_gangs((0, 2, 1, 1), (0, 2, 1, 1), (0, 2, 1000, 1000))
    assert bounded_slowdowns(jobs, simulate(jobs, PAIR, FCFS)).tolist() == [1, 1, pytest.approx(1.002)]


def test_jain__is_one_when_all_are_alike() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_sizes__fall_into_classes_of_powers_of_two() -> None:
    assert size_classes(np.array([1, 2, 3, 4, 5, 8, 9, 64])).tolist() == [
        "1", "2", "3-4", "3-4", "5-8", "5-8", "9-16", "33-64"
    ]  # fmt: skip
