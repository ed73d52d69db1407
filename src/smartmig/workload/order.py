"""The one order of jobs: by arrival, then by job id with digits compared as numbers (`job-2` before `job-10`)."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smartmig.types import Floats, GangJobs, Ints, Jobs

AnyJobs = TypeVar("AnyJobs", Jobs, GangJobs)

_DIGITS = re.compile(r"([0-9]+)")
_LONGEST_INT = 18


def natural_key(job_id: str) -> tuple[object, ...]:
    """Sort key: text and numbers alternate, so like is always compared with like."""
    parts = _DIGITS.split(job_id)
    key: list[object] = []
    for position, part in enumerate(parts):
        if position % 2:
            # Length then digits is the order of the numbers, with no limit on how long they are.
            digits = part.lstrip("0")
            key.append((len(digits), digits))
        else:
            key.append(part)
    # "7" and "007" are the same number: the spelling settles it, or the order would depend on the file's.
    key.append(job_id)
    return tuple(key)


def in_order(jobs: AnyJobs) -> AnyJobs:
    """The same jobs sorted by (arrival, job id)."""
    time_s = jobs.arrive_s if isinstance(jobs, Jobs) else jobs.submit_s
    return taken(jobs, _order(time_s, jobs.job_id))


def taken(jobs: AnyJobs, which: np.ndarray) -> AnyJobs:
    """The jobs at these positions, or where this mask holds."""
    columns = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
    return replace(jobs, **{name: value[which] for name, value in columns.items() if isinstance(value, np.ndarray)})


def _order(time_s: Floats, job_id: NDArray[np.str_]) -> Ints:
    order = np.argsort(time_s, kind="stable")
    sorted_s = time_s[order]
    # Only jobs that arrive together need their ids compared.
    same = sorted_s[1:] == sorted_s[:-1]
    tied = np.flatnonzero(np.concatenate((same, [False])) | np.concatenate(([False], same)))
    if tied.size == 0:
        return order
    rows = order[tied]
    ids = job_id[rows]
    if _are_plain_numbers(ids):
        order[tied] = rows[np.lexsort((ids.astype(np.int64), sorted_s[tied]))]
    else:
        keys = [(s, natural_key(name)) for s, name in zip(sorted_s[tied].tolist(), ids.tolist(), strict=True)]
        order[tied] = rows[sorted(range(tied.size), key=keys.__getitem__)]
    return order


def _are_plain_numbers(ids: NDArray[np.str_]) -> bool:
    """Digits without leading zeros, few enough for an integer: they need no key."""
    if ids.dtype.itemsize // 4 > _LONGEST_INT or not np.strings.isdecimal(ids).all():
        return False
    return bool((ids.astype(np.int64).astype(np.str_) == ids).all())
