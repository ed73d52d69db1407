"""The priced problem: for given prices of slice-time, what cards and jobs would each do at best, and what that costs.

Prices p[i, k] >= 0 are paid per second of a busy slice of kind k in interval i. A card sells slice-time and pays for
its power, a job buys slice-time and pays for its tardiness. Whatever the prices, the sum of the best each can do is no
more than the cost of any schedule; the gap between what is bought and what is sold is the slope to climb.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smartmig.bounds.relaxation import Relaxation
from smartmig.jit import kernel
from smartmig.types import Floats, Ints


class Tables(NamedTuple):
    """The constant side of a priced problem, in the order the kernel reads it."""

    edges_s: Floats
    """(n_intervals + 1,) last is inf"""
    energy_weight: float
    """cost of a joule"""
    late_weight: float
    """cost of a second of one job's tardiness"""
    n_gpus: Ints
    state_model: Ints
    state_count: Floats
    state_busy: Floats
    state_w: Floats
    idle_w: Floats
    idle_free_from: int
    """first interval in which idle cards need not be on"""
    speed: Floats
    curve: Ints
    work: Floats
    arrive_s: Floats
    deadline_s: Floats
    first: Ints
    """(n_jobs,) interval of the release"""


class Scratch(NamedTuple):
    """Memory the kernel works in."""

    n_steps: Ints
    """(2, n_curves, n_intervals) how many steps the price curve has; [1]: when time itself costs tardiness"""
    slope: Floats
    """(2, n_curves, n_intervals, n_kinds) price per work of each step, rising"""
    gain: Floats
    """speed that the step adds"""
    kind: Ints
    """what the job runs on after the step"""
    least: Floats
    """(n_curves, n_intervals) lowest slope from here on"""
    pool_slope: Floats
    pool_work: Floats
    busy: Floats
    """(n_models, n_kinds) one card's mix of states"""
    bought: Floats
    """(n_intervals, n_kinds) slice-seconds jobs want"""
    sold: Floats
    """(n_intervals, n_kinds) slice-seconds cards offer"""


def tables(relaxation: Relaxation, edges_s: Floats, energy_weight: float, late_weight: float) -> Tables:
    """`edges_s` must have the relaxation's earliest end as an edge."""
    return Tables(
        edges_s=edges_s,
        energy_weight=float(energy_weight),
        late_weight=float(late_weight),
        n_gpus=relaxation.n_gpus,
        state_model=relaxation.state_model,
        state_count=relaxation.state_count,
        state_busy=relaxation.state_busy,
        state_w=relaxation.state_w,
        idle_w=relaxation.idle_w,
        idle_free_from=int(np.searchsorted(edges_s, relaxation.end_s, side="left")),
        speed=relaxation.speed,
        curve=relaxation.curve,
        work=relaxation.work,
        arrive_s=relaxation.arrive_s,
        deadline_s=relaxation.deadline_s,
        first=np.searchsorted(edges_s, relaxation.arrive_s, side="right").astype(np.int64) - 1,
    )


def scratch(t: Tables) -> Scratch:
    n_curves, n_kinds = t.speed.shape
    n = t.edges_s.size - 1
    return Scratch(
        n_steps=np.zeros((2, n_curves, n), dtype=np.int64),
        slope=np.zeros((2, n_curves, n, n_kinds)),
        gain=np.zeros((2, n_curves, n, n_kinds)),
        kind=np.zeros((2, n_curves, n, n_kinds), dtype=np.int64),
        least=np.zeros((n_curves, n)),
        pool_slope=np.zeros(n * n_kinds + 1),
        pool_work=np.zeros(n * n_kinds + 1),
        busy=np.zeros((t.n_gpus.size, n_kinds)),
        bought=np.zeros((n, n_kinds)),
        sold=np.zeros((n, n_kinds)),
    )


def last_prices(relaxation: Relaxation, energy_weight: float) -> Floats:
    """Prices of the open-ended interval: each model's least power per busy compute slice, so that no card gains by
    selling however long it lasts."""
    slices = relaxation.state_count @ relaxation.kind_compute
    watts = np.zeros(relaxation.n_kinds)
    for model in range(relaxation.n_gpus.size):
        rows = (relaxation.state_model == model) & (slices > 0)
        own = relaxation.state_count[rows].any(axis=0)
        watts[own] = np.min(relaxation.state_w[rows] / slices[rows])
    return energy_weight * watts * relaxation.kind_compute


@kernel
def evaluate(t: Tables, prices: Floats, warmth: float, s: Scratch) -> float:
    """The bound these prices prove; leaves what was bought and sold in `s` (the last interval's is not counted).

    `warmth` > 0 lets cards mix states of nearly equal profit in `sold`; the value itself is exact.
    """
    value = _sell(t, prices, warmth, s)
    _price_curves(t, prices, s)
    s.bought[:, :] = 0.0
    for job in range(t.work.size):
        value += _buy(t, job, s)
    return value


@kernel
def _sell(t: Tables, prices: Floats, warmth: float, s: Scratch) -> float:
    n_kinds = prices.shape[1]
    n = prices.shape[0]
    value = 0.0
    # Idle cards pay until the earliest end; from there on they may be off.
    for i in range(n - 1):
        length_s = t.edges_s[i + 1] - t.edges_s[i]
        for model in range(t.n_gpus.size):
            best = np.inf
            for state in range(t.state_w.size):
                if t.state_model[state] == model:
                    cost = _state_cost(t, prices, i, state)
                    best = min(best, cost)
            value += t.n_gpus[model] * length_s * best
            total = 0.0
            for kind in range(n_kinds):
                s.busy[model, kind] = 0.0
            for state in range(t.state_w.size):
                if t.state_model[state] == model:
                    over = _state_cost(t, prices, i, state) - best
                    if warmth > 0.0:
                        share = np.exp(-over / warmth) if over < 30.0 * warmth else 0.0
                    else:
                        share = 1.0 if over <= 0.0 and total == 0.0 else 0.0
                    if share > 0.0:
                        total += share
                        for kind in range(n_kinds):
                            s.busy[model, kind] += share * t.state_count[state, kind]
            for kind in range(n_kinds):
                s.busy[model, kind] *= t.n_gpus[model] * length_s / total
        for kind in range(n_kinds):
            sold = 0.0
            for model in range(t.n_gpus.size):
                sold += s.busy[model, kind]
            s.sold[i, kind] = sold
    return value


@kernel
def _state_cost(t: Tables, prices: Floats, i: int, state: int) -> float:
    if t.state_busy[state] == 0.0 and i >= t.idle_free_from:
        return 0.0
    cost = t.energy_weight * t.state_w[state]
    for kind in range(prices.shape[1]):
        cost -= t.state_count[state, kind] * prices[i, kind]
    return cost


@kernel
def _price_curves(t: Tables, prices: Floats, s: Scratch) -> None:
    """For each curve and interval: the lower hull of (speed, price per second) over no slice and every kind."""
    n_curves, n_kinds = t.speed.shape
    n = prices.shape[0]
    for curve in range(n_curves):
        for late in range(2):
            extra = late * t.late_weight
            for i in range(n):
                steps = 0
                speed = 0.0
                price = 0.0
                last = -np.inf
                while steps < n_kinds:
                    slope = np.inf
                    kind = -1
                    for other in range(n_kinds):
                        more = t.speed[curve, other] - speed
                        if more > 0.0:
                            rise = (prices[i, other] + extra - price) / more
                            if rise < slope or (rise == slope and t.speed[curve, other] > t.speed[curve, kind]):
                                slope = rise
                                kind = other
                    if kind < 0:
                        break
                    # Slopes rise along a hull; a last bit that says otherwise is noise.
                    last = max(last, slope)
                    s.slope[late, curve, i, steps] = last
                    s.gain[late, curve, i, steps] = t.speed[curve, kind] - speed
                    s.kind[late, curve, i, steps] = kind
                    speed = t.speed[curve, kind]
                    price = prices[i, kind] + extra
                    steps += 1
                s.n_steps[late, curve, i] = steps
        least = np.inf
        for i in range(n - 1, -1, -1):
            least = min(least, s.slope[0, curve, i, 0])
            s.least[curve, i] = least


@kernel
def _buy(t: Tables, job: int, s: Scratch) -> float:
    """The least cost of one job over all moments it could end; adds what it buys for that to `s.bought`.

    Walks the intervals from the release on. The pool holds the cheapest slice-time so far that does the whole work.
    A job that ends in a late interval pays tardiness for the seconds it runs there: for the last interval, slice-time
    costs that much more, which is what the second set of price curves is for.
    """
    curve = t.curve[job]
    work = t.work[job]
    due_s = t.deadline_s[job]
    n = t.edges_s.size - 1
    size = 0
    held = 0.0
    cost = 0.0
    best = np.inf
    best_i = -1
    best_from_s = 0.0
    best_level = 0.0
    best_late = False
    i = t.first[job]
    from_s = t.arrive_s[job]
    while i < n:
        to_s = t.edges_s[i + 1]
        if from_s < due_s < to_s:
            to_s = due_s
        length_s = to_s - from_s
        late = from_s >= due_s
        if late:
            tardy = t.late_weight * (from_s - due_s)
            if tardy + _hoped(cost + max(0.0, work - held) * s.least[curve, i], s.least[curve, i], size, s) >= best:
                break
            # End inside this interval: first fill what is missing, then replace the dearest of the pool.
            total = cost
            have = held
            top = size - 1
            top_left = s.pool_work[top] if top >= 0 else 0.0
            level = s.pool_slope[top] if top >= 0 else 0.0
            used = 0.0
            for step in range(s.n_steps[1, curve, i]):
                slope = s.slope[1, curve, i, step]
                offered = s.gain[1, curve, i, step] * length_s
                if have < work:
                    amount = min(offered, work - have)
                    total += slope * amount
                    have += amount
                    offered -= amount
                    used += amount
                    level = max(level, slope)
                while offered > 0.0 and top >= 0 and s.pool_slope[top] > slope:
                    amount = min(offered, top_left)
                    total += (slope - s.pool_slope[top]) * amount
                    offered -= amount
                    top_left -= amount
                    used += amount
                    if top_left <= 0.0:
                        top -= 1
                        top_left = s.pool_work[top] if top >= 0 else 0.0
                    level = max(slope, s.pool_slope[top]) if top >= 0 else slope
                if offered > 0.0:
                    break
            if have >= work * (1.0 - 1e-12) and used > 0.0 and tardy + total < best:
                best = tardy + total
                best_i = i
                best_from_s = from_s
                best_level = level
                best_late = True
        # Slice-time of this interval for a job that ends later.
        for step in range(s.n_steps[0, curve, i]):
            slope = s.slope[0, curve, i, step]
            amount = s.gain[0, curve, i, step] * length_s
            if held >= work and slope >= s.pool_slope[size - 1]:
                break
            amount = min(amount, work)
            at = size
            while at > 0 and s.pool_slope[at - 1] > slope:
                s.pool_slope[at] = s.pool_slope[at - 1]
                s.pool_work[at] = s.pool_work[at - 1]
                at -= 1
            s.pool_slope[at] = slope
            s.pool_work[at] = amount
            size += 1
            held += amount
            cost += slope * amount
            while held > work and size > 0:
                spare = min(held - work, s.pool_work[size - 1])
                held -= spare
                cost -= spare * s.pool_slope[size - 1]
                s.pool_work[size - 1] -= spare
                if s.pool_work[size - 1] > 0.0:
                    held = min(held, work)
                    break
                size -= 1
        if not late and to_s == due_s and held >= work * (1.0 - 1e-12):
            best = cost
            best_i = i
            best_from_s = from_s
            best_level = s.pool_slope[size - 1]
            best_late = False
        from_s = to_s
        if to_s == t.edges_s[i + 1]:
            i += 1
    _collect(t, job, best_i, best_from_s, best_level, best_late, s)
    return best


@kernel
def _hoped(cost: float, least: float, size: int, s: Scratch) -> float:
    """What the pool would cost if all that is dearer than the lowest slope to come were replaced at that slope."""
    at = size - 1
    while at >= 0 and s.pool_slope[at] > least:
        cost -= (s.pool_slope[at] - least) * s.pool_work[at]
        at -= 1
    return cost


@kernel
def _collect(t: Tables, job: int, last: int, last_from_s: float, level: float, late: bool, s: Scratch) -> None:
    """Add the slice-time bought by a job that ends in interval `last`: every step below the level, of those at the
    level as many as it takes."""
    curve = t.curve[job]
    work = t.work[job]
    for tied in range(2):
        i = t.first[job]
        from_s = t.arrive_s[job]
        while i <= last and work > 0.0:
            to_s = t.edges_s[i + 1]
            if from_s < t.deadline_s[job] < to_s:
                to_s = t.deadline_s[job]
            if i == last and from_s > last_from_s:
                break
            flavour = 1 if late and i == last and from_s == last_from_s else 0
            length_s = to_s - from_s
            before = -1
            for step in range(s.n_steps[flavour, curve, i]):
                slope = s.slope[flavour, curve, i, step]
                if slope > level or (tied == 0 and slope == level):
                    break
                kind = s.kind[flavour, curve, i, step]
                if slope < level and tied == 1:
                    before = kind
                    continue
                amount = min(work, s.gain[flavour, curve, i, step] * length_s)
                share_s = amount / s.gain[flavour, curve, i, step]
                work -= amount
                s.bought[i, kind] += share_s
                if before >= 0:
                    s.bought[i, before] -= share_s
                before = kind
            from_s = to_s
            if to_s == t.edges_s[i + 1]:
                i += 1
