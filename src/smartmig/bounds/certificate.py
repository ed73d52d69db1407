"""Certificates: prices that prove a bound, and a second, plain way to work out what they prove.

The check shares no code with the search: it lists the states of every card anew, and bounds every job by weak duality
in one more number, its price of work y: for each y, a job that has `work` to do and ends in interval c costs at least
    tardiness at the start of c  +  y work  -  sum over intervals of  length * max over slices (y speed - price)+ .
Any y is valid, so a mistake in the choice of y can only make the checked bound smaller.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smartmig.atomic import atomic_write
from smartmig.bounds.energy import preemptive_makespan_s
from smartmig.errors import InputError
from smartmig.hardware.layouts import placement_sets
from smartmig.hardware.model import GpuModel
from smartmig.types import DEADLINE_GRACE_S, SLICE_SIZES, Floats, Jobs

VERSION = 1
TOLERANCE = 1e-9
"""Relative rounding that claimed and checked value may differ by."""
FIELDS = ("kinds", "edges_s", "prices", "energy_weight", "late_weight", "estimated_speed", "value")


@dataclass(frozen=True, eq=False)
class Certificate:
    """Proof that energy_weight * joules + late_weight * summed tardiness seconds >= value, for every schedule."""

    kinds: tuple[tuple[int, str], ...]
    """(GPU model, in the order of the cluster; smallest profile) of every column of `prices`"""
    edges_s: Floats
    """(n_intervals + 1,) the last is inf"""
    prices: Floats
    """(n_intervals, n_kinds) cost of a busy slice-second"""
    energy_weight: float
    late_weight: float
    estimated_speed: bool
    """run times scaled by each GPU model's estimated speed"""
    value: float


@dataclass(frozen=True)
class Verdict:
    """What a check found."""

    valid: bool
    checked: float
    """what the prices prove"""
    claimed: float
    reason: str
    """why not, when not"""


def save_certificates(path: Path, certificates: Mapping[str, Certificate]) -> None:
    """Write named certificates into one `.npz` file. Raises `InputError` when the place cannot be written."""
    arrays: dict[str, Any] = {"version": np.array(VERSION)}
    for name, certificate in certificates.items():
        for field in FIELDS:
            arrays[f"{name}/{field}"] = np.array(getattr(certificate, field))
        arrays[f"{name}/kinds"] = np.array([f"{model}:{profile}" for model, profile in certificate.kinds])
    with atomic_write(path, "wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_certificates(path: Path) -> dict[str, Certificate]:
    """The certificates of a file by name. Raises `InputError` for a file that holds none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if "version" not in arrays:
            raise InputError(f"{path}: not a file of certificates")
        if int(arrays["version"]) != VERSION:
            raise InputError(f"{path}: version {int(arrays['version'])}, this smartmig reads version {VERSION}")
        names = dict.fromkeys(key.rpartition("/")[0] for key in arrays if "/" in key)
        return {name: _from_arrays({field: arrays[f"{name}/{field}"] for field in FIELDS}) for name in names}
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or 'not a file of certificates'}") from None
    except KeyError as error:
        raise InputError(f"{path}: the certificate lacks {error}") from None
    except (ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile):
        raise InputError(f"{path}: not a file of certificates") from None


def _from_arrays(arrays: Mapping[str, np.ndarray]) -> Certificate:
    kinds = [str(kind).partition(":") for kind in arrays["kinds"]]
    return Certificate(
        kinds=tuple((int(model), name) for model, _, name in kinds),
        edges_s=arrays["edges_s"].astype(np.float64),
        prices=arrays["prices"].astype(np.float64),
        energy_weight=float(arrays["energy_weight"]),
        late_weight=float(arrays["late_weight"]),
        estimated_speed=bool(arrays["estimated_speed"]),
        value=float(arrays["value"]),
    )


def check_certificate(certificate: Certificate, jobs: Jobs, gpus: Sequence[GpuModel]) -> Verdict:
    """Work out, without the search and its kernels, what the prices prove for this job set and cluster.

    A certificate that does not fit the cluster, or whose prices are no prices, is not valid: the reason says why.
    """
    models = tuple(dict.fromkeys(gpus))
    reason = _malformed(certificate, models)
    if not reason and len(jobs) == 0:
        reason = "there are no jobs"
    if reason:
        return Verdict(False, -np.inf, certificate.value, reason)
    run_s, kind_of, reason = _kinds(certificate, jobs, models)
    if reason:
        return Verdict(False, -np.inf, certificate.value, reason)
    earliest_end_s = _earliest_end_s(jobs, models, gpus, certificate)
    checked = 0.0
    for index, model in enumerate(models):
        cards = sum(gpu == model for gpu in gpus)
        profit, reason = _cards(certificate, model, kind_of[index], earliest_end_s)
        if reason:
            return Verdict(False, -np.inf, certificate.value, reason)
        checked += cards * profit
    for job in range(len(jobs)):
        checked += _job(certificate, float(jobs.arrive_s[job]), float(jobs.deadline_s[job]), run_s[job])
    checked -= certificate.late_weight * len(jobs) * DEADLINE_GRACE_S
    allowed = TOLERANCE * max(abs(checked), abs(certificate.value))
    valid = certificate.value <= checked + allowed
    return Verdict(valid, checked, certificate.value, "" if valid else "the prices prove less than is claimed")


def _malformed(certificate: Certificate, models: Sequence[GpuModel]) -> str:
    edges, prices = certificate.edges_s, certificate.prices
    if edges.ndim != 1 or edges.size < 2 or prices.shape != (edges.size - 1, len(certificate.kinds)):
        return "edges, kinds and prices do not belong together"
    if edges[0] != 0.0 or not np.all(np.diff(edges) > 0) or np.isfinite(edges[-1]) or not np.isfinite(edges[-2]):
        return "edges must rise from 0 to infinity"
    if not (np.all(prices >= 0) and np.all(np.isfinite(prices))):
        return "prices must be numbers from 0 up"
    if certificate.energy_weight < 0 or certificate.late_weight < 0:
        return "weights must not be negative"
    if any(not 0 <= model < len(models) for model, _ in certificate.kinds):
        return "the certificate is for other GPUs"
    if any(all(p.name != name for p in models[model].profiles) for model, name in certificate.kinds):
        return "the certificate is for other GPUs"
    return ""


def _kinds(
    certificate: Certificate, jobs: Jobs, models: Sequence[GpuModel]
) -> tuple[Floats, list[dict[str, int]], str]:
    """(n_jobs, n_kinds) run times, and which column stands for each profile of each model."""
    run_s = np.full((len(jobs), len(certificate.kinds)), np.inf)
    fits = np.zeros(run_s.shape, dtype=bool)
    for column, (model, name) in enumerate(certificate.kinds):
        profile = models[model].profile(name)
        size = SLICE_SIZES.index(profile.compute)
        fits[:, column] = jobs.memory_gb <= profile.memory_gb
        speed = models[model].speed[size] if certificate.estimated_speed else 1.0
        run_s[:, column] = np.where(fits[:, column], jobs.run_s[:, size] / speed, np.inf)
    kind_of: list[dict[str, int]] = []
    for index, model_of in enumerate(models):
        names: dict[str, int] = {}
        for profile in model_of.profiles:
            own_fits = jobs.memory_gb <= profile.memory_gb
            for column, (model, name) in enumerate(certificate.kinds):
                same_size = model == index and models[model].profile(name).compute == profile.compute
                if same_size and np.array_equal(own_fits, fits[:, column]):
                    names[profile.name] = column
            if profile.name not in names:
                return run_s, kind_of, f"the certificate has no price for {profile.name} of {model_of.id}"
        kind_of.append(names)
    if not np.isfinite(run_s).any(axis=1).all():
        return run_s, kind_of, "a job fits no slice"
    return run_s, kind_of, ""


def _earliest_end_s(
    jobs: Jobs, models: Sequence[GpuModel], gpus: Sequence[GpuModel], certificate: Certificate
) -> float:
    alone_s = np.full(len(jobs), np.inf)
    card_s = np.full(len(jobs), np.inf)
    for model in models:
        for profile in model.profiles:
            size = SLICE_SIZES.index(profile.compute)
            speed = model.speed[size] if certificate.estimated_speed else 1.0
            own_s = np.where(jobs.memory_gb <= profile.memory_gb, jobs.run_s[:, size] / speed, np.inf)
            alone_s = np.minimum(alone_s, own_s)
            card_s = np.minimum(card_s, own_s * profile.compute / model.n_compute)
    return max(float(np.max(jobs.arrive_s + alone_s)), preemptive_makespan_s(jobs.arrive_s, card_s, len(gpus)))


def _cards(
    certificate: Certificate, model: GpuModel, kind_of: dict[str, int], earliest_end_s: float
) -> tuple[float, str]:
    """What one card costs at best, summed over the intervals; or why the last prices are too high."""
    edges, prices = certificate.edges_s, certificate.prices
    starts, lengths = edges[:-1], np.diff(edges)
    # The part of each interval in which an idle card must still be on.
    on_s = np.clip(np.minimum(edges[1:], earliest_end_s) - starts, 0.0, None)
    compute = {profile.name: profile.compute for profile in model.profiles}
    seen = set()
    best = np.full(prices.shape[0], np.inf)
    for layout in placement_sets(model, model.profiles):
        names = tuple(sorted(placement.profile for placement in layout))
        if not names or names in seen:
            continue
        seen.add(names)
        power = certificate.energy_weight * model.power.watts[sum(compute[name] for name in names)]
        best = np.minimum(best, power - prices[:, [kind_of[name] for name in names]].sum(axis=1))
    idle = certificate.energy_weight * model.power.watts[0]
    if best[-1] < -1e-12 * max(idle, float(prices[-1].max())):
        return 0.0, "the prices of the last, open-ended interval are too high"
    with_power = np.minimum(best, idle) * on_s
    # Inside an interval the earliest end may split it; both parts have the same prices.
    without = np.minimum(best, 0.0)[:-1] * (lengths[:-1] - on_s[:-1])
    return float(with_power[:-1].sum() + without.sum()), ""


def _job(certificate: Certificate, arrive_s: float, due_s: float, run_s: Floats) -> float:
    """A lower bound on what one job costs: the least over the intervals it may end in, each at its best y."""
    edges, late = certificate.edges_s, certificate.late_weight
    kinds = np.flatnonzero(np.isfinite(run_s))
    rate = 1.0 / run_s[kinds]
    first = int(np.searchsorted(edges, arrive_s, side="right")) - 1
    n = edges.size - 1
    best = np.inf
    n_seen = 24
    while True:
        last = min(first + n_seen, n)
        ends = np.unique(np.concatenate([edges[first + 1 : last + 1], [due_s] if due_s > arrive_s else []]))
        ends = ends[ends <= edges[last]]
        starts = np.concatenate([[arrive_s], ends[:-1]])
        at = np.searchsorted(edges, starts, side="right") - 1
        costs = _end_costs(certificate.prices[at][:, kinds], rate, starts, ends, due_s, late)
        best = float(np.min(costs))
        # Later ends cost at least their tardiness; before the deadline ending later is never dearer.
        if last == n or (starts[-1] >= due_s and late * (ends[-1] - due_s) >= best):
            return best
        n_seen *= 2


def _end_costs(prices: Floats, rate: Floats, starts: Floats, ends: Floats, due_s: float, late: float) -> Floats:
    """(n_intervals,) least cost of a job that ends in each interval; inf where it cannot."""
    lengths = ends - starts
    candidates = [0.0]
    for extra in (0.0, late):
        for row in prices + extra:
            candidates += _slopes(rate, row)
    if not np.isfinite(ends[-1]):
        # Without end, slice-time that gains the last bit of a rounding error gains without end: stay just below.
        candidates += [slope * (1.0 - 1e-13) for slope in _slopes(rate, prices[-1])]
        candidates += [slope * (1.0 - 1e-13) for slope in _slopes(rate, prices[-1] + late)]
    y = np.unique(np.array(candidates))
    is_late = starts >= due_s
    fixed = np.where(is_late, late * (starts - due_s), 0.0)
    best = np.full(ends.size, -np.inf)
    for part in np.array_split(y, max(1, y.size * ends.size // 200_000)):
        gain = np.max(part[:, None, None] * rate - prices, axis=2).clip(0.0)
        late_gain = np.max(part[:, None, None] * rate - prices - late, axis=2).clip(0.0)
        with np.errstate(invalid="ignore"):
            surplus = np.where(gain > 0.0, gain * lengths, 0.0)
            last = np.where(is_late, np.where(late_gain > 0.0, late_gain * lengths, 0.0), surplus)
        before = np.zeros_like(surplus)
        before[:, 1:] = np.cumsum(surplus[:, :-1], axis=1)
        best = np.maximum(best, np.max(part[:, None] - before - last, axis=0))
    # What cannot be done by the end of an interval at full speed does not end there.
    possible = np.max(rate) * (ends - starts[0]) >= 1.0 - 1e-12
    return np.where(possible, fixed + best, np.inf)


def _slopes(rate: Floats, price: Floats) -> list[float]:
    """Prices of work at which the best slice changes: the slopes of the lower hull of (rate, price) with (0, 0)."""
    order = np.lexsort((price, rate))
    hull = [(0.0, 0.0)]
    for x, z in zip(rate[order].tolist(), price[order].tolist(), strict=True):
        if x <= hull[-1][0]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) >= (z - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, z))
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(hull)]
