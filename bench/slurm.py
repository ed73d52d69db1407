"""smartmig in charge of a real Slurm: a controller and eight node daemons on this machine, with fake GPUs.

`python -m bench.slurm [--json] [NAME ...]`; needs root and the packages that `tests/e2e/slurm_rig.py` names. Times come
from the controller's own log (milliseconds), from the jobs themselves, and from smartmig's journal.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from slurm_rig import PARTITION, RigSpec, SlurmRig, missing
from slurm_site import Site, slurm_site

from bench.measure import Outcome
from bench.meter import Meter
from bench.slurm_burst import burst
from bench.slurm_log import Row, clock_row, controller_log, decision_row, journal, submit, warm
from smartmig.adapters.slurm import Slurm
from smartmig.adapters.slurm.libslurm import LibSlurm, load_shim
from smartmig.adapters.slurm.paths import Installed
from smartmig.types import Share, Start

TUNED = "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,default_queue_depth=10000"


def release_ms(kick: bool, n_jobs: int) -> np.ndarray:
    """From before the call that starts a job to the first answer of Slurm that says RUNNING."""
    with SlurmRig() as rig:
        site = Site(rig)
        site.install() if kick else site.install("--no-kick")
        connection = Slurm(partition=PARTITION, config=str(rig.etc)).open()
        paths = Installed.find(str(rig.etc))
        probe = LibSlurm(load_shim(paths.shim, paths.conf), "probe")
        took, rng = [], random.Random(0)
        try:
            connection.actuator.take_over(10)
            for at in range(n_jobs + 1):
                (job,) = submit(rig, ["--gres=gpu:1 @"], "#!/bin/sh\nsleep 0.2\n")
                time.sleep(rng.random())  # at no particular moment of Slurm's own beat
                request = connection.source.observe(10).queued[-1]
                begun_s = time.perf_counter()
                (outcome,) = connection.actuator.apply((Start(request.key, (Share(f"node{1 + at % 7}", 1),)),), 10)
                assert outcome.done, outcome.why
                while probe.job(job, 10)[0].base_state == "PENDING":
                    time.sleep(0.0005)
                took.append(1e3 * (time.perf_counter() - begun_s))
        finally:
            connection.actuator.let_go(10)
            connection.actuator.close()
            connection.source.close()
    return np.array(took[1:])


def latency(kick: bool) -> Row:
    took = release_ms(kick, 40)
    limit = 20.0 if kick else 1000.0
    p50 = float(np.median(took))
    detail = f"{took.size} jobs, p90 {np.quantile(took, 0.9):.1f} ms, max {took.max():.1f} ms"
    name = "release to RUNNING, p50" + ("" if kick else ", without the kick")
    return Row(name, p50, "ms", f"<= {limit:g}", p50 <= limit, detail)


def starts_per_s(rig: SlurmRig, n_jobs: int) -> tuple[float, int]:
    """(over all of the last `n_jobs` starts, in the best second)."""
    times = np.sort([at_s for _, _, at_s in controller_log(rig)[1]])[-n_jobs:]
    best = max(np.searchsorted(times, at_s + 1.0) - at for at, at_s in enumerate(times))
    return n_jobs / float(times[-1] - times[0]), int(best)


def prefer_controller(rig: SlurmRig) -> None:
    """A controller has a machine of its own; here it stands beside all that it launches."""
    for name in ("slurmctld", "munged"):
        for thread in Path(f"/proc/{rig.pid(name)}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -10)


N_OURS = 1000
N_ROUNDS = 3
N_OWN = 300
"""Jobs that Slurm's own schedulers are given: submitting takes longer than starting."""


@dataclass(frozen=True)
class Flow:
    """How fast jobs were started."""

    per_s: float
    """RUNNING, by the controller's log"""
    best: int
    """in the best second"""
    cpu_ms: tuple[float, ...]
    """processor time of a job: controller (with munge), nodes (with the jobs), smartmig"""

    def __str__(self) -> str:
        parts = zip(("slurmctld", "nodes", "smartmig"), self.cpu_ms, strict=False)
        return (
            f"{self.per_s:.0f} /s (best second {self.best}; " + ", ".join(f"{n} {ms:.1f} ms" for n, ms in parts) + ")"
        )


class Meters:
    """Processor time of a rig and of a daemon from now on."""

    def __init__(self, rig: SlurmRig) -> None:
        controller = Meter([rig.pid("slurmctld"), rig.pid("munged")])
        self._meters = [controller, Meter([rig.pid(f"slurmd-{name}") for name in rig.nodes])]
        self.begin()

    def add(self, daemon: subprocess.Popen[bytes] | None) -> None:
        assert daemon is not None
        self._meters.append(Meter([daemon.pid]))

    def begin(self) -> None:
        self._begun = [meter.cpu_s() for meter in self._meters]

    def ms_each(self, n_jobs: int) -> tuple[float, ...]:
        """For each of so many jobs; ends the count."""
        used = [meter.cpu_s() - begun_s for meter, begun_s in zip(self._meters, self._begun, strict=True)]
        for meter in self._meters:
            meter.close()
        return tuple(1e3 * cpu_s / n_jobs for cpu_s in used)


def own_flow(spec: RigSpec, n_jobs: int) -> Flow:
    """Slurm's own scheduler."""
    with SlurmRig(spec) as rig:
        prefer_controller(rig)
        return flow_of(rig, n_jobs)


def flow_of(rig: SlurmRig, n_jobs: int) -> Flow:
    """Slurm's own scheduler on a queue that is let go all at once."""
    already = len(controller_log(rig)[1])
    jobs = submit(rig, ["--hold --gres=gpu:1 @"] * n_jobs, "#!/bin/true\n")
    meters = Meters(rig)
    for at in range(0, n_jobs, 100):
        rig.scontrol("release", ",".join(map(str, jobs[at : at + 100])))
    rig.wait(lambda: len(controller_log(rig)[1]) >= already + n_jobs, 300)
    return Flow(*starts_per_s(rig, n_jobs), meters.ms_each(n_jobs))


def rate_through(gpus_per_node: int, n_jobs: int) -> tuple[Flow, Flow, float, Row]:
    """(Slurm's own flow, ours, starts accepted a second while some were handed over, decisions): jobs that end at once
    out of a full queue."""
    with slurm_site(RigSpec(n_gpu_nodes=8, n_mig_nodes=0, gpus_per_node=gpus_per_node, apart=True)) as site:
        prefer_controller(site.rig)
        warm(site)
        site.stop()
        own = flow_of(site.rig, N_OWN)
        site.idle(120)
        site.off_file.unlink()
        already = len(controller_log(site.rig)[1])
        submit(site.rig, ["--gres=gpu:1 @"] * n_jobs, "#!/bin/true\n")
        meters = Meters(site.rig)
        site.start(wait=False)
        meters.add(site.daemon)
        site.rig.wait(site.in_charge, 300, site.tail())
        meters.begin()
        site.rig.wait(lambda: len(controller_log(site.rig)[1]) >= already + n_jobs, 300, site.tail())
        ours = Flow(*starts_per_s(site.rig, n_jobs), meters.ms_each(n_jobs))
        site.stop()
        handed = [(sum(one["done"] for one in body["outcomes"]), body["took_s"]) for body in journal(site, "outcome")]
        decision = decision_row(site, f"up to {n_jobs:,} jobs queued, {8 * gpus_per_node} GPUs")
    return own, ours, sum(n for n, _ in handed[1:]) / sum(took_s for _, took_s in handed[1:]), decision


def rate() -> list[Row]:
    """As fast as it goes, with room for a quarter of the queue at once, and through 32 GPUs, where every start waits
    for the end of another job; beside Slurm's own schedulers on the same jobs: two cores launch only so many."""
    n_jobs = N_OURS
    rows = []
    for gpus_per_node in (32, 4):
        own, ours, accepted, decision = rate_through(gpus_per_node, n_jobs)
        backfill = own_flow(RigSpec("backfill", TUNED, 8, 0, gpus_per_node, apart=True), N_OWN)
        n_gpus = 8 * gpus_per_node
        most = (os.cpu_count() or 1) * 1e3 / sum(ours.cpu_ms)
        load = " ".join(f"{load:.0f}" for load in os.getloadavg())
        detail = f"{n_jobs} jobs, {n_gpus} GPUs; ours {ours}, sched/builtin {own}, sched/backfill {backfill}; "
        detail += f"{os.cpu_count()} cores can do {most:.0f} /s of ours; load {load}"
        name = f"{n_gpus} GPUs"
        rows += [
            Row(f"starts accepted, {name}", accepted, "1/s", ">= 100", accepted >= 100, "while a plan is handed over"),
            Row(f"jobs RUNNING, {name}", ours.per_s, "1/s", ">= 100", ours.per_s >= 100, detail),
            decision,
        ]
    return rows


def by_the_clock() -> list[Row]:
    """What a decision takes by the clock, and how many jobs are RUNNING a second in the same runs: on two cores the
    launches would take smartmig's core away, so it goes before them here, as on a machine of its own."""
    rows = []
    for gpus_per_node in (32, 4):
        rounds = [first_in_line(gpus_per_node) for _ in range(N_ROUNDS)]
        rates = [per_s for per_s, _ in rounds]
        mean = sum(rates) / N_ROUNDS
        name = f"{8 * gpus_per_node} GPUs"
        detail = f"mean of {N_ROUNDS} runs of {N_OURS} jobs, least {min(rates):.0f}; decisions of these runs below"
        rows += [
            Row(f"jobs RUNNING, smartmig first, {name}", mean, "1/s", ">= 100", mean >= 100, detail),
            clock_row(np.concatenate([took_ms for _, took_ms in rounds]), f"up to {N_OURS:,} jobs queued, {name}"),
        ]
    return rows


def first_in_line(gpus_per_node: int) -> tuple[float, np.ndarray]:
    """(jobs RUNNING a second, milliseconds that each decision took) with real-time priority for smartmig."""
    with slurm_site(RigSpec(n_gpu_nodes=8, n_mig_nodes=0, gpus_per_node=gpus_per_node, apart=True)) as site:
        warm(site)
        site.stop()
        site.idle(120)
        site.ahead = ("chrt", "-r", "1")
        site.off_file.unlink()
        submit(site.rig, ["--gres=gpu:1 @"] * N_OURS, "#!/bin/true\n")
        site.start()
        site.rig.wait(lambda: len(controller_log(site.rig)[1]) > N_OURS, 300, site.tail())
        per_s, _ = starts_per_s(site.rig, N_OURS)
        site.stop()
        took_s = [body["took_s"] for body in journal(site, "decision") if "took_s" in body]
    return per_s, 1e3 * np.array(took_s)


def waiting_jobs() -> tuple[list[str], str]:
    """200 jobs of half a second to three, one to four GPUs; requests are rounded up to minutes."""
    rng = random.Random(7)
    options = []
    for _ in range(200):
        size = rng.choice([1, 1, 1, 2, 2, 4])
        run_s = rng.choice([0.5, 0.5, 1.0, 3.0])
        options.append(f"--gres=gpu:{size} --time={1 if run_s < 1 else 2 if run_s < 2 else 5} @ {run_s}")
    return options, "#!/bin/sh\nsleep $1\n"


def mean_wait(rig: SlurmRig, options: list[str], script: str) -> tuple[float, float]:
    """(mean wait, seconds from the first submission to the last start)."""
    jobs = set(map(str, submit(rig, options, script)))

    def all_started() -> bool:
        return jobs <= {job for job, _, _ in controller_log(rig)[1]}

    rig.wait(all_started, 300)
    submitted, started = controller_log(rig)
    waits = [at_s - submitted[job] for job, _, at_s in started if job in jobs]
    span_s = max(at_s for job, _, at_s in started if job in jobs) - min(submitted[job] for job in jobs)
    return float(np.mean(waits)), span_s


def against_slurm() -> list[Row]:
    options, script = waiting_jobs()
    own: dict[str, tuple[float, float]] = {}
    for scheduler in ("builtin", "backfill"):
        for name, parameters in (("as shipped", ""), ("tuned", TUNED)):
            with SlurmRig(RigSpec(scheduler, parameters, 8, 0)) as rig:
                (first,) = submit(rig, ["--gres=gpu:1 @"], "#!/bin/true\n")
                rig.wait(lambda rig=rig, first=first: str(first) in {job for job, _, _ in controller_log(rig)[1]})
                own[f"{scheduler}, {name}"] = mean_wait(rig, options, script)
    best = min(wait_s for wait_s, _ in own.values())
    slurms = "; ".join(f"sched/{name} {wait_s:.2f}" for name, (wait_s, _) in own.items())
    rows = []
    for selection in ("fcfs", "sjf"):
        policy = ("--selection", selection, "--allocation", "best-fit", "--backfill", "easy")
        with slurm_site(RigSpec(n_gpu_nodes=8, n_mig_nodes=0), policy) as site:
            warm(site)
            wait_s, span_s = mean_wait(site.rig, options, script)
            site.stop()
            decision = decision_row(site, "up to 200 jobs queued")
        detail = f"last start after {span_s:.1f} s; Slurm's own: {slurms} s"
        name = f"mean wait of 200 jobs, {selection} with EASY"
        rows.append(Row(name, wait_s, "s", f"<= {best:.2f}", wait_s <= best, detail))
    return [decision, *rows]


PARTS: dict[str, Callable[[], list[Row]]] = {
    "slurm-kick": lambda: [latency(kick=True)],
    "slurm-plain": lambda: [latency(kick=False)],
    "slurm-rate": rate,
    "slurm-clock": by_the_clock,
    "slurm-own": against_slurm,
    "slurm-burst": burst,
}


def measured(name: str) -> list[Row]:
    """In a process of its own: Slurm's library reads one configuration in its life."""
    command = [sys.executable, "-m", "bench.slurm", "--json", "--here", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{name} failed")
    return [Row(**row) for row in json.loads(done.stdout)["rows"]]


def _outcome(name: str) -> Outcome:
    """For `python -m bench`: the first row that is not as it should be, or the first."""
    rows = measured(name)
    row = next((row for row in rows if not row.ok), rows[0])
    number = float(row.target.split()[-1])
    others = "; ".join(f"{other.name}: {other.value:.2f} {other.unit}" for other in rows if other is not row)
    detail = f"{row.name}: {row.detail}; {others}"
    if row.target.startswith(">="):
        return Outcome(row.value, row.unit, detail, at_least=number)
    return Outcome(row.value, row.unit, detail, at_most=number)


BENCHMARKS = {} if missing() else {name: (lambda name=name: _outcome(name)) for name in PARTS}


def main() -> int:
    names = [word for word in sys.argv[1:] if not word.startswith("-")] or list(PARTS)
    if missing():
        print(missing(), file=sys.stderr)
        return 2
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no part '{unknown[0]}'; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += PARTS[name]() if "--here" in sys.argv else measured(name)
    if "--json" in sys.argv:
        print(json.dumps({"cores": os.cpu_count(), "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        for row in rows:
            verdict = "ok  " if row.ok else "FAIL"
            print(f"{verdict} {row.name:40} {row.value:9.2f} {row.unit:5} {row.target:9} {row.detail}")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
