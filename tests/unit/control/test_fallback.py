"""When a plain rule decides: a policy that fails, and inputs unlike anything it was trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live_cluster import JOBS, again, fallbacks, gang_loop, mig_loop, turn_all
from smartmig.adapters.simulated.feed import made_up_gangs
from smartmig.cli.live_policy import PolicyNames
from smartmig.cli.policy_files import trained_ranges
from smartmig.control.decide import Decider, Decision
from smartmig.control.effect import estimated, measured
from smartmig.control.explain import explain
from smartmig.control.journal import open_journal
from smartmig.control.memory import Memory
from smartmig.types import JobKey, JobRequest, Share, Start
from smartmig.workload.diurnal import DiurnalDay


def test_fallback__decides_when_the_policy_fails(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)

    def fail(*_: Any) -> None:
        raise ValueError("broken rule")

    loop.pilot.decider.decide = fail  # type: ignore[method-assign, assignment]
    turn_all(loop, cluster)
    loop.journal.close()
    assert len(cluster.ended) == len(JOBS)
    assert loop.counts.fallbacks == loop.counts.decisions
    bodies = [record.body for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("decision",))]
    assert all("broken rule" in body["fallback"] for body in bodies if body["plan"])


def test_fallback__decides_when_a_plan_cannot_be_judged(tmp_path: Path) -> None:
    loop, cluster = mig_loop(tmp_path, DiurnalDay().jobs(1))
    timeless = JobRequest(JobKey("0", 0.0), 0)
    seen = replace(loop.source.observe(5), queued=(timeless,))
    node = seen.nodes[0]
    there = Share(node.name, 0, 0, node.gpus[0].instances[0].start)
    plan = (Start(timeless.key, (there,)),)
    loop.pilot.decider.decide = lambda *_: Decision(plan, Memory())  # type: ignore[method-assign, assignment]
    judged = loop.pilot.decide(seen)
    assert "the policy failed: IndexError" in judged.fallback
    assert judged.plan == ()
    assert cluster.queue == {}
    loop.journal.close()


def test_fallback__may_fail_as_well(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)

    def fail(*_: Any) -> None:
        raise ValueError("broken rule")

    loop.pilot.decider.decide = loop.pilot.fallback.decide = fail  # type: ignore[method-assign, assignment]
    cluster.take_over()
    cluster.advance_to(0.0)
    assert loop.step().judged.plan == ()
    loop.journal.close()
    bodies = [record.body for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("decision",))]
    assert ["the plain rule failed as well" in body["fallback"] for body in bodies] == [True]


def test_drift__of_a_learned_policy_brings_the_fallback(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=6).jobs(0)
    loop, _ = mig_loop(tmp_path, day, names=PolicyNames(repartition="mean-field"))
    n = 58
    loop.pilot.ranges = {"mig": (np.full(n, 100.0), np.full(n, 101.0))}
    assert all("outside what the policy was trained on" in why for why in fallbacks(loop, 5))


@pytest.mark.parametrize(
    "names",
    [
        PolicyNames(repartition="mean-field"),
        PolicyNames(placement="learned"),
        PolicyNames(placement="learned", repartition="mean-field"),
        PolicyNames(
            placement={"id": "learned", "policy_file": "joint"},
            repartition={"id": "mean-field", "policy_file": "joint"},
        ),
    ],
    ids=["cutting", "placing", "both", "joint"],
)
@pytest.mark.parametrize("layouts", ["12,12,12,12", "10,5,9,2"])
def test_drift__shipped_policies_of_cards_come_to_any_cut(tmp_path: Path, names: PolicyNames, layouts: str) -> None:
    day = DiurnalDay(multiplier=10).jobs(3)
    loop, _ = mig_loop(tmp_path, day, "4xa100-40gb", layouts, names=names)
    loop.pilot.ranges = trained_ranges(names.policy(("mig",)))
    assert fallbacks(loop, 200) == {""}
    assert loop.turn is not None
    assert loop.turn.judged.drift_checked


def test_drift__a_flood_of_jobs_on_cards_is_not_decided_by_a_network(tmp_path: Path) -> None:
    names = PolicyNames(repartition="mean-field")
    loop, _ = mig_loop(tmp_path, DiurnalDay(multiplier=400).jobs(3), "4xa100-40gb", "1,1,1,1", names=names)
    loop.pilot.ranges = trained_ranges(names.policy(("mig",)))
    assert any("outside what the policy was trained on" in why for why in fallbacks(loop, 200))


def test_drift__cuts_of_a_refused_plan_are_not_made_later(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=6).jobs(0)
    loop, cluster = mig_loop(tmp_path, day, layouts="10,12", names=PolicyNames(repartition="mean-field"))
    before = [card.layout for machine in cluster.machines for card in machine.cards]
    loop.pilot.ranges = {"mig": (np.full(58, 100.0), np.full(58, 101.0))}
    for _ in range(100):
        loop.source.wait(1e9)
        loop.step()  # what has changed
        loop.step()  # and when nothing has, the network is not asked
    assert loop.counts.fallbacks > 0
    assert [card.layout for machine in cluster.machines for card in machine.cards] == before
    assert loop.counts.cuts == 0
    assert len(loop.books.finished) > 0


@pytest.mark.parametrize("goal", ["slowdown", "wait"])
def test_drift__shipped_agents_decide_on_usual_days_and_not_in_a_flood(tmp_path: Path, goal: str) -> None:
    learned = {"id": "learned", "policy_file": goal}
    names = PolicyNames(selection=learned, allocation=learned)
    jobs = made_up_gangs(64, 8, 0.8, seed=1)
    flood = replace(jobs, submit_s=np.zeros(len(jobs)), n_gpus=np.full(len(jobs), 2))
    for arriving, drifts in ((jobs, False), (flood, True)):
        folder = tmp_path / str(drifts)
        folder.mkdir()
        loop, _ = gang_loop(folder, arriving, "8x8", names=names)
        loop.pilot.ranges = trained_ranges(names.policy(("gang",)))
        why = fallbacks(loop, 40)
        assert any("outside what the policy was trained on" in one for one in why) == drifts


def test_mean_field__cuts_cards_beside_running_work(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=5).jobs(1)
    names = PolicyNames(placement="shortest-work", repartition="mean-field")
    loop, _ = mig_loop(tmp_path, day, layouts="1,10", names=names)
    for _ in range(300):
        if not loop.source.wait(1e9):
            break
        loop.step()
    loop.journal.sync(30)
    loop.journal.close()
    assert loop.counts.cuts > 0
    assert loop.counts.failed == 0
    assert all("go back to the cut" in one["why"] or "was cut 12 times" in one["why"] for one in loop.refusals)
    assert again(str(tmp_path / "journal.db"), names, ("mig",)).n_different == 0
    finished = list(loop.books.finished)
    assert loop.books.energy_j > 0
    effect = estimated(finished, loop.seen.nodes, names.policy(("mig",)))
    assert effect is not None
    assert effect.n_jobs == measured(finished).n_jobs == len(finished) > 50
    told = explain(Decider(names.policy(("mig",))), loop.seen, loop.pilot.memory)
    assert all(abs(sum(one["share"] for one in row["next"])) <= 1 + 1e-9 for row in told["cuts"])
