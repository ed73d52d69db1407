"""Learning what to expect of run times, from the training part of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smartmig.policy import gang_encoding
from smartmig.policy.policy_file import RUN_TIMES, About, PolicyFile, write_policy
from smartmig.policy.run_times import RunTimes, fit_run_times
from smartmig.types import GangJobs


def fit_jobs(jobs: Sequence[GangJobs]) -> RunTimes:
    """Over several draws of made-up requests."""
    limit_s, n_gpus, run_s = (
        np.concatenate([getattr(one, name) for one in jobs]) for name in ("limit_s", "n_gpus", "run_s")
    )
    return fit_run_times(limit_s, n_gpus, run_s)


def write_run_times(path: Path, times: RunTimes, command: str) -> None:
    about = About(
        kind=RUN_TIMES,
        encoding=gang_encoding.VERSION,
        gpus=(),
        placement="",
        preempt=False,
        drain=False,
        command=command,
    )
    write_policy(path, PolicyFile(about, times.vector()))
