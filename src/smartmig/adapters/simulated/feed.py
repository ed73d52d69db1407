"""What a simulated cluster is made of and which jobs come to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from smartmig.adapters.simulated.cluster import Arrival
from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.hardware.layouts import configurations
from smartmig.hardware.nodes import parse_nodes
from smartmig.types import GangJobs, Instance, JobKey, JobRequest, Jobs, MigGpu, NodeInfo
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.gang.open import gang_trace
from smartmig.workload.jobs_csv import CsvJobs

DAY_S = 86_400.0
CARDS_PER_NODE = 8
JOBS_PER_CARD = 20.0 / 8
"""multiplier of `DiurnalDay` per card: its default is meant for eight"""


def mig_nodes(gpus: str, layouts: str | None = None) -> tuple[NodeInfo, ...]:
    """Eight cards a node; without layouts each is cut into its first configuration."""
    models = parse_gpus(gpus, "gpus")
    cuts = parse_layouts(layouts, models, "layouts") if layouts else tuple(configurations(one)[0] for one in models)
    cards = [
        MigGpu(model.id, tuple(Instance(start, profile) for start, profile in cut))
        for model, cut in zip(models, cuts, strict=True)
    ]
    return tuple(
        NodeInfo(f"node{at // CARDS_PER_NODE}", 0, gpus=tuple(cards[at : at + CARDS_PER_NODE]))
        for at in range(0, len(cards), CARDS_PER_NODE)
    )


def whole_nodes(nodes: str, nodes_per_switch: int | None = None) -> tuple[NodeInfo, ...]:
    cluster = parse_nodes(nodes, nodes_per_switch, "nodes")
    return tuple(
        NodeInfo(f"node{at}", node.n_gpus, node.n_gpus, node.model, switch=node.switch, speed=node.speed)
        for at, node in enumerate(cluster.nodes)
    )


def mig_arrivals(jobs: Jobs, from_s: float = 0.0, prefix: str = "") -> Iterator[Arrival]:
    for at in range(len(jobs)):
        key = JobKey(f"{prefix}{jobs.job_id[at]}", from_s + float(jobs.arrive_s[at]))
        request = JobRequest(
            key,
            n_gpus=0,
            group=str(jobs.kind[at]),
            run_s=tuple(jobs.run_s[at].tolist()),
            memory_gb=float(jobs.memory_gb[at]),
            deadline_s=from_s + float(jobs.deadline_s[at]),
        )
        yield Arrival(request, math.nan)


def gang_arrivals(jobs: GangJobs, from_s: float = 0.0, prefix: str = "") -> Iterator[Arrival]:
    for at in range(len(jobs)):
        request = JobRequest(
            JobKey(f"{prefix}{jobs.job_id[at]}", from_s + float(jobs.submit_s[at])),
            n_gpus=int(jobs.n_gpus[at]),
            limit_s=float(jobs.limit_s[at]),
            gpu_model=str(jobs.gpu_model[at]),
            user=str(jobs.user[at]),
            group=str(jobs.group[at]),
        )
        yield Arrival(request, float(jobs.run_s[at]))


def made_up_gangs(n_gpus: int, widest: int, load: float, seed: int) -> GangJobs:
    """A day of whole-GPU jobs that keeps about `0.7 load` of the GPUs busy: most jobs small and short, most of the work
    in few long ones, requests above run times."""
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = np.array([size for size in (1, 2, 4, 8) if size <= widest])
    shares = np.array([0.62, 0.16, 0.14, 0.08])[: sizes.size]
    mean_size = float(sizes @ shares / shares.sum())
    mean_run_s = 1200.0 * math.exp(0.5 * 1.3**2)
    n = max(1, int(0.7 * load * n_gpus * DAY_S / (mean_size * mean_run_s)))
    run_s = np.minimum(np.exp(rng.normal(math.log(1200.0), 1.3, n)), 12 * 3600.0)
    limit_s = np.ceil(run_s * rng.uniform(1.1, 4.0, n) / 900.0) * 900.0
    empty = np.full(n, "")
    return GangJobs(
        job_id=np.arange(n).astype(np.str_),
        submit_s=np.sort(rng.random(n) * DAY_S),
        run_s=run_s,
        limit_s=limit_s,
        n_gpus=rng.choice(sizes, n, p=shares / shares.sum()),
        gpu_model=empty,
        user=np.array([f"user{at}" for at in rng.integers(0, 8, n)]),
        group=empty,
        waited_s=np.full(n, np.nan),
        origin_s=0.0,
    )


def feed(
    nodes: tuple[NodeInfo, ...], whole: bool, jobs: str, load: float, seed: int, start_s: float
) -> Iterator[Arrival]:
    """Recorded jobs once, or made-up ones for ever; those before `start_s` are left out."""
    if jobs:
        path = Path(jobs)
        if not path.is_file():
            raise InputError(f"simulated.jobs: {jobs}: no such file")
        if whole:
            made = gang_arrivals(gang_trace(path, None).read()[0], start_s)
        else:
            made = mig_arrivals(CsvJobs(path=path).jobs(0), start_s)
        return made
    return _days(nodes, whole, load, seed, start_s)


def _days(nodes: tuple[NodeInfo, ...], whole: bool, load: float, seed: int, start_s: float) -> Iterator[Arrival]:
    day = 0
    while True:
        from_s = day * DAY_S
        if whole:
            n_gpus, widest = sum(node.n_gpus for node in nodes), max(node.n_gpus for node in nodes)
            jobs: Iterator[Arrival] = gang_arrivals(made_up_gangs(n_gpus, widest, load, seed + day), from_s, f"{day}.")
        else:
            n_cards = sum(len(node.gpus) for node in nodes)
            made = DiurnalDay(multiplier=JOBS_PER_CARD * load * n_cards).jobs(seed + day)
            jobs = mig_arrivals(made, from_s, f"{day}.")
        for arrival in jobs:
            if arrival.request.key.submit_s >= start_s:
                yield arrival
        day += 1
