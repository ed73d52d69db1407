"""The one order of jobs: by arrival, then by job id with digits compared as numbers (`job-2` before `job-10`)."""

from __future__ import annotations

import re

import numpy as np

from smartmig.types import Jobs

_DIGITS = re.compile(r"([0-9]+)")


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


def in_order(jobs: Jobs) -> Jobs:
    """The same jobs sorted by (arrival, job id)."""
    order = np.argsort(jobs.arrive_s, kind="stable")
    arrive_s = jobs.arrive_s[order]
    # Only jobs that arrive together need the slow natural comparison.
    starts = np.flatnonzero(np.concatenate(([True], arrive_s[1:] != arrive_s[:-1])))
    ends = np.append(starts[1:], arrive_s.size)
    for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
        group = order[start:end]
        ids = jobs.job_id[group].tolist()
        keys = [natural_key(job_id) for job_id in ids]
        order[start:end] = group[sorted(range(len(ids)), key=keys.__getitem__)]
    return Jobs(
        jobs.job_id[order],
        arrive_s,
        jobs.deadline_s[order],
        jobs.run_s[order],
        jobs.kind[order],
        jobs.memory_gb[order],
    )
