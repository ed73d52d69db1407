"""The one order of jobs: by arrival, then by job id with digits compared as numbers (`job-2` before `job-10`)."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smartmig.types import Floats, GangJobs, Ints, Jobs

AnyJobs = TypeVar("AnyJobs", Jobs, GangJobs)

_DIGITS = re.compile(r"[0-9]+")


def natural_key(job_id: str) -> tuple[str, str]:
    """Sort key: each number becomes its length and its digits, behind a mark that comes before every letter."""
    # "7" and "007" are the same number: the spelling settles it, or the order would depend on the file's.
    return _DIGITS.sub(_sortable, job_id), job_id


def _sortable(number: re.Match[str]) -> str:
    digits = number[0].lstrip("0")
    return f"\0{chr(len(digits))}{digits}"


def in_order(jobs: AnyJobs) -> AnyJobs:
    """The same jobs sorted by (arrival, job id)."""
    time_s = jobs.arrive_s if isinstance(jobs, Jobs) else jobs.submit_s
    order = _order(time_s, jobs.job_id)
    return jobs if (order == np.arange(order.size)).all() else taken(jobs, order)


def taken(jobs: AnyJobs, which: np.ndarray) -> AnyJobs:
    """The jobs at these positions, or where this mask holds."""
    columns = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
    return replace(jobs, **{name: value[which] for name, value in columns.items() if isinstance(value, np.ndarray)})


def _order(time_s: Floats, job_id: NDArray[np.str_]) -> Ints:
    order = np.argsort(time_s, kind="stable")
    sorted_s = time_s[order]
    together = sorted_s[1:] == sorted_s[:-1]
    rise = _plainly_rise(job_id[order[:-1][together]], job_id[order[1:][together]])
    if rise.all():
        return order
    # Only where the file does not have them in order already are the keys of jobs that arrive together compared.
    moment = np.concatenate(([0], np.cumsum(~together)))
    tied = np.flatnonzero(np.isin(moment, moment[1:][together][~rise]))
    ids = job_id[order[tied]].tolist()
    keys = [(at, natural_key(name)) for at, name in zip(moment[tied].tolist(), ids, strict=True)]
    order[tied] = order[tied][sorted(range(tied.size), key=keys.__getitem__)]
    return order


def _plainly_rise(one: NDArray[np.str_], other: NDArray[np.str_]) -> np.ndarray:
    """Where the ids have their digits in the same places, so that the letters settle it, and `one` comes first."""
    alike: np.ndarray = (_digit_places(one) == _digit_places(other)).all(axis=1)
    return alike & (one < other)


def _digit_places(ids: NDArray[np.str_]) -> np.ndarray:
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(ids.size, ids.dtype.itemsize // 4)
    return (letters >= ord("0")) & (letters <= ord("9"))
