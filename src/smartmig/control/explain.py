"""Why this and not that: the order of the queue and what each place would have cost, for people who look.

Asked for now and then, never on the way of a decision.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from smartmig.control.access import fence
from smartmig.control.decide import Decider
from smartmig.control.gang import GangDecider
from smartmig.control.memory import Memory
from smartmig.control.mig import MigDecider
from smartmig.control.mig_cards import cards_of
from smartmig.policy.gang_view import can_start
from smartmig.policy.network import at_rows
from smartmig.policy.repartition.mean_field import AT_PLAN, MeanField
from smartmig.types import SLICE_SIZES, ClusterState, JobKey, JobRequest

TOP = 10


def explain(
    decider: Decider, state: ClusterState, memory: Memory, top: int = TOP, also: Collection[JobKey] = ()
) -> dict[str, Any]:
    """What the rules made of this state: `queue` (whole GPUs), `slices` and `cuts` (MIG); of the first `top` jobs and
    those in `also`."""
    answer: dict[str, Any] = {"queue": [], "slices": [], "cuts": []}
    if decider.gang is not None:
        answer["queue"] = _queue(decider.gang, state, memory, top, also)
    if decider.mig is not None:
        answer["slices"] = _slices(state, memory, top, also)
        answer["cuts"] = _cuts(decider.mig, state, memory)
    return answer


def _queue(
    decider: GangDecider, state: ClusterState, memory: Memory, top: int, also: Collection[JobKey]
) -> list[dict[str, Any]]:
    """The first jobs in the rule's order, whether each could start by itself, and the rule's score of its nodes."""
    laid, _ = decider.lay_out(state, memory)
    if laid is None:
        return []
    world, jobs, arrays = laid.classes.world, laid.jobs, laid.state
    rows = [row for row in range(laid.n_running, len(laid.requests)) if laid.fits[row]]
    key = type(decider.policy.selection).key
    if key is not None:
        looked_at = {*rows[: 20 * top], *(row for row in rows if laid.requests[row].key in also)}
        scores = {row: float(key(world, jobs, arrays, row)) for row in looked_at}
    else:
        scores = {row: float(jobs.spec["rank"][row]) for row in rows}
    ranked = sorted(scores, key=lambda row: (scores[row], row))
    order = [row for rank, row in enumerate(ranked) if rank < top or laid.requests[row].key in also]
    kernels = decider.policy.allocation.kernels
    listed = []
    for row in order:
        request = laid.requests[row]
        fits = bool(can_start(world, jobs, arrays, row))
        nodes = []
        if fits:
            arrays.offered[:] = arrays.offer[0]
            kernels.prepare(world, jobs, arrays, row)
            models = int(jobs.spec["models"][row])
            for node, name in enumerate(laid.classes.names):
                offered = int(arrays.offered[node])
                share = min(offered, request.n_gpus)
                accepted = models >> int(world.node["model"][node]) & 1
                if accepted and share and (share == request.n_gpus or not jobs.spec["one_node"][row]):
                    score, tie = kernels.score(world, jobs, arrays, row, node, share)
                    nodes.append({"node": name, "n_gpus": share, "score": float(score), "tie": float(tie)})
            nodes.sort(key=lambda one: (one["score"], one["tie"]))
        listed.append(
            {
                "key": list(request.key),
                "n_gpus": request.n_gpus,
                "score": scores[row],
                "fits": fits,
                "nodes": nodes[:top],
            }
        )
    return listed


def _slices(state: ClusterState, memory: Memory, top: int, also: Collection[JobKey]) -> list[dict[str, Any]]:
    """For the first waiting jobs, every kind of free slice: when it would be done there, how late, with what energy."""
    cards = cards_of(state, memory.targets)
    busy = {
        (card.node, card.gpu): sum(
            card.model.profile(one.profile).compute for one in card.instances if one.start in card.busy
        )
        for card in cards
    }
    listed = []
    waiting = sorted((one for one in state.queued if one.n_gpus == 0), key=lambda one: one.deadline_s)
    for request in (one for rank, one in enumerate(waiting) if rank < top or one.key in also):
        options: dict[tuple[str, int, str], dict[str, Any]] = {}
        for card in cards:
            if (request.nodes and card.node not in request.nodes) or fence(request, card.node, state):
                continue
            for one in card.instances:
                if one.usable and one.start not in card.busy:
                    n_busy = busy[card.node, card.gpu]
                    option = _option(request, state.time_s, card.model, one.profile, n_busy)
                    if option is not None:
                        kind = (card.model.id, n_busy, one.profile)
                        like = options.setdefault(kind, {**option, "places": []})
                        like["places"].append({"node": card.node, "gpu": card.gpu, "start": one.start})
        ranked = sorted(options.values(), key=lambda option: (option["late_s"], option["energy_j"]))
        listed.append({"key": list(request.key), "deadline_s": request.deadline_s, "options": ranked[:top]})
    return listed


def _option(request: JobRequest, now_s: float, model: Any, name: str, n_busy: int) -> dict[str, Any] | None:
    profile = model.profile(name)
    run_s = request.run_s[SLICE_SIZES.index(profile.compute)]
    if not np.isfinite(run_s) or request.memory_gb > profile.memory_gb:
        return None
    watts = model.power.watts
    more_w = watts[min(n_busy + profile.compute, model.n_compute)] - watts[n_busy]
    late_s = max(0.0, now_s + run_s - request.deadline_s)
    return {"profile": name, "done_s": now_s + run_s, "late_s": late_s, "energy_j": more_w * run_s}


def _cuts(decider: MigDecider, state: ClusterState, memory: Memory) -> list[dict[str, Any]]:
    """For a learned cutting policy: how likely each present cut is to become which."""
    laid = decider.lay_out(state, memory, memory.n_events)
    if laid is None or decider.ask is None or not isinstance(decider.policy.repartition, MeanField):
        return []
    knobs = laid.table.knobs.copy()
    present = sorted(set(laid.state.gpu["config"].tolist()))
    laid.state.now["pending"] = 1
    decider.ask(laid.world, laid.jobs, laid.state, knobs, laid.kept)
    configs = laid.table.cuts.configs
    n_configs = len(configs)
    matrix = knobs[AT_PLAN + at_rows(n_configs) :].reshape(n_configs, n_configs)
    return [
        {
            "cut": configs[config].text,
            "next": [
                {"cut": configs[other].text, "share": float(matrix[config, other])}
                for other in np.argsort(-matrix[config])[:3].tolist()
                if matrix[config, other] > 0
            ],
        }
        for config in present
    ]
