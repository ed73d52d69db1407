"""The fast engine and its plain twin give the same run, whatever the cluster, jobs, rule and mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings

from smartmig.errors import InputError, SimulationError
from smartmig.registry import PLACEMENTS
from smartmig.sim.mig.reference import simulate_plainly
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs, Run, Segments
from strategies import policies, worlds

CONTROLLED = [
    ("categorical-edf", "twice-daily"),
    ("categorical-edf", "slice-count"),
    ("shortest-work", "slice-count"),
    ("largest-first", "slice-count"),
]


def both(jobs: Jobs, cluster: Cluster, policy: Policy, mode: Settings) -> tuple[Run, Run]:
    try:
        fast = simulate(jobs, cluster, policy, mode)
    except InputError as error:
        assume("fits no slice" not in str(error))
        raise
    except SimulationError:
        with pytest.raises(SimulationError):
            simulate_plainly(jobs, cluster, policy, mode)
        assume(False)
        raise
    return fast, simulate_plainly(jobs, cluster, policy, mode)


def assert_same(fast: Run, plain: Run) -> None:
    np.testing.assert_allclose(fast.finish_s, plain.finish_s, rtol=1e-9)
    np.testing.assert_allclose(fast.first_start_s, plain.first_start_s, rtol=1e-9)
    np.testing.assert_allclose(fast.energy_j, plain.energy_j, rtol=1e-9)
    np.testing.assert_allclose(fast.busy_slice_s, plain.busy_slice_s, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(fast.n_starts, plain.n_starts)
    assert fast.makespan_s == pytest.approx(plain.makespan_s, rel=1e-9)
    counts = ("n_events", "n_repartitions", "n_preemptions")
    assert [getattr(fast, c) for c in counts] == [getattr(plain, c) for c in counts]
    assert fast.config_s == pytest.approx(plain.config_s, rel=1e-9, abs=1e-9)
    assert fast.segments is not None
    assert plain.segments is not None
    np.testing.assert_allclose(stretches(fast.segments), stretches(plain.segments), rtol=1e-9, atol=1e-9)
    assert_same_cuts(fast, plain)


def assert_same_cuts(fast: Run, plain: Run) -> None:
    assert fast.instances is not None
    assert plain.instances is not None
    np.testing.assert_allclose(stretches(fast.instances), stretches(plain.instances), rtol=1e-9, atol=1e-9)
    assert fast.cuts is not None
    assert plain.cuts is not None
    told = [np.array(sorted(zip(c.gpu, c.config, c.from_s, c.to_s, strict=True))) for c in (fast.cuts, plain.cuts)]
    np.testing.assert_allclose(*told, rtol=1e-9, atol=1e-9)
    spent_s = dict.fromkeys(fast.cuts.names, 0.0)
    for config, from_s, to_s in zip(fast.cuts.config, fast.cuts.from_s, fast.cuts.to_s, strict=True):
        spent_s[fast.cuts.names[config]] += to_s - from_s
    told_s = {name: spent for name, spent in spent_s.items() if spent > 0}
    assert told_s == pytest.approx(fast.config_s, rel=1e-9, abs=1e-6)


def stretches(s: Segments) -> np.ndarray:
    """Who ran where from when to when, in an order that does not depend on who was recorded first."""
    return np.array(sorted(zip(s.job, s.gpu, s.start, s.size, s.from_s, s.to_s, strict=True)))


# `edf-fastest` is another name of a rule; a learned one has no plain twin (tests/unit/policy/test_prices.py).
@pytest.mark.parametrize("placement", sorted(set(PLACEMENTS) - {"edf-fastest", "learned"}))
@given(world=worlds())
@hypothesis_settings(max_examples=60)
def test_kernel__equals_reference_on_static_cuts(placement: str, world: tuple[Jobs, Cluster, Settings]) -> None:
    jobs, cluster, mode = world
    assert_same(*both(jobs, cluster, policies(placement, "static"), mode))


@pytest.mark.parametrize(("placement", "repartition"), CONTROLLED)
@given(world=worlds())
@hypothesis_settings(max_examples=100)
def test_kernel__equals_reference_when_gpus_are_recut(
    placement: str, repartition: str, world: tuple[Jobs, Cluster, Settings]
) -> None:
    jobs, cluster, mode = world
    # S1's accounting is about intervals between events; it has no meaning where a rule looks in between.
    mode = replace(mode, charge_after_release=False)
    # Twice daily changes at hours 4 and 17: let the jobs arrive around then.
    if repartition == "twice-daily":
        shift_s = 4 * 3600.0 - 50
        jobs = replace(jobs, arrive_s=jobs.arrive_s + shift_s, deadline_s=jobs.deadline_s + shift_s)
    assert_same(*both(jobs, cluster, policies(placement, repartition), mode))
