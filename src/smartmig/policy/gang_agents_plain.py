"""The plain twins of the two agents: what `gang_encoding` and the learned rules mean, looked at one by one."""

from __future__ import annotations

import math

import numpy as np

from smartmig.policy import gang_encoding as seeing
from smartmig.policy.allocation.fragmentation_aware import FragmentationAware
from smartmig.policy.allocation.learned import HORIZON_S, LEAST_LOSS
from smartmig.policy.gang_encoding import DAY_S, HOUR_S, N_BINS, N_CELLS, N_MODELS, N_SIZES, REFERENCE_NODES, cells
from smartmig.policy.gang_network import N_KIND, N_SELECTOR, SHAPES, rule_score
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import BRIEF_S
from smartmig.types import Floats


def split(weights: Floats) -> dict[str, Floats]:
    """The weights by name."""
    parts: dict[str, Floats] = {}
    at = 0
    for name, shape in SHAPES.items():
        parts[name] = weights[at : at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
    return parts


def offer(node: PlainNode) -> int:
    return node.free if node.n_away == 0 else 0


def widest(view: PlainGang) -> int:
    return max(node.n_gpus for node in view.nodes)


def idle_nodes(view: PlainGang) -> int:
    return sum(offer(node) == widest(view) for node in view.nodes)


def per_30(view: PlainGang, count: int) -> float:
    return count * REFERENCE_NODES / len(view.nodes)


def is_brief(view: PlainGang, node: PlainNode) -> bool:
    """Whether the node has no job that may last."""
    return all(view.jobs.limit_s[job] <= BRIEF_S for job in node.until_s)


def running(view: PlainGang) -> set[int]:
    return {job for node in view.nodes for job in node.until_s}


def see_cluster(view: PlainGang) -> Floats:
    """What `encode_cluster` writes."""
    seen = np.zeros(seeing.N_CLUSTER)
    wide = widest(view)
    # By model and free GPUs, as the counts stand in the kernel: sums of floats depend on their order.
    n_models = max(node.model for node in view.nodes) + 1
    for model in range(n_models):
        for free in range(wide + 1):
            count = sum(node.model == model and offer(node) == free for node in view.nodes)
            eighths = (8 * free + wide - 1) // wide
            seen[seeing.AT_HISTOGRAM + min(model, N_MODELS - 1) * N_BINS + eighths] += count / len(view.nodes)
    seen[seeing.AT_FREE] = sum(offer(node) for node in view.nodes) / view.n_gpus
    seen[seeing.AT_FREE + 1] = min(4.0, per_30(view, idle_nodes(view)))
    n_soon = sum(is_brief(view, node) for node in view.nodes) - idle_nodes(view)
    seen[seeing.AT_SOON] = min(8.0, per_30(view, n_soon))
    if view.reserved is not None:
        seen[seeing.AT_RESERVED] = 1.0
        far_h = min((view.reserved_s - view.now_s) / HOUR_S, 1000.0)
        seen[seeing.AT_RESERVED + 1] = math.log1p(far_h) / 5.0
    for at, period_s in enumerate((DAY_S, 7 * DAY_S)):
        angle = 2.0 * math.pi * (view.now_s % period_s) / period_s
        seen[seeing.AT_TIME + 2 * at : seeing.AT_TIME + 2 * at + 2] = math.sin(angle), math.cos(angle)
    seen[seeing.AT_RUSH] = math.log1p(view.rush())
    return seen


def takes_idle(view: PlainGang, job: int) -> int:
    n_gpus, wide = int(view.jobs.n_gpus[job]), widest(view)
    if n_gpus >= wide:
        return -(-n_gpus // wide)
    lasting = view.jobs.limit_s[job] > BRIEF_S
    fits = [node for node in view.nodes if view.accepts(job, node.index) and n_gpus <= offer(node) < wide]
    return 0 if any(not (lasting and is_brief(view, node)) for node in fits) else 1


def see_job(view: PlainGang, job: int, crowd: int, tail: bool, predicted_s: float) -> Floats:
    """What `encode_job` writes."""
    waited_s = view.now_s - float(view.jobs.submit_s[job])
    asked_s, n_gpus = float(view.jobs.limit_s[job]), int(view.jobs.n_gpus[job])
    limit_s = min(asked_s, 30 * DAY_S)
    taken = takes_idle(view, job)
    slot = np.zeros(seeing.N_SLOT)
    slot[seeing.LIMIT] = math.log2(limit_s / HOUR_S + 1e-3) / 8.0
    slot[seeing.SIZE] = math.log2(n_gpus) / 3.0
    slot[seeing.WAITED] = math.log1p(waited_s / 60.0) / 8.0
    slot[seeing.STRETCH] = math.log1p(waited_s / limit_s) / 3.0
    slot[seeing.STARTS] = float(view.can_start(job))
    slot[seeing.IDLE_AFTER] = max(-1.0, min(4.0, per_30(view, idle_nodes(view) - taken)))
    slot[seeing.BREAKS] = float(taken > 0)
    slot[seeing.FREE_AFTER] = (sum(offer(node) for node in view.nodes) - n_gpus) / view.n_gpus
    slot[seeing.CROWD] = math.log1p(crowd) / 4.0
    slot[seeing.TAIL] = float(tail)
    slot[seeing.DAYS] = waited_s / DAY_S
    slot[seeing.PREDICTED] = math.log2(min(predicted_s, 30 * DAY_S) / HOUR_S + 1e-3) / 8.0
    slot[seeing.SHORT] = float(view.reserved is not None and view.now_s + asked_s <= view.reserved_s)
    return slot


def layer(bias: Floats, inputs: Floats, weights: Floats) -> Floats:
    """Input by input, as the kernels add."""
    out = bias.copy()
    for value, row in zip(inputs, weights, strict=True):
        out += value * row
    return out


def dot(hidden: Floats, out: Floats, start: float = 0.0) -> float:
    total = start
    for value, weight in zip(hidden, out, strict=True):
        total += math.tanh(value) * weight
    return total


def plain_select(view: PlainGang, weights: Floats, guard: tuple[float, float], predicted_s: Floats) -> int | None:
    """The job the learned selector picks, or None to wait."""
    oldest = min(view.queue)
    waited_s = view.now_s - float(view.jobs.submit_s[oldest])
    if waited_s > guard[0] and view.now_s - view.guarded_s >= guard[1]:
        starts = view.can_start(oldest)
        if starts:
            view.guarded_s = view.now_s
        if starts or view.reserved is None:
            return oldest
    w = split(weights)
    by_cell: dict[int, list[int]] = {}
    for job in sorted(view.queue):
        cell = int(cells(view.jobs.limit_s[job : job + 1], view.jobs.n_gpus[job : job + 1])[0])
        by_cell.setdefault(cell, []).append(job)
    cluster = see_cluster(view)
    for cell, jobs in by_cell.items():
        cluster[seeing.AT_QUEUE + cell // N_SIZES] += len(jobs)
        cluster[seeing.AT_QUEUE + seeing.N_REQUESTS + cell % N_SIZES] += len(jobs)
    queue = slice(seeing.AT_QUEUE, seeing.AT_QUEUE + seeing.N_REQUESTS + N_SIZES)
    cluster[queue] = [math.log1p(count) / 4.0 for count in cluster[queue]]
    heard = layer(w["cluster_bias"], cluster, w["cluster"])
    best = dot(heard, w["wait_out"], float(w["wait_bias"][0])) if running(view) else -math.inf
    said = layer(w["slot_bias"], np.array([math.tanh(value) for value in heard]), w["slot_cluster"])
    chosen = None
    slots = [(cell, jobs[0], jobs) for cell, jobs in by_cell.items()]
    slots += [(N_CELLS + cell, jobs[-1], jobs) for cell, jobs in by_cell.items() if len(jobs) > 1]
    for slot, job, jobs in sorted(slots, key=lambda entry: entry[0]):
        numbers = see_job(view, job, len(jobs), slot >= N_CELLS, float(predicted_s[job]))
        starts = numbers[seeing.STARTS] > 0
        if view.reserved is not None and not starts:
            continue
        cell = slot % N_CELLS
        nodes = per_30(view, int(view.jobs.n_gpus[job]) // widest(view))
        plain_rule = rule_score.py_func  # type: ignore[attr-defined]
        score = plain_rule(w["rule"], cell // N_SIZES, cell % N_SIZES, nodes, starts, cluster, numbers)
        score += dot(layer(said, numbers, w["slot"]), w["slot_out"])
        if score > best:
            best, chosen = score, job
    return chosen


def see_kind(view: PlainGang, job: int, node: PlainNode, count: int) -> Floats:
    """What `describe_kind` writes."""
    limit_s = min(float(view.jobs.limit_s[job]), HORIZON_S)
    beside_s = max(0.0, max([view.now_s, *node.until_s.values()]) - view.place_s)
    n_gpus, offered = int(view.jobs.n_gpus[job]), view.offered[node.index]
    numbers = [
        math.log2(limit_s / HOUR_S + 1e-3) / 8.0,
        math.log2(n_gpus) / 3.0,
        offered / node.n_gpus,
        (offered - n_gpus) / node.n_gpus,
        float(offered == n_gpus),
        float(offered == node.n_gpus),
        min(1.0, beside_s / limit_s),
        math.log1p(min(beside_s, HORIZON_S) / HOUR_S) / 5.0,
        count / len(view.nodes),
        node.speed,
        min(4.0, 30.0 * idle_nodes(view) / len(view.nodes)),
        math.log1p(max(0.0, view.place_s - view.now_s) / HOUR_S) / 5.0,
    ]
    assert len(numbers) == N_KIND
    return np.array(numbers)


def chosen_node(view: PlainGang, weights: Floats, job: int) -> int | None:
    """The node of the kind the learned allocator likes best."""
    w = split(weights)
    assert sum(math.prod(SHAPES[name]) for name in list(SHAPES)[:9]) == N_SELECTOR
    n_gpus = int(view.jobs.n_gpus[job])
    kinds: dict[int, list[tuple[float, int]]] = {}
    for node in view.nodes:
        offered = view.offered[node.index]
        if offered >= n_gpus and view.accepts(job, node.index):
            kind = min(node.model, N_MODELS - 1) * N_BINS + (8 * offered + node.n_gpus - 1) // node.n_gpus
            lost = FragmentationAware(horizon_s=HORIZON_S).plain_score(view, job, node, n_gpus)[0]
            kinds.setdefault(kind, []).append((lost, node.index))
    if not kinds:
        return None
    said = layer(w["kind_bias"], see_cluster(view), w["kind_cluster"])
    least = min(lost for nodes in kinds.values() for lost, _ in nodes)
    best, chosen = -math.inf, None
    for kind in sorted(kinds):
        lost, index = min(kinds[kind])
        score = -float(w["fit"][0]) * math.log((lost + LEAST_LOSS) / (least + LEAST_LOSS))
        numbers = see_kind(view, job, view.nodes[index], len(kinds[kind]))
        score += dot(layer(said, numbers, w["kind"]), w["kind_out"])
        if score > best:
            best, chosen = score, index
    return chosen


def plain_score(view: PlainGang, weights: Floats, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]:
    """The learned allocator's score of a node."""
    if n_gpus == int(view.jobs.n_gpus[job]):
        chosen = chosen_node(view, weights, job)
        if chosen is not None:
            return (0.0 if node.index == chosen else 1.0), 0.0
    return FragmentationAware(horizon_s=HORIZON_S).plain_score(view, job, node, n_gpus)
