"""Users and operators do what they like for a while, the daemon is killed now and then: nothing is lost, nothing runs
twice, and nothing runs while somebody holds it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from slurm_rig import missing
from slurm_site import Site, slurm_site

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SEED = int(os.environ.get("SMARTMIG_MONKEY_SEED", "1"))
SPAN_S = float(os.environ.get("SMARTMIG_MONKEY_S", "12"))
ANSWER_S = 0.3
"""A start that was under way before the hold was seen."""

KINDS = {
    "plain": ["--gres=gpu:1"],
    "node": ["--gres=gpu:4"],
    "pair": ["-N2", "--gres=gpu:2"],
    "wide": ["--gpus=6"],
    "slice": ["--gres=mig:1g.5gb:1"],
    "array": ["--gres=gpu:1", "--array=0-3%2"],
    "later": ["--gres=gpu:2", "--begin=now+3"],
    "held": ["--gres=gpu:1", "--hold"],
    "pinned": ["--gres=gpu:1", "--nodelist=node3"],
    "none": ["--gres=gpu:0"],
}


class Monkey:
    """Random operations on a site, and what they must have led to."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.rig, self.rng = site, site.rig, random.Random(seed)
        self.kinds: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.requeued: set[str] = set()
        self.held: dict[str, list[float]] = {}
        """since when, until when"""
        self.drained: set[str] = set()

    def act(self) -> None:
        acts: list[Callable[[], None]] = [self.submit] * 8
        acts += [self.burst, self.hold, self.release, self.cancel, self.requeue, self.drain, self.resume, self.change]
        self.rng.choice(acts)()

    def submit(self) -> None:
        kind = self.rng.choice([*KINDS, "plain", "plain", "node"])
        job = self.rig.sbatch(*KINDS[kind], seconds=self.rng.choice([0.2, 0.5, 1.0]))
        self.kinds[str(job)] = kind
        if kind == "held":
            self.held[str(job)] = [time.time()]

    def burst(self) -> None:
        for _ in range(8):
            self.submit()

    def hold(self) -> None:
        job = self._one("PD", "plain", "node", "slice")
        if job and job not in self.held:
            self.rig.scontrol("hold", job, user="root", check=False)
            found = self.rig.job(job)
            if (found["JobState"], found["Priority"]) == ("PENDING", "0"):
                self.held[job] = [time.time()]

    def release(self, job: str = "") -> None:
        held = [one for one, times in self.held.items() if len(times) == 1]
        if held:
            job = job or self.rng.choice(held)
            self.held[job].append(time.time())
            self.rig.scontrol("release", job, user="root", check=False)

    def cancel(self) -> None:
        job = self._one("PD,R", *KINDS)
        if job:
            self.cancelled.add(job)
            self.rig.call(["scancel", job], check=False)

    def requeue(self) -> None:
        job = self._one("R", "plain", "node", "slice")
        if job:
            self.requeued.add(job)
            self.rig.scontrol("requeue", job, user="root", check=False)

    def drain(self) -> None:
        if len(self.drained) < 3:
            self.drained.add(node := self.rng.choice(self.rig.nodes[:7]))
            self.rig.scontrol("update", f"NodeName={node}", "State=DRAIN", "Reason=test", user="root")

    def resume(self) -> None:
        if self.drained:
            node = self.drained.pop()
            self.rig.scontrol("update", f"NodeName={node}", "State=RESUME", user="root", check=False)

    def change(self) -> None:
        job = self._one("PD", *KINDS)
        if job:
            what = self.rng.choice(["Nice=100", "TimeLimit=5", "Comment=a word"])
            self.rig.scontrol("update", f"JobId={job}", what, user="root", check=False)

    def _one(self, states: str, *kinds: str) -> str:
        found = self.rig.call(["squeue", "-a", "-h", "-t", states, "-o", "%A"]).split()
        fitting = [job for job in found if self.kinds.get(job) in kinds]
        return self.rng.choice(fitting) if fitting else ""

    def tidy_up(self) -> None:
        while self.drained:
            self.resume()
        for job in [one for one, times in self.held.items() if len(times) == 1]:
            self.release(job)

    def faults(self) -> list[str]:
        times: dict[str, list[float]] = {}
        tasks: Counter[str] = Counter()
        for job, task, _, _, at in self.rig.runs():
            times.setdefault(job, []).append(at)
            tasks[task] += 1
        faults = []
        for job, kind in self.kinds.items():
            starts = times.get(job, [])
            if not starts and job not in self.cancelled:
                faults.append(f"{job} ({kind}) was lost: {self.rig.job(job)}")
            if len(starts) > 1 and job not in self.requeued:
                faults.append(f"{job} ({kind}) ran at {starts}")
        for job, (since, until) in self.held.items():
            early = [at for at in times.get(job, []) if since + ANSWER_S < at < until]
            if early and job not in self.requeued:
                faults.append(f"{job} ran at {early} though it was held from {since} to {until}")
        n_arrays = sum(kind == "array" and job not in self.cancelled for job, kind in self.kinds.items())
        if any(tasks[str(task)] < n_arrays for task in range(4)):
            faults.append(f"{n_arrays} arrays ran tasks {dict(tasks)}")
        return faults


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with slurm_site() as site:
        site.rig.sbatch("--gres=gpu:1")
        site.wait_runs(1)
        yield site


def test_monkey__loses_nothing_and_starts_nothing_twice(site: Site) -> None:
    monkey = Monkey(site, SEED)
    end_s = time.monotonic() + SPAN_S
    kills = [end_s - SPAN_S * share for share in (0.3, 0.6)]
    while time.monotonic() < end_s:
        monkey.act()
        time.sleep(0.2 * monkey.rng.random())
        if kills and time.monotonic() > kills[-1]:
            kills.pop()
            site.kill()
            site.start(wait=bool(kills))
    monkey.tidy_up()
    site.idle(240)
    assert len(monkey.kinds) > 20
    assert monkey.faults() == []
