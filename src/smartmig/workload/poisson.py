"""Jobs at a constant rate, as in the fixed-rate runs of arXiv 2606.29775."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.errors import InputError
from smartmig.types import Jobs
from smartmig.workload.mix import MINUTE_S, JobMix, check_job_count, require_positive


@dataclass(frozen=True)
class FixedRate(JobMix):
    """Poisson arrivals with one rate, until there are `n_jobs`."""

    n_jobs: int = 1000
    """how many jobs arrive"""
    rate_per_min: float = 1.0
    """mean arrivals per minute"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_jobs < 1:
            raise InputError(f"n_jobs: got {self.n_jobs}, allowed is 1 or more")
        check_job_count("n_jobs", self.n_jobs)
        require_positive("rate_per_min", self.rate_per_min)

    def jobs(self, seed: int) -> Jobs:
        """The jobs; `seed` alone fixes them. Draws (PCG64): the gaps between arrivals, then `JobMix.bodies`."""
        rng = np.random.Generator(np.random.PCG64(seed))
        arrive_s = np.cumsum(rng.standard_exponential(self.n_jobs) * (MINUTE_S / self.rate_per_min))
        return self.bodies(rng, arrive_s)
