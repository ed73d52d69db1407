"""What a scheduler knows of jobs when they are submitted."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class KnownJobs:
    """Columns of the queue, by submission."""

    submit_s: Floats
    limit_s: Floats
    """requested time; inf = none asked for"""
    predicted_s: Floats
    """someone's guess of the run time; the requested one where nobody guessed"""
    n_gpus: Ints
    user: Ints
    """0..n_users - 1"""
    true_s: Floats
    """run times for rules that call themselves oracle; nan for all others"""
