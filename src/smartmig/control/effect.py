"""What another policy would have made of the same jobs: finished jobs, whose run times are now known, simulated again.

This is how a shadow is judged, and how a controller in charge is held against a plain baseline. An estimate: jobs that
still wait or run are left out of both sides, and on MIG cards the run times are those the requests estimated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smartmig.control.books import Finished
from smartmig.control.decide import LivePolicy
from smartmig.control.pilot import FAILURES
from smartmig.errors import SimulationError
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.model import gpu_model
from smartmig.hardware.nodes import Node, NodeCluster
from smartmig.sim.gang.run import simulate as simulate_gang
from smartmig.sim.mig.run import Cluster, Policy
from smartmig.sim.mig.run import simulate as simulate_mig
from smartmig.sim.mig.world import Settings
from smartmig.types import GangJobs, Jobs, NodeInfo, Placement


@dataclass(frozen=True)
class Effect:
    """Of one set of finished jobs."""

    n_jobs: int
    mean_wait_s: float
    mean_late_s: float
    late_frac: float
    energy_j: float | None = None
    """None where no power curve is known, and for what really happened: see `Books`"""


def measured(finished: Sequence[Finished]) -> Effect:
    """What really happened to them."""
    if not finished:
        return Effect(0, 0.0, 0.0, 0.0)
    waits = [max(0.0, one.start_s - one.request.key.submit_s) for one in finished]
    late = [one.late_s for one in finished]
    return Effect(len(finished), float(np.mean(waits)), float(np.mean(late)), float(np.mean(np.array(late) > 0)))


def estimated(finished: Sequence[Finished], nodes: Sequence[NodeInfo], policy: LivePolicy) -> Effect:
    """What the policy would have made of them on these nodes, begun idle. Raises `SimulationError`, with the reason,
    when it cannot be told."""
    whole = [one for one in finished if one.request.n_gpus > 0]
    slices = [one for one in finished if one.request.n_gpus == 0 and len(one.request.run_s) == 5]
    parts = []
    try:
        if whole and policy.gang is not None:
            parts.append(_gangs(whole, nodes, policy))
        if slices and policy.mig is not None:
            parts.append(_slices(slices, nodes, policy))
    except FAILURES as error:
        raise SimulationError(f"{type(error).__name__}: {error}") from error
    if not parts:
        raise SimulationError("no finished job is of a kind that is decided about here")
    n_jobs = sum(part.n_jobs for part in parts)
    energies = [part.energy_j for part in parts if part.energy_j is not None]
    return Effect(
        n_jobs,
        sum(part.n_jobs * part.mean_wait_s for part in parts) / n_jobs,
        sum(part.n_jobs * part.mean_late_s for part in parts) / n_jobs,
        sum(part.n_jobs * part.late_frac for part in parts) / n_jobs,
        sum(energies) if energies else None,
    )


def gang_jobs(finished: Sequence[Finished]) -> GangJobs:
    """Finished whole-GPU jobs as a trace; time 0 is the first submission."""
    ordered = sorted(finished, key=lambda one: (one.request.key.submit_s, one.request.key.job_id))
    origin_s = ordered[0].request.key.submit_s
    submit_s = np.array([one.request.key.submit_s for one in ordered])
    # An id may come again; with its submission it is one of a kind.
    ids = [one.request.key.job_id for one in ordered]
    unique = len(set(ids)) == len(ids)
    names = ids if unique else [f"{one.request.key.job_id}@{one.request.key.submit_s:.0f}" for one in ordered]
    return GangJobs(
        job_id=np.array(names),
        submit_s=submit_s - origin_s,
        run_s=np.array([max(one.end_s - one.start_s, 1e-3) for one in ordered]),
        limit_s=np.array([one.request.limit_s for one in ordered]),
        n_gpus=np.array([one.request.n_gpus for one in ordered]),
        gpu_model=np.array([one.request.gpu_model for one in ordered]),
        user=np.array([one.request.user for one in ordered]),
        group=np.array([one.request.group for one in ordered]),
        waited_s=np.array([max(0.0, one.start_s - one.request.key.submit_s) for one in ordered]),
        origin_s=origin_s,
    )


def mig_jobs(finished: Sequence[Finished]) -> Jobs:
    """Finished MIG jobs as a job set; a job without a deadline gets a far one."""
    ordered = sorted(finished, key=lambda one: (one.request.key.submit_s, one.request.key.job_id))
    origin_s = math.floor(ordered[0].request.key.submit_s / 86_400.0) * 86_400.0
    arrive_s = np.array([one.request.key.submit_s for one in ordered]) - origin_s
    deadline_s = np.array([min(one.request.deadline_s - origin_s, 1e9) for one in ordered])
    names = [one.request.key.job_id for one in ordered]
    if len(set(names)) < len(names):
        names = [f"{one.request.key.job_id}@{one.request.key.submit_s:.0f}" for one in ordered]
    return Jobs(
        job_id=np.array(names),
        arrive_s=arrive_s,
        deadline_s=np.maximum(deadline_s, arrive_s),
        run_s=np.array([one.request.run_s for one in ordered]),
        kind=np.array([one.request.group for one in ordered]),
        memory_gb=np.array([one.request.memory_gb for one in ordered]),
    )


def _gangs(finished: Sequence[Finished], nodes: Sequence[NodeInfo], policy: LivePolicy) -> Effect:
    assert policy.gang is not None
    jobs = gang_jobs(finished)
    cluster = NodeCluster(tuple(Node(n.n_gpus, n.gpu_model, n.speed, n.switch) for n in nodes if n.n_gpus > 0))
    run = simulate_gang(jobs, cluster, policy.gang)
    waits = run.start_s - jobs.submit_s
    return Effect(len(jobs), float(waits.mean()), 0.0, 0.0)


def _slices(finished: Sequence[Finished], nodes: Sequence[NodeInfo], policy: LivePolicy) -> Effect:
    assert policy.mig is not None
    cards = [card for node in nodes for card in node.gpus]
    gpus = parse_gpus(",".join(card.model for card in cards))
    layouts = tuple(tuple(Placement(one.start, one.profile) for one in card.instances) for card in cards)
    jobs = mig_jobs(finished)
    run = simulate_mig(
        jobs,
        Cluster(gpus, layouts),
        Policy(policy.mig.placement, policy.mig.repartition),
        Settings(preempt=False, drain=True),
    )
    late_s = np.maximum(0.0, run.finish_s - jobs.deadline_s)
    waits = run.first_start_s - jobs.arrive_s
    # The simulated day begins at midnight, for policies that look at the clock; nobody is asked about the hours before.
    before_j = float(jobs.arrive_s[0]) * sum(gpu_model(card.model).power.watts[0] for card in cards)
    energy_j = float(run.energy_j.sum()) - before_j
    return Effect(len(jobs), float(waits.mean()), float(late_s.mean()), float((late_s > 0).mean()), energy_j)
