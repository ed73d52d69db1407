"""What another policy would have cost, and why a decision was made: numbers that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smartmig.cli.live_policy import PolicyNames
from smartmig.control.books import Finished
from smartmig.control.decide import Decider
from smartmig.control.effect import estimated, measured
from smartmig.control.explain import explain
from smartmig.control.memory import Memory, begun
from smartmig.hardware.model import gpu_model
from smartmig.types import (
    ClusterState,
    Instance,
    JobKey,
    JobRequest,
    MigGpu,
    NodeInfo,
    Reservation,
    RunningJob,
    Share,
)

DAY_S = 86_400.0
WATTS = gpu_model("a100-40gb").power.watts
RUN_S = (80.0, 45.0, 32.0, 30.0, 28.0)


def card(*instances: tuple[int, str]) -> MigGpu:
    return MigGpu("a100-40gb", tuple(Instance(start, profile) for start, profile in instances))


def slice_job(name: str, submit_s: float, **changes: float) -> JobRequest:
    return replace(JobRequest(JobKey(name, submit_s), 0, run_s=RUN_S), **changes)


WHOLE = card((0, "7g.40gb"))
SPLIT = card((0, "4g.20gb"), (4, "3g.20gb"))


@pytest.mark.parametrize("first_s", [0.0, 10 * 3600.0, DAY_S - 10.0])
def test_effect__energy_counts_from_the_first_job_on_not_from_midnight(first_s: float) -> None:
    begin_s = 20_000 * DAY_S + first_s
    jobs = [Finished(slice_job("a", begin_s, deadline_s=begin_s + 20), begin_s, begin_s + 60)]
    nodes = [NodeInfo("m1", 0, gpus=(WHOLE,)), NodeInfo("m2", 0, gpus=(WHOLE,))]
    effect = estimated(jobs, nodes, PolicyNames(placement="edf-most-packed").policy(("mig",)))
    assert effect is not None
    # 28 s on all of one card, while the other idles.
    assert effect.energy_j == pytest.approx(28 * (WATTS[7] + WATTS[0]), rel=1e-6)
    assert (effect.n_jobs, effect.mean_wait_s, effect.mean_late_s, effect.late_frac) == (1, 0, 8, 1)
    really = measured(jobs)
    assert (really.n_jobs, really.mean_late_s, really.late_frac, really.energy_j) == (1, 40, 1, None)


def test_effect__whole_gpus_have_waits_and_no_energy() -> None:
    jobs = [Finished(JobRequest(JobKey(name, 1000.0), 4, 100.0), 1000.0, 1050.0) for name in "ab"]
    effect = estimated(jobs, [NodeInfo("n1", 4, 4)], PolicyNames().policy(("gang",)))
    assert effect is not None
    assert (effect.n_jobs, effect.mean_wait_s, effect.energy_j) == (2, 25, None)


def test_explain__slices_say_when_how_late_and_with_what_energy() -> None:
    now_s = 36_000.0
    runner = RunningJob(slice_job("r", now_s - 5), now_s - 5, (Share("m1", 0, 0, 4),))
    late = slice_job("late", now_s - 50, deadline_s=now_s + 20)
    big = slice_job("big", now_s - 50, deadline_s=now_s + 500, memory_gb=30.0)
    state = ClusterState(
        now_s, (NodeInfo("m1", 0, gpus=(SPLIT,)), NodeInfo("m2", 0, gpus=(SPLIT,))), (big, late), (runner,)
    )
    decider = Decider(PolicyNames().policy(("mig",)))
    told = explain(decider, state, begun(Memory(), state))
    first, second = told["slices"]
    assert (first["key"], second["key"]) == (["late", now_s - 50], ["big", now_s - 50])
    assert second["options"] == []
    by_places = {tuple((p["node"], p["start"]) for p in one["places"]): one for one in first["options"]}
    beside = by_places[(("m1", 0),)]
    assert beside["profile"] == "4g.20gb"
    assert (beside["done_s"], beside["late_s"]) == (now_s + 30, 10)
    assert beside["energy_j"] == pytest.approx(30 * (WATTS[7] - WATTS[3]))
    assert by_places[(("m2", 4),)]["energy_j"] == pytest.approx(32 * (WATTS[3] - WATTS[0]))
    assert [(one["late_s"], one["energy_j"]) for one in first["options"]] == sorted(
        (one["late_s"], one["energy_j"]) for one in first["options"]
    )
    assert explain(decider, state, begun(Memory(), state), top=0, also=[big.key])["slices"][0]["key"][0] == "big"


def test_explain__slices_are_those_the_job_may_have() -> None:
    nodes = (NodeInfo("m1", 0, gpus=(WHOLE,)), NodeInfo("m2", 0, gpus=(WHOLE,)), NodeInfo("m3", 0, gpus=(WHOLE,)))
    fenced = Reservation("later", ("m3",), 200.0, 300.0)
    listed = replace(slice_job("listed", 90.0), nodes=("m2", "m3"), limit_s=500.0)
    state = ClusterState(100.0, nodes, (listed,), reservations=(fenced,))
    decider = Decider(PolicyNames(placement="edf-most-packed").policy(("mig",)))
    (told,) = explain(decider, state, begun(Memory(), state))["slices"]
    assert [place["node"] for option in told["options"] for place in option["places"]] == ["m2"]


def test_explain__queue_says_who_fits_where_and_what_the_rule_thinks_of_it() -> None:
    nodes = (NodeInfo("n1", 4, 1, "v100"), NodeInfo("n2", 4, 4, "v100"), NodeInfo("n3", 4, 4, "k80"))
    holder = RunningJob(JobRequest(JobKey("r", 0.0), 3, 900.0), 0.0, (Share("n1", 3),))
    small = JobRequest(JobKey("small", 20.0), 1, 50.0, gpu_model="v100")
    wide = JobRequest(JobKey("wide", 10.0), 8, 50.0, gpu_model="v100")
    never = JobRequest(JobKey("never", 5.0), 9, 50.0, gpu_model="v100")
    state = ClusterState(100.0, nodes, (never, wide, small), (holder,))
    decider = Decider(PolicyNames(selection="fcfs", allocation="best-fit").policy(("gang",)))
    told = explain(decider, state, begun(Memory(), state))["queue"]
    assert [(one["key"][0], one["n_gpus"], one["fits"]) for one in told] == [("wide", 8, False), ("small", 1, True)]
    assert told[0]["nodes"] == []
    assert [(node["node"], node["n_gpus"]) for node in told[1]["nodes"]] == [("n1", 1), ("n2", 1)]
    assert told[1]["nodes"][0]["score"] < told[1]["nodes"][1]["score"]
    assert told[0]["score"] < told[1]["score"]


def test_explain__cuts_say_what_a_learned_rule_makes_of_each() -> None:
    now_s = 36_000.0
    nodes = (NodeInfo("m1", 0, gpus=(WHOLE, SPLIT)),)
    waiting = tuple(slice_job(str(at), now_s - 5, deadline_s=now_s + 60) for at in range(5))
    state = ClusterState(now_s, nodes, waiting)
    decider = Decider(PolicyNames(repartition="mean-field").policy(("mig",)))
    told = explain(decider, state, begun(Memory(), state))["cuts"]
    assert len({row["cut"] for row in told}) == 2
    for row in told:
        shares = [one["share"] for one in row["next"]]
        assert 0 < sum(shares) <= 1 + 1e-9
        assert shares == sorted(shares, reverse=True)
    assert explain(Decider(PolicyNames().policy(("mig",))), state, begun(Memory(), state))["cuts"] == []
