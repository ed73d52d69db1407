"""A placement rule of one's own: the tightest slice.

A job gets the slowest free slice that still meets its deadline, so fast slices stay free for jobs in a hurry. A job
that is late wherever it goes gets the fastest one.

A rule is a frozen dataclass of knobs with two halves. The compiled half, `kernels`, is what the engine runs; the plain
half says the same in ordinary Python, and the reference simulator runs that. Here both run, and must agree.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.jit import kernel, lowest_bit
from smartmig.metrics.summary import summarise
from smartmig.policy.placement.largest_first import LargestFirst
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.repartition.static import Static
from smartmig.policy.view import SLOTS, JobArrays, State, World, free_bits, time_on
from smartmig.sim.mig.reference import simulate_plainly
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.workload.poisson import FixedRate


@kernel
def choose(world: World, jobs: JobArrays, state: State, job: int) -> int:
    """A free slot that fits the job, or -1 to let it wait."""
    time_left_s = jobs.spec[job].deadline_s - world.knobs[0] - state.now[0].time_s
    best_slot = -1
    best = np.inf
    for gpu in range(world.n_gpus):
        bits = free_bits(state, gpu)
        while bits != 0:
            slot = gpu * SLOTS + lowest_bit(bits)
            bits &= bits - 1
            slice_class = state.slot[slot].slice_class
            if not jobs.spec[job].fits >> slice_class & 1:
                continue
            spare_s = time_left_s - time_on(jobs, state, job, slice_class)
            # In time: the less to spare the better. Late: the less late the better, and worse than any in time.
            cost = spare_s if spare_s >= 0 else 1e9 - spare_s
            if cost < best:
                best = cost
                best_slot = slot
    return best_slot


@dataclass(frozen=True)
class TightestSlice(EarliestDeadlineFirst):
    """The slowest free slice that meets the deadline, else the fastest; jobs by deadline."""

    margin_s: float = 0.0
    """how long before its deadline a job should be done"""

    kernels: ClassVar[Kernels] = Kernels(key=by_deadline, choose=choose)

    def knobs(self, world: World) -> tuple[float, ...]:  # noqa: ARG002
        return (self.margin_s,)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        def cost(piece: PlainSlice) -> float:
            spare_s = float(view.deadline_s[job]) - self.margin_s - view.now_s - view.time_on(job, piece)
            return spare_s if spare_s >= 0 else 1e9 - spare_s

        return min(view.free(job), key=lambda piece: (cost(piece), piece.slot), default=None)


gpus = parse_gpus("4xa100-40gb")
cluster = Cluster(gpus, parse_layouts("4x4g+2g+1g", gpus))
jobs = FixedRate(n_jobs=300, rate_per_min=1.0, deadline=(2.0, 4.0)).jobs(seed=1)
settings = Settings(preempt=False)

for placement in (LargestFirst(), TightestSlice(), TightestSlice(margin_s=30.0)):
    run = simulate(jobs, cluster, Policy(placement, Static()), settings)
    cost = summarise(jobs, run, sum(gpu.n_compute for gpu in gpus))
    print(
        f"{placement!s:30} {cost.energy_kwh:5.2f} kWh, {cost.mean_tardiness_s:5.1f} s mean tardiness, "
        f"{100 * cost.late_frac:4.1f} % late"
    )

# The check every rule must pass: both halves make the same choices.
few = FixedRate(n_jobs=60, rate_per_min=2.0).jobs(seed=2)
policy = Policy(TightestSlice(), Static())
fast, plain = simulate(few, cluster, policy, settings), simulate_plainly(few, cluster, policy, settings)
print(f"compiled and plain agree: {np.allclose(fast.finish_s, plain.finish_s)}")
