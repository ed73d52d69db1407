"""All Hypothesis strategies of the tests, in one place."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from smartmig.hardware.layouts import placement_sets
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.registry import PLACEMENTS, REPARTITIONS, load
from smartmig.sim.mig.run import Cluster, Policy
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs, Layout

MODELS = ("a100-40gb", "a100-40gb@s1", "a30", "h200-141gb")


@st.composite
def job_sets(draw: st.DrawFn, max_jobs: int = 14) -> Jobs:
    """Jobs with many ties: times on a coarse grid, several arriving at once, some finishing as others arrive."""
    n = draw(st.integers(1, max_jobs))
    grid = draw(st.sampled_from([0.5, 1.0, 10.0]))
    ticks = st.integers(0, 20)
    arrive = np.sort(np.array(draw(st.lists(ticks, min_size=n, max_size=n)), dtype=float)) * grid
    slack = np.array(draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)), dtype=float) * grid
    run = np.full((n, 5), np.inf)
    memory = np.zeros(n)
    for job in range(n):
        single = draw(st.integers(1, 40)) * grid
        speedup = draw(st.sampled_from([(1, 2, 3, 4, 7), (1, 2, 3, 3, 3), (1, 1.8, 2.3, 2.5, 2.9), (1, 1, 1, 1, 1)]))
        run[job] = single / np.array(speedup)
        run[job, : draw(st.sampled_from([0, 0, 0, 1, 2]))] = np.inf
        memory[job] = draw(st.sampled_from([0.0, 0.0, 0.0, 5.0, 18.0]))
    order = np.arange(n).astype(np.str_)
    return Jobs(order, arrive, arrive + slack, run, np.full(n, "", dtype=np.str_), memory)


@st.composite
def clusters(draw: st.DrawFn, max_gpus: int = 3) -> tuple[GpuModel, ...]:
    names = draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=max_gpus))
    return tuple(gpu_model(name) for name in names)


@st.composite
def layouts_for(draw: st.DrawFn, gpus: tuple[GpuModel, ...]) -> tuple[Layout, ...]:
    """Any legal cut of each GPU, maximal or not."""
    return tuple(draw(st.sampled_from(placement_sets(gpu))) for gpu in gpus)


def policies(placement: str, repartition: str) -> Policy:
    return Policy(load(PLACEMENTS, "placement", placement)(), load(REPARTITIONS, "repartition", repartition)())


settings = st.builds(
    Settings,
    preempt=st.booleans(),
    drain=st.booleans(),
    recut_s=st.sampled_from([4.0, 0.0]),
    restart_s=st.sampled_from([0.0, 0.0, 2.0]),
    charge_after_release=st.booleans(),
    record=st.just(True),
    seed=st.integers(0, 3),
    estimated_speed=st.booleans(),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Jobs, Cluster, Settings]:
    """A job set, a cluster with given or default cuts, and a way to run it."""
    gpus = draw(clusters())
    given_cuts = draw(st.booleans())
    return draw(job_sets()), Cluster(gpus, draw(layouts_for(gpus)) if given_cuts else None), draw(settings)
