"""How much faster a job runs on a larger slice: throughput curves, relative to 1g.

A generator or a trace reader knows one run time of a job and gets those on the other sizes from a curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from smartmig.errors import InputError, UnknownName
from smartmig.types import SLICE_SIZES, Floats
from smartmig.workload.table import Table

SIZE_NAMES = tuple(f"{size}g" for size in SLICE_SIZES)
REQUIRED = ("name", *SIZE_NAMES)
OPTIONAL = ("source",)


@dataclass(frozen=True)
class Curve:
    """Throughput of one kind of job on SLICE_SIZES, as a multiple of its throughput on 1g.

    Where 1g does not fit, the smallest size k that does has speedup k, so that `run on 1g / speedup` stays meaningful.
    """

    name: str
    """what was measured; `train` or `infer` in it tells a job mix which jobs may use it"""
    speedup: tuple[float, ...]
    """one value per size of SLICE_SIZES; nan = does not fit (or was not measured)"""
    source: str
    """who measured it, and on what"""

    def __post_init__(self) -> None:
        if len(self.speedup) != len(SLICE_SIZES):
            raise InputError(
                f"curve '{self.name}': {len(self.speedup)} speedups, but there are {len(SLICE_SIZES)} sizes: "
                f"{', '.join(SIZE_NAMES)}"
            )
        if any(not math.isnan(v) and not 0 < v < math.inf for v in self.speedup):
            raise InputError(f"curve '{self.name}': a speedup is a number above 0 or nan, got {self.speedup}")
        if all(math.isnan(v) for v in self.speedup):
            raise InputError(f"curve '{self.name}': fits no size at all")


LINEAR = Curve("linear", tuple(float(size) for size in SLICE_SIZES), "twice the slices, twice the speed")
CAPPED = Curve("capped", (1.0, 2.0, 3.0, 3.0, 3.0), "arXiv 2606.29775: jobs that stop gaining at 3g")

_PUBLISHED = (
    # arXiv 2606.29775, throughput by slice size as plotted there, divided by the 1g value.
    Curve("bert-train", (1.0, 4.1 / 2.2, 5.8 / 2.2, 7.1 / 2.2, 10.5 / 2.2), "arXiv 2606.29775"),
    Curve("resnet50-train", (1.0, 6 / 3.4, 7.85 / 3.4, 8.4 / 3.4, 9.75 / 3.4), "arXiv 2606.29775"),
    Curve("bert-infer", (1.0, 2.0, 3.0, 4.0, 7.0), "arXiv 2606.29775"),
    Curve("resnet50-infer", (1.0, 2.0, 3.0, 12.5 / 3.2, 18.4 / 3.2), "arXiv 2606.29775"),
    CAPPED,
)


def published_curves(path: Path | None = None) -> tuple[Curve, ...]:
    """The papers' four curves and `capped`; with `path`, the curves of a CSV `name,1g,2g,3g,4g,7g[,source]` instead.

    In the CSV an empty cell means "does not fit". Raises `InputError` with file and line.
    """
    if path is None:
        return _PUBLISHED
    table = Table.read(Path(path), REQUIRED, OPTIONAL)
    names = table.texts("name", allow_empty=False).tolist()
    speedups = np.stack([table.numbers(size, empty=math.nan) for size in SIZE_NAMES], axis=1)
    sources = table.texts("source").tolist() if "source" in table.columns else [str(path)] * len(names)
    curves = []
    for row, (name, values, source) in enumerate(zip(names, speedups.tolist(), sources, strict=True)):
        try:
            curves.append(Curve(name, tuple(values), source))
        except InputError as error:
            raise table.error(row, str(error)) from error
    return tuple(curves)


def curve_named(curve: str | Curve, where: str = "") -> Curve:
    """A published curve or `linear` by its name; a `Curve` is itself. `UnknownName` lists the names."""
    if isinstance(curve, Curve):
        return curve
    known = {c.name: c for c in (*_PUBLISHED, LINEAR)}
    if curve not in known:
        raise UnknownName("curve", curve, known, where)
    return known[curve]


def normalised(name: str, throughput: tuple[float, ...], source: str) -> Curve:
    """A measured curve from throughputs in any unit: divided by that of 1g, or, where 1g is nan, by that of the
    smallest size k that fits over k."""
    for size, value in zip(SLICE_SIZES, throughput, strict=True):
        if not math.isnan(value):
            return Curve(name, tuple(size * v / value for v in throughput), source)
    raise InputError(f"curve '{name}': fits no size at all")


def gaps_filled(curve: Curve) -> Curve:
    """The curve with sizes that were skipped *between* two measured ones set by a straight line over the slice count.

    A job that fits on 3g and 7g also fits on 4g, so a hole there is a missing measurement. Ends stay as they are.
    """
    sizes = np.array(SLICE_SIZES, dtype=np.float64)
    values = np.array(curve.speedup)
    known = ~np.isnan(values)
    filled = np.interp(sizes, sizes[known], values[known], left=math.nan, right=math.nan)
    return replace(curve, speedup=tuple(np.where(known, values, filled).tolist()))


def run_times(run_1g_s: Floats, speedup: Floats) -> Floats:
    """(n, 5) run times from (n,) seconds on 1g and (n, 5) speedups; inf where the speedup is nan."""
    run_s: Floats = run_1g_s[:, None] / speedup
    run_s[np.isnan(run_s)] = np.inf
    return run_s


def sublinearity(run_s: Floats) -> float:
    """How much a set of jobs gains from larger slices, from (n, 5) run times: 1 = linear, 0 = nothing.

    The slope of the least-squares line through the mean throughput curve, over the slope of the linear curve through
    its 1g point (arXiv 2606.29775). A job that does not fit on 1g counts as if its smallest size k had throughput k,
    and a size it does not fit is left out of that size's mean. nan when fewer than two sizes fit any job.
    """
    sizes = np.array(SLICE_SIZES, dtype=np.float64)
    fits = np.isfinite(run_s)
    usable = fits.any(axis=1)
    run_s, fits = run_s[usable], fits[usable]
    if run_s.shape[0] == 0:
        return math.nan
    first = fits.argmax(axis=1)
    rows = np.arange(run_s.shape[0])
    speedup = np.where(fits, (sizes[first] * run_s[rows, first])[:, None] / np.where(fits, run_s, 1.0), 0.0)
    counts = fits.sum(axis=0)
    known = counts > 0
    if known.sum() < 2:
        return math.nan
    x, y = sizes[known], speedup.sum(axis=0)[known] / counts[known]
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    linear_slope = float(y[0] / x[0])
    return slope / linear_slope
