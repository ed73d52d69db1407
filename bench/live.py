"""What a live decision costs, from a cluster's state to a guarded plan, and how fast the journal takes records.

Each decision is timed several times and its fastest counts, because noise only ever adds; the value is the 99th
percentile over decisions.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.measure import Outcome
from smartmig.adapters.simulated import SimulatedCluster, connect, gang_arrivals, mig_arrivals, mig_nodes, whole_nodes
from smartmig.adapters.simulated.feed import made_up_gangs
from smartmig.cli.live_policy import FALLBACK, PolicyNames
from smartmig.control.guard import GuardRules
from smartmig.control.journal import Journal
from smartmig.control.pilot import Pilot
from smartmig.types import Floats, Start
from smartmig.workload.diurnal import DiurnalDay

N_DECISIONS = 1200
REPEATS = 7
BURST = 2000


def decision_seconds(cluster: SimulatedCluster, names: PolicyNames, worlds: tuple[str, ...]) -> tuple[Floats, int, int]:
    """Fastest time of every decision while the cluster is run by them; starts made, and the longest queue."""
    source, actuator, _ = connect(cluster, 0)
    actuator.take_over(1)
    pilot = Pilot(names.policy(worlds), FALLBACK.policy(worlds), GuardRules())
    took = np.empty((N_DECISIONS, REPEATS))
    n_starts = longest = 0
    for at in range(N_DECISIONS):
        assert source.wait(math.inf)
        state = source.observe(1)
        longest = max(longest, len(state.queued))
        memory, guard_memory = pilot.memory, pilot.guard_memory
        plans = []
        for repeat in range(REPEATS):
            pilot.memory, pilot.guard_memory = memory, guard_memory
            began = time.perf_counter()
            judged = pilot.decide(state)
            took[at, repeat] = time.perf_counter() - began
            plans.append(judged.plan)
        assert all(plan == plans[0] for plan in plans)
        assert not judged.fallback
        pilot.handed_over(state, judged.plan)
        assert all(outcome.done for outcome in actuator.apply(judged.plan, 1))
        n_starts += sum(isinstance(action, Start) for action in judged.plan)
    return took[20:].min(axis=1), n_starts, longest


def whole_gpus() -> Outcome:
    """A burst of 2,000 jobs on eight nodes of eight GPUs, EASY backfill."""
    jobs = made_up_gangs(64, 8, 3.0, seed=1)
    chosen = np.arange(min(BURST, len(jobs)))
    burst = type(jobs)(
        **{name: (column[chosen] if isinstance(column, np.ndarray) else column) for name, column in vars(jobs).items()}
        | {"submit_s": np.zeros(chosen.size)}
    )
    cluster = SimulatedCluster(whole_nodes("8x8"), gang_arrivals(burst))
    took, n_starts, longest = decision_seconds(cluster, PolicyNames(), ("gang",))
    detail = f"median {np.median(took) * 1e3:.2f} ms, queue up to {longest}, {n_starts} starts"
    return Outcome(float(np.quantile(took, 0.99)) * 1e3, "ms p99", detail, at_most=1.0)


def slices() -> Outcome:
    """A day of MIG jobs on eight cards that a learned policy re-cuts."""
    cluster = SimulatedCluster(mig_nodes("8xa100-40gb"), mig_arrivals(DiurnalDay().jobs(0)))
    names = PolicyNames(placement="shortest-work", repartition="mean-field")
    took, n_starts, longest = decision_seconds(cluster, names, ("mig",))
    detail = f"median {np.median(took) * 1e3:.2f} ms, queue up to {longest}, {n_starts} starts"
    return Outcome(float(np.quantile(took, 0.99)) * 1e3, "ms p99", detail, at_most=1.0)


def journal_rate() -> Outcome:
    """Records on disk per second, handed over one by one as the loop does."""
    n_records = 20_000
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(str(Path(folder) / "journal.db"))
        began = time.perf_counter()
        for at in range(n_records):
            journal.append("audit", float(at), {"who": "bench", "what": "a record of usual length", "n": at})
        journal.sync(300)
        took = time.perf_counter() - began
        assert sum(1 for _ in journal.reader.records()) == n_records
        journal.close()
    return Outcome(n_records / took, "records/s", f"{n_records} records", at_least=2000)


BENCHMARKS = {"live-decision": whole_gpus, "live-decision-mig": slices, "live-journal": journal_rate}
