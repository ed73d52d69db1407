"""A first simulation: the same jobs under two policies.

Run it with `python examples/first_simulation.py`; the first run compiles the two policies, which takes a while.
"""

from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.metrics.objective import minutes
from smartmig.metrics.summary import summarise
from smartmig.policy.placement.categorical_edf import CategoricalEdf
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.workload.poisson import FixedRate

# What arrives: 300 jobs, two a minute. The seed fixes every random number.
jobs = FixedRate(n_jobs=300, rate_per_min=2.0).jobs(seed=1)
print(f"{len(jobs)} jobs, the last one arrives after {jobs.arrive_s[-1] / 3600:.1f} h")
print(f"job {jobs.job_id[0]} is {jobs.kind[0]}: {jobs.run_s[0, 0]:.0f} s on 1g, {jobs.run_s[0, 4]:.0f} s on 7g")
print()

# What exists: four A100, each cut into 4g+2g+1g for the policy that never re-cuts. A policy that re-cuts begins with
# whole GPUs.
gpus = parse_gpus("4xa100-40gb")
fixed = Cluster(gpus, parse_layouts("4x4g+2g+1g", gpus))
free = Cluster(gpus)

# Who decides: which slice a job gets (placement), and how the GPUs are cut (repartition).
choices = {
    "static cut": (fixed, Policy(CategoricalEdf(), Static())),
    "slice count": (free, Policy(CategoricalEdf(), SliceCount())),
}

n_compute_slices = sum(gpu.n_compute for gpu in gpus)
print(f"{'':12} {'energy':>10} {'tardiness':>10} {'late':>7} {'ET':>7} {'re-cuts':>8}")
for name, (cluster, policy) in choices.items():
    run = simulate(jobs, cluster, policy, Settings(preempt=True))
    cost = summarise(jobs, run, n_compute_slices)
    print(
        f"{name:12} {cost.energy_kwh:6.2f} kWh {minutes(cost.mean_tardiness_s):6.2f} min "
        f"{100 * cost.late_frac:5.1f} % {cost.et:7.3f} {cost.n_repartitions:8d}"
    )
