"""From rows of measurements (one size each) to curves (all sizes); shared by the readers of measured throughput."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from smartmig.errors import InputError
from smartmig.types import SLICE_SIZES, Floats
from smartmig.workload.curves import Curve, gaps_filled, normalised
from smartmig.workload.table import Table

_SIZE = re.compile(r"([0-9]+)(g\.[0-9]+gb)?")


def sizes_of(table: Table, column: str) -> list[int]:
    """Slice sizes from numbers of compute slices (`3`) or NVIDIA's profile names (`3g.40gb`)."""
    sizes = []
    for row, cell in enumerate(table.texts(column).tolist()):
        found = _SIZE.fullmatch(cell.strip())
        if found is None or int(found[1]) not in SLICE_SIZES:
            known = ", ".join(map(str, SLICE_SIZES))
            raise table.error(row, f"{column} is {cell[:40]!r}; a size is one of {known}, or a profile like 1g.10gb")
        sizes.append(int(found[1]))
    return sizes


def curves_of(
    table: Table, names: Sequence[str], sizes: Sequence[int], throughput: Floats, source: str, fill_gaps: bool
) -> tuple[Curve, ...]:
    """One curve per name, in the order of the file; throughput 0 = did not fit, and a repeated row keeps the best.

    A name that fits no size has no curve. Values stay as measured, also where a larger slice was slower.
    """
    measured: dict[str, list[float]] = {}
    for name, size, value in zip(names, sizes, throughput.tolist(), strict=True):
        row = measured.setdefault(name, [math.nan] * len(SLICE_SIZES))
        at = SLICE_SIZES.index(size)
        if value > 0 and not value <= row[at]:
            row[at] = value
    curves = [
        normalised(name, tuple(values), source)
        for name, values in measured.items()
        if not all(math.isnan(value) for value in values)
    ]
    if not curves:
        raise InputError(f"{table.path}: no measurement fits any size")
    return tuple(gaps_filled(curve) for curve in curves) if fill_gaps else tuple(curves)
