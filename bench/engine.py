"""How much faster the kernel is than its plain twin, and how it scales with the number of GPUs (one core)."""

from __future__ import annotations

import numpy as np

from bench.measure import Outcome, best_of
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.policy.view import State
from smartmig.registry import PLACEMENTS, REPARTITIONS, load
from smartmig.sim.mig.kernel import FINISHED
from smartmig.sim.mig.reference import simulate_plainly
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, simulate, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay

MIX = "1,1,2,3,3,5,5,10"
FOREVER = 1 << 62


def policy(placement: str) -> Policy:
    return Policy(load(PLACEMENTS, "placement", placement)(), load(REPARTITIONS, "repartition", "static")())


def cluster(n_gpus: int) -> Cluster:
    gpus = parse_gpus(f"{n_gpus}xa100-40gb")
    return Cluster(gpus, parse_layouts(",".join([MIX] * (n_gpus // 8)), gpus))


def kernel_seconds(jobs: Jobs, where: Cluster, who: Policy, mode: Settings, repeats: int) -> float:
    """The engine alone, from a fresh state to the last completion."""
    cuts = cuts_of(where, who.repartition)
    world = build_world(cuts, who.placement, mode)
    arrays = build_jobs(jobs, cuts, who.placement, mode, cuts.start)
    go_on = stepper(world, arrays, who, cuts)
    states: list[State] = []
    for _ in range(repeats + 1):
        states.append(fresh_state(world, len(jobs), cuts))
        open_gpus(world, states[-1], who.placement)
    assert go_on(states.pop(), FOREVER) == FINISHED  # compiles, and fills the caches
    return best_of(repeats, lambda: go_on(states.pop(), FOREVER))


def against_twin(placement: str, preempt: bool, at_least: float) -> Outcome:
    jobs = DiurnalDay().jobs(seed=0)
    mode = Settings(preempt=preempt)
    fast = simulate(jobs, cluster(8), policy(placement), mode)
    plain = simulate_plainly(jobs, cluster(8), policy(placement), mode)
    np.testing.assert_allclose(fast.finish_s, plain.finish_s, rtol=1e-9)
    np.testing.assert_allclose(fast.energy_j, plain.energy_j, rtol=1e-9)
    slow_s = best_of(1, lambda: simulate_plainly(jobs, cluster(8), policy(placement), mode))
    fast_s = kernel_seconds(jobs, cluster(8), policy(placement), mode, repeats=20)
    detail = f"{fast_s * 1e3:.2f} ms a day, {fast.n_events / fast_s / 1e6:.2f}M events/s; twin {slow_s:.2f} s"
    return Outcome(slow_s / fast_s, "x", detail, at_least=at_least)


def many_gpus() -> Outcome:
    """1,000 GPUs x about 520,000 jobs against 8 GPUs x 4,150, per job, Largest-First without preemption."""
    mode, who = Settings(preempt=False), policy("largest-first")
    few, many = DiurnalDay().jobs(seed=0), DiurnalDay(multiplier=2500).jobs(seed=0)
    check = simulate(many, cluster(1000), who, mode)
    assert np.isfinite(check.finish_s).all()
    few_s = kernel_seconds(few, cluster(8), who, mode, repeats=20) / len(few)
    many_s = kernel_seconds(many, cluster(1000), who, mode, repeats=2) / len(many)
    detail = f"{few_s * 1e9:.0f} ns a job on 8 GPUs, {many_s * 1e9:.0f} ns on 1,000 ({len(many):,} jobs)"
    return Outcome(many_s / few_s, "x", detail, at_most=3.0)


BENCHMARKS = {
    "preemptive-cedf-vs-twin": lambda: against_twin("categorical-edf", True, 100.0),
    "largest-first-vs-twin": lambda: against_twin("largest-first", False, 300.0),
    "thousand-gpus-per-job": many_gpus,
}
