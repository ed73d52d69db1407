"""The planner: its knobs, its looks ahead, and what it may not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smartmig.errors import InputError, UnknownName
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.repartition.planner import Planner
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.policy.repartition.twice_daily import TwiceDaily
from smartmig.policy.view import JobArrays
from smartmig.scenario import repartition_rule
from smartmig.sim.mig.reference import simulate_plainly
from smartmig.sim.mig.rollout import LookAhead, draw_future, in_one_block
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, is_compiled, rollouts, simulate
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Jobs
from smartmig.workload.poisson import FixedRate

TWO = Cluster(parse_gpus("2xa100-40gb"))
QUICK = Planner(horizon_s=900.0, n_samples=4, min_history=10)
MODES = [
    Settings(),
    Settings(preempt=False),
    Settings(drain=True),
    Settings(drain=True, preempt=False, restart_s=5.0),
]


def some_jobs(n_jobs: int = 60, seed: int = 3) -> Jobs:
    return FixedRate(n_jobs=n_jobs, rate_per_min=1.2).jobs(seed)


def run_planner(planner: Planner, jobs: Jobs, mode: Settings | None = None):  # type: ignore[no-untyped-def]
    return simulate(jobs, TWO, Policy(ShortestWork(), planner), mode or Settings())


def look_at(jobs: Jobs, planner: Planner, layouts: str) -> tuple[LookAhead, JobArrays]:
    """A planner for one GPU."""
    gpus = parse_gpus("1xa100-40gb")
    cuts = cuts_of(Cluster(gpus, parse_layouts(layouts, gpus)), planner)
    world = build_world(cuts, ShortestWork(), Settings())
    arrays = build_jobs(jobs, cuts, ShortestWork(), Settings(), range(len(cuts.configs)))
    return LookAhead(planner, world, arrays, cuts, rollouts(ShortestWork(), planner)), arrays


@pytest.mark.parametrize(
    ("knob", "value", "message"),
    [
        ("base", "static", "planner.base: 'static' has no kernel to look ahead with"),
        ("base", "planner", "planner.base: 'planner' has no kernel to look ahead with"),
        ("horizon_s", 0.0, "planner.horizon_s must be above 0, got 0"),
        ("n_samples", 1, "planner.n_samples must be at least 2, got 1"),
        ("every", 0, "planner.every must be at least 1, got 0"),
        ("budget_s", -1.0, "planner.budget_s must be 0 or more, got -1"),
        ("sureness", float("nan"), "planner.sureness must be 0 or more, got nan"),
    ],
)
def test_planner__refuses_knobs_that_make_no_sense(knob: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Planner(**{knob: value})  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_planner__names_the_known_rules_when_its_base_is_none() -> None:
    with pytest.raises(UnknownName, match=r"planner\.base: no repartition 'slicecount'\. Did you mean 'slice-count'"):
        Planner(base="slicecount")


def test_planner__is_built_from_a_scenario() -> None:
    assert repartition_rule({"id": "planner", "horizon_s": 600, "base": "twice-daily"}) == Planner(
        horizon_s=600.0, base="twice-daily"
    )


@pytest.mark.parametrize("mode", MODES)
def test_planner__a_run_can_be_repeated_exactly(mode: Settings) -> None:
    jobs = some_jobs()
    first, again = run_planner(QUICK, jobs, mode), run_planner(QUICK, jobs, mode)
    assert first.n_repartitions > 0
    assert first.n_repartitions == again.n_repartitions
    np.testing.assert_array_equal(first.finish_s, again.finish_s)
    np.testing.assert_array_equal(first.energy_j, again.energy_j)


@pytest.mark.parametrize(("base", "rule"), [("slice-count", SliceCount()), ("twice-daily", TwiceDaily())])
@pytest.mark.parametrize("mute", [{"min_history": 10**6}, {"every": 10**6}, {"budget_s": 1e-9}, {"n_candidates": 1}])
def test_planner__with_nothing_to_say_is_its_base_rule(
    base: str, rule: SliceCount | TwiceDaily, mute: dict[str, float]
) -> None:
    jobs = some_jobs()
    planned = run_planner(replace(QUICK, base=base, **mute), jobs)  # type: ignore[arg-type]
    plain = simulate(jobs, TWO, Policy(ShortestWork(), rule), Settings())
    np.testing.assert_array_equal(planned.finish_s, plain.finish_s)
    np.testing.assert_allclose(planned.energy_j, plain.energy_j, rtol=1e-12)
    assert planned.n_repartitions == plain.n_repartitions
    assert planned.n_events == plain.n_events


@pytest.mark.parametrize("mode", MODES)
def test_planner__does_not_know_the_future(mode: Settings) -> None:
    jobs = some_jobs()
    until_s = float(jobs.arrive_s[30])
    later = jobs.arrive_s > until_s
    other = replace(
        jobs,
        run_s=np.where(later[:, None], jobs.run_s * 3, jobs.run_s),
        deadline_s=np.where(later, jobs.deadline_s + 500, jobs.deadline_s),
    )
    one, two = (run_planner(QUICK, day, replace(mode, record=True)).segments for day in (jobs, other))
    assert one is not None
    assert two is not None
    before = one.to_s <= until_s
    n = int(before.sum())
    assert n > 10
    for name in ("job", "gpu", "start", "size", "from_s", "to_s"):
        np.testing.assert_array_equal(getattr(one, name)[:n], getattr(two, name)[:n])


def test_planner__finds_the_cut_that_lets_every_job_run_at_once() -> None:
    # Seven jobs that take 40 s on any slice come at once to a whole GPU; at the first look, after 60 s, six are there.
    # Six slices or more finish all of them 44 s later, fewer leave some waiting; the base rule would cut five.
    n = 7
    times = np.full(n, 10.0), np.full(n, 50.0), np.full((n, 5), 40.0)
    jobs = Jobs(np.arange(n).astype(np.str_), *times, np.full(n, "", np.str_), np.zeros(n))
    planner = Planner(every=1, reach=6, min_history=1, rate_window_s=1.0)
    one = Cluster(parse_gpus("1xa100-40gb"))
    planned = simulate(jobs, one, Policy(ShortestWork(), planner), Settings())
    based = simulate(jobs, one, Policy(ShortestWork(), SliceCount()), Settings())
    assert planned.makespan_s == pytest.approx(60 + 4 + 40)
    assert based.makespan_s > planned.makespan_s + 30


def test_planner__has_no_plain_twin_and_says_so() -> None:
    with pytest.raises(NotImplementedError, match="it searches with the engine itself"):
        simulate_plainly(some_jobs(), TWO, Policy(ShortestWork(), QUICK), Settings())


def test_planner__tells_when_it_is_compiled() -> None:
    run_planner(QUICK, some_jobs(20))
    assert is_compiled(Policy(ShortestWork(), QUICK))


def test_future__is_drawn_from_the_past_at_the_rate_seen() -> None:
    jobs = some_jobs(50)
    ahead, arrays = look_at(jobs, QUICK, "1")
    ahead.make_room(2000)
    rates = []
    for nth in range(20):
        n_jobs = draw_future(arrays, ahead.few, 5, 10, 40, 1000.0, 11_000.0, 0.1, 9, nth << 20)
        drawn = ahead.few.spec[5:n_jobs]
        assert (np.diff(drawn["arrive_s"]) > 0).all()
        assert (drawn["arrive_s"] > 1000).all()
        assert (drawn["arrive_s"] < 11_000).all()
        assert np.isinf(ahead.few.spec["arrive_s"][n_jobs:]).all()
        assert set(drawn["single_s"]) <= set(arrays.spec["single_s"][10:40])
        np.testing.assert_allclose(
            np.sort(np.unique((drawn["deadline_s"] - drawn["arrive_s"]).round(6))),
            np.unique((arrays.spec["deadline_s"] - arrays.spec["arrive_s"])[10:40].round(6)),
        )
        rates.append(drawn.size / 10_000)
    assert len(set(rates)) > 5
    assert np.mean(rates) == pytest.approx(0.1, rel=0.05)


def test_future__stops_where_memory_does_and_without_arrivals_is_empty() -> None:
    ahead, arrays = look_at(some_jobs(50), QUICK, "1")
    ahead.make_room(20)
    assert draw_future(arrays, ahead.few, 5, 0, 40, 0.0, 1e9, 1.0, 9, 0) == 19
    assert draw_future(arrays, ahead.few, 5, 0, 40, 0.0, 1e9, 0.0, 9, 0) == 5
    assert np.isinf(ahead.few.spec["arrive_s"][5:]).all()


def test_block__holds_the_whole_state() -> None:
    ahead, _ = look_at(some_jobs(5), QUICK, "10")
    state = fresh_state(ahead.world, 5, ahead.cuts)
    copy, block = in_one_block(state)
    before = block.copy()
    for ours, theirs in zip(copy, state, strict=True):
        assert np.shares_memory(ours, block) or ours.size == 0
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()  # nan stands for itself
    copy.gpu["energy_j"] += 1.0
    copy.job["slot"] = 3
    assert (block != before).any()
    block[:] = before
    for ours, theirs in zip(copy, state, strict=True):
        assert ours.tobytes() == theirs.tobytes()  # nan stands for itself
