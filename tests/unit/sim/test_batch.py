"""Days played for training: under a planner as under any other teacher."""

from __future__ import annotations

import numpy as np

from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.repartition.planner import Planner
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.sim.mig.batch import Days, Setting, row_choices
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.workload.diurnal import DiurnalDay

OFTEN = MeanField(events_per_gpu=2.0)


def days() -> Days:
    setting = Setting(Cluster(parse_gpus("2xa100-40gb", "")), ShortestWork(), Settings())
    return Days(setting, [DiurnalDay(multiplier=1.0).jobs(20_000_000 + seed) for seed in range(2)], n_threads=1)


def test_play__a_planner_is_asked_at_least_as_often_as_a_rule() -> None:
    played = days()
    mute = played.play([0, 1], teacher=Planner(min_history=10**6), rule=OFTEN)
    base = played.play([0, 1], teacher=SliceCount(), rule=OFTEN)
    assert (mute.gpus[:, 0].sum(axis=1) == 2).all()
    for day in (0, 1):  # beside the events' moments there are those of its base rule's clock
        assert np.isin(mute.time_s[mute.day == day] % 60, 0).sum() > 1000
        assert (mute.day == day).sum() > (base.day == day).sum()
    assert (played.et(mute, [0, 1]) < 1.0).all()


def test_play__a_planner_makes_one_choice_per_row() -> None:
    played = days().play([0], teacher=Planner(n_samples=2, n_candidates=6, horizon_s=600.0), rule=OFTEN)
    has_gpus = played.gpus[:, 0] > 0
    choices = played.moves.sum(axis=2)
    assert (choices[has_gpus] >= 1).all()
    assert not choices[~has_gpus].any()
    changes = played.moves.sum() - np.einsum("ncc->", played.moves)
    assert changes > 0


def test_row_choices__a_row_with_a_mover_does_not_stay() -> None:
    moves = row_choices(np.array([0, 0, 3]), np.array([-1, 2, -1]), 4)
    assert moves[0].tolist() == [0, 0, 1, 0]
    assert moves[3].tolist() == [0, 0, 0, 1]
    assert moves[1:3].sum() == 0
