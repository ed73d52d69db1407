"""Placing: what a decision of `learned` costs, how fast placings are simulated and learned from, against S1's way."""

from __future__ import annotations

import time

import numpy as np

from bench.measure import Outcome
from bench.s1_numpy import NumpyPlacing
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.metrics.objective import watt_minutes
from smartmig.policy.encoding import track_arrival
from smartmig.policy.placement.learned import Learned
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.decide import is_legal
from smartmig.sim.mig.heaps import push_waiting
from smartmig.sim.mig.lanes import Lanes
from smartmig.sim.mig.run import Cluster, cuts_of, open_gpus
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.train.placement import PriceSearch
from smartmig.train.settings import PlacementTraining, StepTraining
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.poisson import FixedRate

LAYOUTS = "1,1,2,2,3,3,9,9"
SIZES = [[7], [7], [4, 3], [4, 3], [4, 2, 1], [4, 2, 1], [2, 2, 2, 1], [2, 2, 2, 1]]
N_LANES = 1024
"""A step of a few hundred is over before a second thread has begun."""
PPO_STEPS = 16_384
S1_TRAINING_RATE = 1_500.0
"""placings a second of MaskablePPO on S1's own environment, measured on two cores"""


def s1_cluster(name: str = "a100-40gb@s1") -> Cluster:
    gpus = parse_gpus(f"8x{name}")
    return Cluster(gpus, parse_layouts(LAYOUTS, gpus))


def decision_p99() -> Outcome:
    """Prices set anew, then one job placed among 64 slices with 1,000 waiting, each called from Python."""
    gpus = parse_gpus("16xa100-40gb")
    cluster = Cluster(gpus, parse_layouts(",".join(["9"] * 16), gpus))
    rule, mode = Learned("relaxed"), Settings(preempt=False)
    cuts = cuts_of(cluster, Static())
    world = build_world(cuts, rule, mode)
    day = FixedRate(n_jobs=1000, rate_per_min=1e4, deadline=(2.0, 4.0)).jobs(0)
    jobs = build_jobs(day, cuts, rule, mode, cuts.start)
    state = fresh_state(world, len(day), cuts)
    open_gpus(world, state, rule)
    assert int(state.now["n_free"][0]) == 64
    for job in range(len(day)):
        state.now["n_arrived"] += 1
        push_waiting(jobs, state, job, rule.kernels.key(world, jobs, state, job))
        track_arrival(world, jobs, state, job)
    assert int(state.now["n_waiting"][0]) == 1000
    took = np.empty(5_000)
    for at in range(took.size):
        state.now["time_s"] = 60.0 + 0.1 * at
        state.now["n_events"] = at
        job = at % len(day)
        began = time.perf_counter()
        rule.kernels.prepare(world, jobs, state)
        slot = rule.kernels.choose(world, jobs, state, job)
        took[at] = time.perf_counter() - began
        assert slot < 0 or is_legal(jobs, state, job, slot)
    took = took[took.size // 10 :]
    detail = f"64 slices, 1,000 jobs; {np.median(took) * 1e6:.1f} us in the median"
    return Outcome(float(np.quantile(took, 0.99)) * 1e6, "us p99", detail, at_most=200.0)


def numpy_rate() -> float:
    """Placings a second of a day by S1's environment, onto the first free slice."""
    jobs = DiurnalDay(deadline=(2.0, 4.0)).jobs(seed=1)
    env, done = NumpyPlacing(SIZES), False
    env.reset(jobs)
    begun = time.perf_counter()
    while not done:
        _, _, done = env.step(int(np.argmax(env.action_masks())))
    return len(jobs) / (time.perf_counter() - begun)


def check_numpy() -> None:
    """Both environments tell the same of a day that is placed the same way."""
    jobs = DiurnalDay(multiplier=4.0, deadline=(2.0, 4.0)).jobs(seed=0)
    env, done = NumpyPlacing(SIZES), False
    env.reset(jobs)
    lanes = Lanes(s1_cluster(), 1, observation="s1", wait=False)
    lanes.begin(0, lanes.prepare(jobs))
    lanes.look([0])
    while not done:
        action = int(np.argmax(env.action_masks()))
        assert action == int(np.argmax(lanes.masks[0]))
        _, _, done = env.step(action)
        lanes.step(np.array([action]))
    cost = lanes.summary(0)
    np.testing.assert_allclose(env.late * 60.0 / len(jobs), cost.mean_tardiness_s, rtol=1e-6)
    np.testing.assert_allclose(env.energy, watt_minutes(cost.energy_j), rtol=1e-6)


def lanes_rate(observation: str, n_threads: int) -> float:
    """Placings a second of whole days in all lanes; actions are chosen in NumPy."""
    lanes = Lanes(s1_cluster(), N_LANES, observation=observation, n_threads=n_threads)
    day = DiurnalDay(deadline=(2.0, 4.0))
    pool = [lanes.prepare(day.jobs(seed)) for seed in range(1, 9)]
    for lane in range(N_LANES):
        lanes.begin(lane, pool[lane % len(pool)])
    lanes.look(range(N_LANES))
    n_steps = min(len(jobs) for jobs, *_ in pool)
    begun = time.perf_counter()
    for _ in range(n_steps):
        lanes.step(np.argmax(lanes.masks, axis=1))
    return n_steps * N_LANES / (time.perf_counter() - begun)


def environment() -> Outcome:
    """By the clock on the wall, on two cores; S1's environment knows one day at a time."""
    check_numpy()
    lanes_rate("s1", 2)  # compiles
    # The best of three of each, by turns: one run alone is off by half when the machine is.
    tries = [(numpy_rate(), lanes_rate("s1", 2), lanes_rate("s1", 1)) for _ in range(3)]
    slow, fast, alone = map(max, zip(*tries, strict=True))
    detail = f"{fast / 1e3:.0f}k steps/s on two cores, {alone / 1e3:.0f}k on one; S1's in NumPy {slow / 1e3:.1f}k"
    return Outcome(fast / slow, "x", detail, at_least=100.0)


def training() -> Outcome:
    """Whole training: placings simulated a second by `train placement`, against MaskablePPO on our fast lanes."""
    from smartmig.train.stepwise import train_placer

    day = DiurnalDay(deadline=(2.0, 4.0))
    search = PriceSearch(
        s1_cluster(), Static(), Settings(preempt=False), day.jobs, PlacementTraining(pool=16, validation_days=0)
    )
    search.update()
    began = time.perf_counter()
    search.update()
    seconds = time.perf_counter() - began
    chosen = search.training
    n_jobs = np.mean([arrays.spec.size for arrays in search.days.jobs])
    fast = chosen.candidates * chosen.days * n_jobs / seconds
    settings = StepTraining(steps=PPO_STEPS, pool=4)
    [(_, placer)] = train_placer(s1_cluster(), day.jobs, settings)
    measured = PPO_STEPS / placer.train_s
    detail = f"{fast / 1e3:.0f}k placings/s; MaskablePPO on our lanes {measured / 1e3:.2f}k, on S1's environment 1.5k"
    return Outcome(fast / max(measured, S1_TRAINING_RATE), "x", detail, at_least=10.0)


BENCHMARKS = {"placing-decision": decision_p99, "placing-environment": environment, "placing-training": training}
