"""A day of jobs whose arrival rate follows the hour, as in arXiv 2606.29775."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.errors import InputError
from smartmig.types import Jobs
from smartmig.workload.mix import MINUTE_S, JobMix, check_job_count, require_positive

HOUR_S = 60 * MINUTE_S

# arXiv 2606.29775, arrivals per minute in each hour of the day, before the multiplier.
HOURLY_RATE_PER_MIN = (
    *(0.111, 0.083, 0.085, 0.100, 0.137, 0.169, 0.171, 0.169, 0.179, 0.191, 0.201, 0.188),
    *(0.170, 0.177, 0.168, 0.171, 0.163, 0.138, 0.120, 0.111, 0.129, 0.116, 0.106, 0.104),
)


@dataclass(frozen=True)
class DiurnalDay(JobMix):
    """Poisson arrivals with a rate per hour of the day; about 4,150 jobs a day at the default multiplier."""

    multiplier: float = 20.0
    """times the hourly base rate; 20 loads eight GPUs"""
    hourly_rate_per_min: tuple[float, ...] = HOURLY_RATE_PER_MIN
    """base arrivals per minute in each of the 24 hours"""
    days: int = 1
    """how many such days follow each other"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("multiplier", self.multiplier)
        if len(self.hourly_rate_per_min) != 24:
            raise InputError(f"hourly_rate_per_min: got {len(self.hourly_rate_per_min)} numbers, a day has 24 hours")
        if not all(0 <= rate < float("inf") for rate in self.hourly_rate_per_min):
            raise InputError("hourly_rate_per_min: a rate is a number from 0 up")
        if self.days < 1:
            raise InputError(f"days: got {self.days}, allowed is 1 or more")
        n_jobs = sum(self.hourly_rate_per_min) * (HOUR_S / MINUTE_S) * self.multiplier * self.days
        check_job_count("multiplier and days", n_jobs)

    def jobs(self, seed: int) -> Jobs:
        """The jobs of the days; `seed` alone fixes them.

        Draws (PCG64): the count of every hour, the moment of every job within its hour, then `JobMix.bodies`.
        """
        rng = np.random.Generator(np.random.PCG64(seed))
        rate_per_hour = np.tile(np.array(self.hourly_rate_per_min), self.days) * self.multiplier * (HOUR_S / MINUTE_S)
        counts = rng.poisson(rate_per_hour)
        hour = np.repeat(np.arange(counts.size), counts)
        # Given its count, a Poisson process is uniform within the hour.
        arrive_s = np.sort((hour + rng.random(hour.size)) * HOUR_S)
        return self.bodies(rng, arrive_s)
