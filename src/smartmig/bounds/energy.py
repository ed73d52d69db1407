"""S3's lower bound on energy.

Linearise every job (p_k := p_1 / k) and give it whole GPUs: no schedule does the work with less active energy, because
throughput is sublinear and power concave; and no schedule ends before the minimum preemptive makespan C*, so idle power
is paid at least until then:  E >= sum(p_1 / 7) P_7 + P_0 (m C* - sum(p_1 / 7)).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smartmig.errors import InputError
from smartmig.hardware.model import GpuModel
from smartmig.jit import kernel
from smartmig.types import SLICE_SIZES, Floats, Jobs


def paper_energy_bound_j(jobs: Jobs, gpus: Sequence[GpuModel]) -> float:
    """Joules; raises `InputError` for a mixed cluster, for which the formula has no one P_7."""
    if len(set(gpus)) != 1:
        raise InputError("S3's energy bound is for clusters of one GPU model")
    watts = gpus[0].power.watts
    # A job that does not fit 1g is linearised from its cheapest size: least k p_k over the sizes it fits.
    work_s = np.min(jobs.run_s * np.array(SLICE_SIZES), axis=1) / gpus[0].n_compute
    total_s = float(work_s.sum())
    makespan_s = preemptive_makespan_s(jobs.arrive_s, work_s, len(gpus))
    return total_s * watts[-1] + watts[0] * (len(gpus) * makespan_s - total_s)


def preemptive_makespan_s(arrive_s: Floats, work_s: Floats, n_machines: int) -> float:
    """Least time by which identical machines can do all jobs, one machine per job at a time, preemption free.

    The machines always serve the jobs with most work left, equals sharing (Horn's level algorithm, optimal for release
    dates): whatever is left at the end is then as even as it can be.
    """
    order = np.argsort(arrive_s, kind="stable")
    return float(_level_makespan_s(arrive_s[order], work_s[order], n_machines, np.zeros(arrive_s.size)))


@kernel
def _level_makespan_s(arrive_s: Floats, work_s: Floats, n_machines: int, left: Floats) -> float:
    # `left[:n]` is the work left of the jobs in the system, largest first.
    now_s = 0.0
    n = 0
    arrived = 0
    while arrived < arrive_s.size or n > 0:
        next_s = arrive_s[arrived] if arrived < arrive_s.size else np.inf
        if n == 0:
            now_s = max(now_s, next_s)
        while n > 0 and now_s < next_s:
            # The largest jobs run at full speed; the group of equals at the border shares what machines remain.
            level = left[min(n_machines, n) - 1]
            first = 0
            while first < n and left[first] > level:
                first += 1
            last = first
            while last < n and left[last] >= level:
                last += 1
            rate = min(1.0, (n_machines - first) / (last - first))
            # Until the next arrival, the group is done, a faster job sinks to the group, or the group to a slower one.
            step_s = min(next_s - now_s, level / rate)
            if first > 0 and rate < 1.0:
                step_s = min(step_s, (left[first - 1] - level) / (1.0 - rate))
            if last < n:
                step_s = min(step_s, (level - left[last]) / rate)
            for job in range(first):
                left[job] -= step_s
            # Equals stay equal to the last bit, and who catches up becomes one of them.
            level = max(0.0, level - rate * step_s)
            if last < n and level - left[last] <= 1e-12 * max(1.0, left[last]):
                level = left[last]
            for job in range(first, last):
                left[job] = level
            for job in range(first):
                if left[job] - level <= 1e-12 * max(1.0, level):
                    left[job] = level
            now_s += step_s
            while n > 0 and left[n - 1] <= 0.0:
                n -= 1
        while arrived < arrive_s.size and arrive_s[arrived] <= now_s:
            at = n
            while at > 0 and left[at - 1] < work_s[arrived]:
                left[at] = left[at - 1]
                at -= 1
            left[at] = work_s[arrived]
            arrived += 1
            n += 1
    return now_s
