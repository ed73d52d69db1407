"""What a learned policy prefers: shares by hour and crowding, from the decisions of played days."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.compare import learned_preferences
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.encoding import AT_EDGE, N_FEATURES
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.report.preferences import (
    CROWDING,
    crowding_labels,
    preference_bars,
    preferences,
)
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario
from smartmig.sim.mig.batch import Played
from smartmig.sim.mig.run import Cluster, cuts_of


def played(time_s: list[float], whole: list[int], jobs_per_gpu: list[float]) -> Played:
    """One day of two GPUs that are whole or in seven."""
    n = len(time_s)
    gpus = np.zeros((n, 2, 12), dtype=np.int16)
    gpus[:, 0, 0] = whole
    gpus[:, 0, 11] = 2 - np.array(whole)
    features = np.zeros((n, N_FEATURES), dtype=np.float32)
    features[:, AT_EDGE] = np.log1p(jobs_per_gpu)
    nothing = np.zeros((n, 1))
    return Played(features, gpus, nothing, nothing, nothing, np.array(time_s), np.zeros(n, dtype=np.int64), nothing)


def test_preferences__weigh_with_time() -> None:
    cuts = cuts_of(Cluster(parse_gpus("2xa100-40gb", "")), MeanField())
    found = preferences(played([0.0, 900.0, 3600.0, 7200.0], [2, 0, 1, 0], [0.1, 8.0, 0.1, 0.1]), cuts)
    assert found.configs == ("7g", "1g+1g+1g+1g+1g+1g+1g")
    assert found.by_hour[0] == pytest.approx([0.25, 0.75])
    assert found.by_hour[1] == pytest.approx([0.5, 0.5])
    assert not found.by_hour[2:].any()  # how long the last decision held is unknown
    assert found.by_crowding[0] == pytest.approx([0.6, 0.4])
    assert found.by_crowding[-1] == pytest.approx([0.0, 1.0])
    assert found.crowding_frac.sum() == pytest.approx(1.0)


def test_learned_preferences__more_slices_when_crowded() -> None:
    policy = PolicySpec("shortest-work", "mean-field")
    plan = Scenario(version=1, cluster=ClusterSpec("8xa100-40gb"), policies=(policy,), seeds=2)
    found = learned_preferences(plan, policy)
    assert found.by_hour.sum(axis=1) == pytest.approx(np.ones(24))
    n_slices = found.by_crowding @ np.array(found.n_slices)
    seen = found.crowding_frac > 0.02
    assert (np.diff(n_slices[seen]) > 0).all()
    figure = preference_bars(found)
    assert len(figure.data) == 2 * len(found.configs)
    assert len(figure.data[1].x) == (found.crowding_frac > 0).sum()


def test_learned_preferences__wants_a_learned_policy() -> None:
    policy = PolicySpec("shortest-work", "slice-count")
    with pytest.raises(TypeError, match="mean-field"):
        learned_preferences(Scenario(version=1, policies=(policy,)), policy)


def test_crowding_labels__one_per_bin() -> None:
    assert len(crowding_labels()) == len(CROWDING) + 1
