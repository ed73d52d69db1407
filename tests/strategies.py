"""All Hypothesis strategies of the tests, in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from smartmig.hardware.layouts import placement_sets
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.hardware.nodes import Node, NodeCluster, Outage
from smartmig.registry import ALLOCATIONS, PLACEMENTS, REPARTITIONS, SELECTIONS, load
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.sim.mig.run import Cluster, Policy
from smartmig.sim.mig.world import Settings
from smartmig.types import GangJobs, Jobs, Layout

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
def worlds(draw: st.DrawFn, alike: bool = False) -> tuple[Jobs, Cluster, Settings]:
    """A job set, a cluster with given or default cuts, and a way to run it.

    `alike`: GPUs of one model, on which a job takes as long as it says.
    """
    gpus = draw(clusters())
    if alike:
        gpus = gpus[:1] * len(gpus)
    given_cuts = draw(st.booleans())
    mode = draw(settings)
    if alike:
        mode = replace(mode, estimated_speed=False)
    return draw(job_sets()), Cluster(gpus, draw(layouts_for(gpus)) if given_cuts else None), mode


@st.composite
def node_clusters(draw: st.DrawFn, away: bool) -> NodeCluster:
    """Nodes of all kinds; `away`: some fail or drain for a while."""
    node = st.builds(
        Node,
        n_gpus=st.sampled_from([1, 2, 4, 8]),
        model=st.sampled_from(["", "a", "b"]),
        speed=st.sampled_from([1.0, 1.0, 0.5, 3.0]),
        switch=st.integers(0, 2),
    )
    nodes = tuple(draw(st.lists(node, min_size=1, max_size=5)))
    outages = []
    for _ in range(draw(st.sampled_from([0, 1, 3])) if away else 0):
        from_s = draw(st.integers(0, 40))
        outages.append(
            Outage(
                node=draw(st.integers(0, len(nodes) - 1)),
                from_s=float(from_s),
                to_s=float(from_s + draw(st.integers(1, 20))),
                drain=draw(st.booleans()),
            )
        )
    return NodeCluster(nodes, tuple(outages))


@st.composite
def gang_worlds(draw: st.DrawFn, away: bool = True, max_jobs: int = 22) -> tuple[GangJobs, NodeCluster]:
    """Jobs with many ties that the cluster can run, some killed at their limit, some without one."""
    cluster = draw(node_clusters(away))
    n = draw(st.integers(1, max_jobs))

    def column(values: st.SearchStrategy) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)))

    wishes = [wish for wish in ("", "a", "b", "a|b") if _n_accepted(cluster, wish) > 0]
    models = column(st.sampled_from(wishes))
    most = np.array([_n_accepted(cluster, str(wish)) for wish in models])
    n_gpus = np.minimum(column(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 8, 11])), most)
    submit_s = np.sort(column(st.integers(0, draw(st.sampled_from([0, 10, 50])))).astype(float))
    run_s = column(st.integers(0, 20)).astype(float)
    limit_s = column(st.sampled_from([*map(float, range(1, 25)), np.inf, np.inf]))
    users = column(st.sampled_from(["u", "v", "w"]))
    empty = np.full(n, "")
    return (
        GangJobs(
            np.arange(n).astype(str), submit_s, run_s, limit_s, n_gpus, models, users, empty, np.full(n, np.nan), 0.0
        ),
        cluster,
    )


def _n_accepted(cluster: NodeCluster, wish: str) -> int:
    return sum(node.n_gpus for node in cluster.nodes if not wish or not node.model or node.model in wish.split("|"))


def make_gangs(*rows: tuple[float, int, float, float], model: str = "", user: str = "") -> GangJobs:
    """(submission, GPUs, run time, limit); users and models as one letter per job, or the same for all."""
    table = np.array(rows, dtype=float)
    n = len(rows)
    users = np.array(list(user)) if len(user) == n else np.full(n, user)
    names, empty = np.arange(n).astype(str), np.full(n, "")
    submit_s, n_gpus, run_s, limit_s = table.T
    models = np.array(model.split()) if model.count(" ") == n - 1 > 0 else np.full(n, model)
    return GangJobs(
        names, submit_s, run_s, limit_s, n_gpus.astype(np.int64), models, users, empty, np.full(n, np.nan), 0.0
    )


def gang_policy(
    selection: str, allocation: str, backfill: str | Backfill = Backfill.none, spread: bool = False
) -> GangPolicy:
    rule = load(ALLOCATIONS, "allocation", allocation)(spread=spread)
    return GangPolicy(load(SELECTIONS, "selection", selection)(), rule, Backfill(backfill))
