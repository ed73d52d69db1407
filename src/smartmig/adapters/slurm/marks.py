"""What we write on a job, so that the state lives in Slurm and a new daemon finds it there.

The administrator's comment of a job that waits for us is `smartmig held`; of one that we started,
`smartmig start submit=<s> at=<s> on=node1:2,node3:2` (or `on=node8/0@4`: card 0, memory slice 4), then `own=` and the
nodes its owner asked for, if any. The submission tells whether the start belongs to this life of the job: Slurm sets it
anew when a job is queued again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from smartmig.types import Share

HELD = "smartmig held"
HOLDING = "smartmig holding"
"""for the moment that scontrol needs to hold a job: the submit script makes it `smartmig held` then"""
PARKED = "smartmig parked"
"""Slurm does not look at the dependencies of a held job, so one that has some is let go with a start in the far future,
which the daemon moves to now. Followed by the start its owner asked for."""
FAR_S = 4_000_000_000
"""the far future: the year 2096"""
GIVEN_BACK = "smartmig given back"
"""followed by the submission, when, and why: such a job is Slurm's for a moment"""
LET_GO = "smartmig let go"
"""by the kill switch; ours again if we take over"""
USER_HOLD = "[held by its owner]"
"""in the owner's comment: not ours to start"""

_START = re.compile(r"smartmig start submit=(\d+) at=([0-9.]+) on=(\S+?)(?: own=(\S+))?")
_PARKED = re.compile(PARKED + r" begin=(\d+)")
_GIVEN = re.compile(GIVEN_BACK + r" submit=(\d+) at=([0-9.]+)")
_SHARE = re.compile(r"([^:/]+)(?::(\d+)|/(\d+)@(\d+))")


@dataclass(frozen=True)
class StartMark:
    """A start of ours."""

    submit_s: int
    at_s: float
    shares: tuple[Share, ...]
    own: tuple[str, ...] = ()
    """nodes its owner asked for"""


def write_start(submit_s: int, at_s: float, shares: tuple[Share, ...], own: tuple[str, ...] = ()) -> str:
    on = ",".join(
        f"{share.node}:{share.n_gpus}" if share.n_gpus else f"{share.node}/{share.gpu}@{share.start}"
        for share in shares
    )
    asked = f" own={','.join(own)}" if own else ""
    return f"smartmig start submit={submit_s} at={at_s:.3f} on={on}{asked}"


def read_start(comment: str) -> StartMark | None:
    found = _START.fullmatch(comment)
    if found is None:
        return None
    shares = []
    for word in found[3].split(","):
        part = _SHARE.fullmatch(word)
        if part is None:
            return None
        if part[2] is not None:
            shares.append(Share(part[1], int(part[2])))
        else:
            shares.append(Share(part[1], 0, int(part[3]), int(part[4])))
    return StartMark(int(found[1]), float(found[2]), tuple(shares), tuple(found[4].split(",")) if found[4] else ())


def write_parked(begin_s: int) -> str:
    return f"{PARKED} begin={begin_s}"


def read_parked(comment: str) -> int | None:
    """The start its owner asked for (0 = none) of a job that we parked."""
    found = _PARKED.fullmatch(comment)
    return int(found[1]) if found else None


def write_given_back(submit_s: int, at_s: float, why: str) -> str:
    return f"{GIVEN_BACK} submit={submit_s} at={at_s:.3f}: {why}"


def read_given_back(comment: str, submit_s: int) -> float | None:
    """When we gave the job back, if that was in this life of it."""
    found = _GIVEN.match(comment)
    return float(found[2]) if found is not None and int(found[1]) == submit_s else None


def is_hold(comment: str, submit_s: int) -> bool:
    """Whether we hold a job that has this mark and is held. Any other mark was there before: Slurm, or somebody with
    `scontrol requeuehold`, held a job that we had started once, or let go."""
    start = read_start(comment)
    held = comment in (HELD, HOLDING) or read_parked(comment) is not None
    # scontrol marks a job before it releases it.
    return held or (start is not None and start.submit_s == submit_s)


def may_come_first(mark: str) -> bool:
    """Whether a job that is not released after all, though it has this mark already, still counts as held by us."""
    return read_start(mark) is not None or read_parked(mark) is not None


def is_ours(comment: str) -> bool:
    return comment.startswith("smartmig ")
