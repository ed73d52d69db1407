"""From nouns to arrays: nodes, jobs and a policy become `World`, `JobArrays` and a fresh `State`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from smartmig.errors import InputError, NoNodesFit
from smartmig.hardware.nodes import NodeCluster
from smartmig.jit import kernel
from smartmig.policy.allocation.rule import AllocationRule
from smartmig.policy.gang_view import (
    EDGE,
    END,
    JOB,
    JOB_SPEC,
    NODE,
    NODE_SPEC,
    NOW,
    ORDER,
    PART,
    RANKED,
    ROOM,
    STEP,
    STRETCH,
    USER,
    JobArrays,
    State,
    World,
)
from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import SelectionRule
from smartmig.types import Floats, GangJobs, Ints

MAX_MODELS = 60
ALL = 1 << 62
"""In `World.most_starts`: no limit."""


class Backfill(StrEnum):
    """What happens when the next job does not fit."""

    none = "none"
    """it blocks the queue"""
    easy = "easy"
    """it gets a reservation; jobs that do not delay it may go first"""
    conservative = "conservative"
    """every job has a reservation that nothing delays"""


@dataclass(frozen=True)
class GangPolicy:
    """Who decides."""

    selection: SelectionRule
    allocation: AllocationRule
    backfill: Backfill = Backfill.none

    @property
    def watches_arrivals(self) -> bool:
        """Whether it decides by what came before, even if that is gone."""
        return self.selection.watches_arrivals or self.allocation.mix_half_life > 0


def kept_backfill(policy: GangPolicy) -> Backfill:
    """The policy's, but a rule with reservations of its own keeps them under `none` as well."""
    return Backfill.easy if policy.selection.reserves and policy.backfill is Backfill.none else policy.backfill


def model_names(cluster: NodeCluster) -> list[str]:
    """Each GPU model once, in lower case."""
    return list(dict.fromkeys(node.model.lower() for node in cluster.nodes))


def build_world(cluster: NodeCluster, policy: GangPolicy) -> World:
    names = model_names(cluster)
    if len(names) > MAX_MODELS:
        raise InputError(f"{len(names)} GPU models in one cluster; the limit is {MAX_MODELS}")
    switches = sorted({node.switch for node in cluster.nodes})
    node = np.zeros(len(cluster.nodes), dtype=NODE_SPEC)
    node["n_gpus"] = [one.n_gpus for one in cluster.nodes]
    node["model"] = [names.index(one.model.lower()) for one in cluster.nodes]
    node["switch"] = [switches.index(one.switch) for one in cluster.nodes]
    node["speed"] = [one.speed for one in cluster.nodes]
    edges = [(outage.node, 1, not outage.drain, outage.from_s) for outage in cluster.outages]
    edges += [(outage.node, -1, False, outage.to_s) for outage in cluster.outages if outage.to_s < np.inf]
    # At one instant nodes go before others come back, so that a node in two outages on end never comes back between.
    edges.sort(key=lambda edge: (edge[3], -edge[1], edge[0]))
    half_life = policy.allocation.mix_half_life
    return World(
        backfill=list(Backfill).index(kept_backfill(policy)),
        spread=policy.allocation.spread,
        by_switch=policy.allocation.by_switch,
        n_gpus=cluster.n_gpus,
        n_models=len(names),
        n_switches=len(switches),
        usage_half_life_s=float(policy.selection.usage_half_life_s),
        mix_decay=float(0.5 ** (1 / half_life)) if half_life > 0 else 0.0,
        most_starts=ALL,
        node=node,
        edge=np.array(edges, dtype=EDGE),
        selection_knobs=np.array(policy.selection.knobs() or (0.0,), dtype=float),
        allocation_knobs=np.array(policy.allocation.knobs() or (0.0,), dtype=float),
    )


def known_jobs(jobs: GangJobs, rule: SelectionRule, predicted_s: Floats | None) -> KnownJobs:
    """What the rule may know of the jobs."""
    return KnownJobs(
        submit_s=jobs.submit_s,
        limit_s=jobs.limit_s,
        predicted_s=jobs.limit_s if predicted_s is None else predicted_s,
        n_gpus=jobs.n_gpus,
        user=np.unique(jobs.user, return_inverse=True)[1].astype(np.int64),
        true_s=jobs.run_s if rule.oracle else np.full(len(jobs), np.nan),
    )


def accepted_models(jobs: GangJobs, names: list[str]) -> Ints:
    """(n,) bit = model of the cluster that the job accepts; nodes that name none take every job."""
    wishes, which = np.unique(jobs.gpu_model, return_inverse=True)
    masks = []
    for wish in wishes:
        wanted = {one.strip().lower() for one in str(wish).split("|")} - {""}
        masks.append(sum(1 << bit for bit, name in enumerate(names) if not wanted or not name or name in wanted))
    return np.array(masks, dtype=np.int64)[which]


def check_jobs(jobs: GangJobs) -> None:
    """Refuse what no world can run."""
    if len(jobs) == 0:
        raise InputError("there are no jobs to run")
    sane = (jobs.submit_s >= 0) & np.isfinite(jobs.submit_s) & (jobs.run_s >= 0) & np.isfinite(jobs.run_s)
    sane &= (jobs.limit_s > 0) & (jobs.n_gpus >= 1)
    if not sane.all():
        job = str(jobs.job_id[np.argmin(sane)])
        raise InputError(f"job '{job}': needs a submission and a run time from 0 on, a limit above 0 and GPUs")
    if (np.diff(jobs.submit_s) < 0).any():
        raise InputError("jobs must be sorted by submission")


def build_jobs(jobs: GangJobs, cluster: NodeCluster, policy: GangPolicy, predicted_s: Floats | None) -> JobArrays:
    """Refuses a job that the whole cluster, empty, could not run."""
    check_jobs(jobs)
    names = model_names(cluster)
    models = accepted_models(jobs, names)
    total = np.zeros(len(jobs), dtype=np.int64)
    widest = np.zeros(len(jobs), dtype=np.int64)
    smallest = np.full(len(jobs), cluster.n_gpus)
    for bit, name in enumerate(names):
        sizes = [node.n_gpus for node in cluster.nodes if node.model.lower() == name]
        accepts = (models >> bit & 1) == 1
        total += np.where(accepts, sum(sizes), 0)
        widest = np.maximum(widest, np.where(accepts, max(sizes), 0))
        smallest = np.minimum(smallest, np.where(accepts, min(sizes), cluster.n_gpus))
    homeless = np.flatnonzero(total < jobs.n_gpus)
    if homeless.size:
        first = int(homeless[0])
        model = f" of {jobs.gpu_model[first]}" if jobs.gpu_model[first] else ""
        others = f" (and {homeless.size - 1} more jobs)" if homeless.size > 1 else ""
        why = f"fits nowhere{others}: it needs {jobs.n_gpus[first]} GPUs{model}; the cluster has {total[first]}"
        raise NoNodesFit(str(jobs.job_id[first]), why)
    known = known_jobs(jobs, policy.selection, predicted_s)
    return job_arrays(known, models, widest, smallest, policy, np.ascontiguousarray(jobs.run_s, dtype=float))


@kernel
def describe(
    jobs: JobArrays, n_gpus: Ints, models: Ints, widest: Ints, smallest: Ints, order: Ints, spread: bool
) -> None:
    """What follows from sizes, from the nodes a job may use (`widest`, `smallest`: their GPUs) and from the rule's
    order."""
    for job in range(n_gpus.size):
        asked, most = n_gpus[job], widest[job]
        jobs.spec[job].n_gpus = asked
        jobs.spec[job].models = models[job]
        jobs.spec[job].one_node = asked <= most
        # Whole nodes of one size leave a rest that is known, or none; of several sizes, or spread, any share may help.
        share = asked
        if asked > most:
            share = (asked - 1) % most + 1 if smallest[job] == most else 1
        jobs.spec[job].least_share = 1 if spread else share
    for word in range(jobs.least.size):
        jobs.least[word].n_gpus = 1 << 62
        jobs.least[word].limit_s = np.inf
    for rank in range(order.size):
        job = order[rank]
        jobs.spec[job].rank = rank
        jobs.ranked[rank].job = job
        jobs.ranked[rank].n_gpus = jobs.spec[job].n_gpus
        jobs.ranked[rank].limit_s = jobs.spec[job].limit_s
        word = rank >> 6
        jobs.least[word].n_gpus = min(jobs.least[word].n_gpus, jobs.spec[job].n_gpus)
        jobs.least[word].limit_s = min(jobs.least[word].limit_s, jobs.spec[job].limit_s)


def job_arrays(
    known: KnownJobs, models: Ints, widest: Ints, smallest: Ints, policy: GangPolicy, run_s: Floats
) -> JobArrays:
    """What rules and engine read of jobs that accept these models, whose nodes have so many GPUs at most and least."""
    n_jobs = known.n_gpus.size
    jobs = JobArrays(
        np.zeros(n_jobs, dtype=JOB_SPEC),
        np.zeros(n_jobs, dtype=RANKED),
        np.zeros((n_jobs + 63) // 64, dtype=RANKED),
        run_s,
    )
    jobs.spec["user"] = known.user
    jobs.spec["submit_s"] = known.submit_s
    jobs.spec["limit_s"] = known.limit_s
    jobs.spec["predicted_s"] = policy.selection.predicted(known)
    order = np.argsort(policy.selection.keys(known), kind="stable")
    describe(jobs, known.n_gpus, models, widest, smallest, order, policy.allocation.spread)
    return jobs


def fresh_state(world: World, jobs: JobArrays) -> State:
    """Time 0: nothing is submitted, every node is there and idle."""
    n_jobs, n_nodes = jobs.spec.size, world.node.size
    n_users = int(jobs.spec["user"].max()) + 1
    widest = int(world.node["n_gpus"].max())
    conservative = world.backfill == list(Backfill).index(Backfill.conservative)
    job = np.zeros(n_jobs, dtype=JOB)
    job["first_part"] = -1
    job["begin_s"] = np.inf
    job["finish_s"] = job["promised_s"] = np.nan
    node = np.zeros(n_nodes, dtype=NODE)
    node["free"] = world.node["n_gpus"]
    node["first_part"] = -1
    node["until_s"] = -np.inf
    # A job on one node has one part; any other at most one per GPU, or per node.
    n_parts = np.where(jobs.spec["one_node"] == 1, 1, np.minimum(jobs.spec["n_gpus"], n_nodes))
    if world.spread:
        n_parts = np.minimum(jobs.spec["n_gpus"], n_nodes)
    n_reserved = int(n_parts.sum()) if conservative else 0
    part = np.zeros(world.n_gpus + n_reserved, dtype=PART)
    part["next"] = np.arange(1, part.size + 1)
    n_steps = n_nodes + 2 * (world.n_gpus + n_reserved) + 2 if conservative else 0
    offer = np.zeros((2, n_nodes), dtype=np.int64)
    offer[:] = world.node["n_gpus"]
    n_offering = np.zeros((2, world.n_models, widest + 1), dtype=np.int64)
    for spec in world.node:
        n_offering[:, spec["model"], spec["n_gpus"]] += 1
    room = np.zeros((2, world.n_models), dtype=ROOM)
    for model in range(world.n_models):
        sizes = world.node["n_gpus"][world.node["model"] == model]
        room["widest"][:, model], room["total"][:, model] = sizes.max(), sizes.sum()
    user = np.zeros(n_users + 1, dtype=USER)
    user["factor_s"] = np.nan
    now = np.zeros(1, dtype=NOW)
    now["reserved"] = -1
    now["replan"] = 1
    now["next_start_s"] = np.inf
    now["guarded_s"] = -np.inf
    n_words = (n_jobs + 63) // 64
    return State(
        now=now,
        job=job,
        node=node,
        end=np.zeros(n_jobs, dtype=END),
        waiting=np.zeros(n_words, dtype=np.int64),
        waiting_words=np.zeros((n_words + 63) // 64, dtype=np.int64),
        release=np.zeros(world.n_gpus, dtype=np.int64),
        part=part,
        step=np.zeros(n_steps, dtype=STEP),
        offer=offer,
        n_offering=n_offering,
        n_brief=n_offering[0].copy(),
        room=room,
        offered=np.zeros(n_nodes, dtype=np.int64),
        take=np.zeros(n_nodes, dtype=np.int64),
        chosen=np.zeros(n_nodes, dtype=np.int64),
        switch_offered=np.zeros(world.n_switches, dtype=np.int64),
        scratch=np.zeros(n_nodes + widest + 1),
        order=np.zeros(n_jobs if conservative else 0, dtype=ORDER),
        mix=np.zeros(widest + 1),
        user=user,
        stretch=np.zeros(n_jobs + world.n_gpus, dtype=STRETCH),
    )
