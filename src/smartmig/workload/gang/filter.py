"""Which jobs of a trace to use: by size, date and group; and how to cut it into periods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from smartmig.errors import InputError, UnknownName
from smartmig.types import GangJobs
from smartmig.workload.gang.trace import DAY_S
from smartmig.workload.order import taken
from smartmig.workload.summary import counted
from smartmig.workload.trace_report import RowFilter

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_GROUPS_SHOWN = 30


@dataclass(frozen=True)
class GangFilter:
    """What a job must be to be used; the defaults keep all."""

    max_gpus: int = 0
    """Leave out jobs with more GPUs; 0 keeps all."""
    since: str = field(default="", metadata={"flag": ("--from",)})
    """First day of submission, e.g. 2020-04-01 (UTC)."""
    before: str = field(default="", metadata={"flag": ("--to",)})
    """The day after the last, e.g. 2020-09-01 (UTC)."""
    group: tuple[str, ...] = ()
    """Only this group: partition, account or virtual cluster. Repeat for more."""
    without_group: tuple[str, ...] = ()
    """Leave out this group. Repeat for more."""

    def __post_init__(self) -> None:
        if self.max_gpus < 0:
            raise InputError(f"max_gpus: got {self.max_gpus}, allowed is a whole number from 0 up")
        days = [date_s(text, flag) for flag, text in (("--from", self.since), ("--to", self.before)) if text]
        if len(days) == 2 and days[0] >= days[1]:
            raise InputError(f"--to: got {self.before}, which is not after --from {self.since}")

    def apply(self, jobs: GangJobs) -> tuple[GangJobs, dict[str, int]]:
        """The jobs that pass, and reason -> how many did not.

        When some do not, time 0 moves by whole days to the day of the first that does. Raises `InputError` when none
        is left, and for a group that no job has.
        """
        for name, wanted in (("group", self.group), ("without_group", self.without_group)):
            _check_groups(jobs, name, wanted)
        rows = RowFilter(np.ones(len(jobs), dtype=bool))
        if self.max_gpus:
            rows.drop(jobs.n_gpus > self.max_gpus, f"more than {self.max_gpus} GPUs")
        if self.since:
            rows.drop(jobs.submit_s < date_s(self.since, "--from") - jobs.origin_s, f"before {self.since}")
        if self.before:
            end_s = date_s(self.before, "--to") - jobs.origin_s
            rows.drop(jobs.submit_s >= end_s, f"from {self.before} on")
        if self.group:
            rows.drop(~np.isin(jobs.group, self.group), f"not in group {' or '.join(self.group)}")
        if self.without_group:
            rows.drop(np.isin(jobs.group, self.without_group), f"in group {' or '.join(self.without_group)}")
        rows.require_some("filters")
        return (from_first_day(taken(jobs, rows.keep)) if rows.skipped else jobs), rows.skipped


def split_by_date(jobs: GangJobs, dates: Sequence[str]) -> list[GangJobs]:
    """The jobs before the first date, from it to the next, and so on; together they are all the jobs.

    In each part time 0 moves by whole days to the day of its first job. Raises `InputError` for dates that do not rise,
    or that leave a part empty.
    """
    starts_s = [date_s(date, "at") for date in dates]
    for (one, one_s), (other, other_s) in pairwise(zip(dates, starts_s, strict=True)):
        if other_s <= one_s:
            raise InputError(f"at: got {one} and then {other}, allowed are dates that rise")
    part = np.searchsorted(np.array(starts_s) - jobs.origin_s, jobs.submit_s, side="right")
    n_jobs = np.bincount(part, minlength=len(dates) + 1)
    if not n_jobs.all():
        empty = int(n_jobs.argmin())
        place = f"before {dates[0]}" if empty == 0 else f"from {dates[empty - 1]} on"
        until = f" until {dates[empty]}" if 0 < empty < len(dates) else ""
        raise InputError(
            f"at: no job was submitted {place}{until}; the trace is from {date_of(jobs, 0)} to {date_of(jobs, -1)}"
        )
    return [from_first_day(taken(jobs, part == at)) for at in range(len(dates) + 1)]


def from_first_day(jobs: GangJobs) -> GangJobs:
    """The same jobs, with time 0 moved by whole days to the day of the first."""
    shift_s = float(jobs.submit_s[0] // DAY_S * DAY_S)
    return replace(jobs, submit_s=jobs.submit_s - shift_s, origin_s=jobs.origin_s + shift_s)


def date_s(text: str, where: str) -> float:
    """`2020-04-01` as seconds from 1970 to its first moment (UTC). Raises `InputError` that names `where`."""
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{where}: got '{text}', allowed is a date like 2020-04-01") from None


def date_of(jobs: GangJobs, at: int) -> str:
    """The day (UTC) on which a job was submitted."""
    moment = np.datetime64(int(jobs.origin_s + jobs.submit_s[at]), "s")
    return str(moment.astype("M8[D]"))


def _check_groups(jobs: GangJobs, where: str, wanted: Iterable[str]) -> None:
    known = counted(jobs.group)
    for group in wanted:
        if group not in known:
            raise UnknownName("group", group, list(known)[:_GROUPS_SHOWN], where)
