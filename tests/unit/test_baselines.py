"""The searched baselines: the race is exact, tries everything and looks at training days only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smartmig import baselines
from smartmig.baselines import Search, Trial, best_no_partition, best_static, best_twice_daily, run_trial
from smartmig.compare import Shard, run_shard
from smartmig.policy.repartition.no_partition import NoPartition
from smartmig.policy.repartition.static import Static
from smartmig.policy.repartition.twice_daily import TwiceDaily
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario, placement_rule
from smartmig.sim.mig.run import Policy
from smartmig.workload.seeds import TRAINING_FIRST

DAY = {"id": "day", "multiplier": 1.5}


def search(gpus: str = "1xa30", days: int = 3, **knobs: object) -> Search:
    scenario = Scenario(version=1, cluster=ClusterSpec(gpus), workload=DAY)
    return replace(Search(scenario, days=days, first_days=days), **knobs)


def silent(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total, what


def mean_et(where: Search, policy: PolicySpec) -> float:
    """The slow way: whole simulations."""
    seeds = range(where.first_seed, where.first_seed + where.days)
    return float(np.mean([run_shard(Shard(where.scenario, policy, seed)).et for seed in seeds]))


@pytest.mark.parametrize("gpus", ["1xa100-40gb", "2xa100-40gb,1xa30"])
@pytest.mark.parametrize("like", [PolicySpec(), PolicySpec(preempt=False, recut="drain")], ids=["paper", "drain"])
def test_run_trial__gives_what_simulate_gives(gpus: str, like: PolicySpec) -> None:
    where = search(gpus, like=like, placements=("categorical-edf", "shortest-work"))
    rules = [NoPartition(), Static(("3",)), TwiceDaily("6", "2", 5.0, 17.0), TwiceDaily("1", "9", 0.0, 8.0)]
    policies = tuple(Policy(placement_rule(name), rule) for rule in rules for name in where.placements)
    found = run_trial(Trial(where, policies, TRAINING_FIRST))
    ids = ("no-partition", {"id": "static", "mix": ("3",)}, *(_twice_daily(rule) for rule in rules[2:]))
    specs = [replace(like, placement=name, repartition=rule) for rule in ids for name in where.placements]
    assert found.tolist() == [run_shard(Shard(where.scenario, spec, TRAINING_FIRST)).et for spec in specs]


def _twice_daily(rule: TwiceDaily) -> dict[str, object]:
    hours = {"day_from_h": rule.day_from_h, "day_until_h": rule.day_until_h}
    return {"id": "twice-daily", "day_cut": rule.day_cut, "night_cut": rule.night_cut, **hours}


def test_run_trial__a_cut_without_room_for_a_job_costs_inf(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "job_id,arrive_s,deadline_s,run_1g_s,run_2g_s,run_3g_s,run_4g_s,run_7g_s,kind,memory_gb\n"
        "big,0,90,60,32,23,19,13,bert-train,30\n"
    )
    scenario = Scenario(
        version=1, cluster=ClusterSpec("1xa100-40gb"), workload={"id": "csv", "path": tmp_path / "jobs.csv"}
    )
    policies = tuple(Policy(placement_rule("categorical-edf"), Static((cut,))) for cut in ("1", "12"))
    whole, split = run_trial(Trial(Search(scenario), policies, 0))
    assert whole < split == np.inf


def test_best_static__is_the_best_of_all_cuts_and_placements() -> None:
    where = search(placements=("categorical-edf", "edf-fastest"))
    found = best_static(where, silent)
    slow = {
        (name, cut): mean_et(where, PolicySpec(name, {"id": "static", "mix": (cut,)}))
        for name in where.placements
        for cut in baselines._cuts(where)
    }
    placement, cut = min(slow, key=lambda key: slow[key])
    assert found.policy == PolicySpec(placement, {"id": "static", "mix": (cut,)})
    assert found.et == pytest.approx(slow[placement, cut], rel=1e-12)
    assert found.n_tried == len(slow)


def test_best_no_partition__chooses_the_placement() -> None:
    where = search(placements=("llf-fastest", "shortest-work"))
    found = best_no_partition(where, silent)
    slow = {name: mean_et(where, PolicySpec(name, "no-partition")) for name in where.placements}
    assert found.policy.placement == min(slow, key=lambda name: slow[name])


def test_best_twice_daily__is_no_worse_than_any_pair_at_coarse_hours() -> None:
    where = search(days=2)
    found = best_twice_daily(where, silent)
    assert found.et == pytest.approx(mean_et(where, found.policy), rel=1e-12)
    n_cuts = len(baselines._cuts(where))
    assert found.n_tried >= n_cuts * (n_cuts - 1) * 15
    for day in baselines._cuts(where):
        for night in baselines._cuts(where):
            spec = _twice_daily(TwiceDaily(day, night, 4.0, 16.0))
            assert day == night or found.et <= mean_et(where, PolicySpec(where.placements[0], spec)) + 1e-12


def test_search__sees_training_days_only() -> None:
    where = Search(Scenario(version=1))
    days = [where.first_seed + day for _, heat in baselines._heats(where, 10_000) for day in heat]
    assert days == list(range(TRAINING_FIRST, TRAINING_FIRST + where.days))


def test_heats__all_run_the_first_days_and_few_run_all() -> None:
    heats = baselines._heats(replace(search(), days=10, first_days=4), 1000)
    assert heats == [(1000, range(4)), (250, range(4, 8)), (100, range(8, 10))]
    assert baselines._heats(search(days=3), 72) == [(72, range(3))]
