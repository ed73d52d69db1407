"""S1's table: its learned row."""

from __future__ import annotations

from dataclasses import replace

from smartmig.compare import Shard, run_shard
from smartmig.reproduce.reproduction import LATE
from smartmig.reproduce.s1 import PPO, table
from smartmig.scenario import Scenario
from smartmig.train.placer import read_placer
from smartmig.train.settings import StepTraining


def test_s1_learned_row__has_fewer_late_jobs_than_largest_first() -> None:
    row = table().rows[-1]
    assert row.measure is not None
    scenario = replace(Scenario(version=1), workload=row.workload)
    scenario = replace(scenario, cluster=replace(scenario.cluster, gpus=row.gpus))
    shard = Shard(scenario, row.policy, 0)
    assert row.measure(shard)[LATE.id] < LATE.of(run_shard(shard))


def test_s1_learned_row__was_trained_with_s1s_settings() -> None:
    assert read_placer(PPO).settings == StepTraining()
