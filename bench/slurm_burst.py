"""A burst of jobs while smartmig's daemon and slurmctld are killed: nothing may be lost, started twice or misplaced."""

from __future__ import annotations

import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from slurm_rig import RigSpec, SlurmRig
from slurm_site import Site, slurm_site

from bench.slurm_log import Row, controller_log, queued_again, submit, warm
from smartmig.adapters.slurm.paths import Installed

UNSAVED_S = 10.0
"""slurmctld saves its jobs every few seconds, and that takes a while."""


@dataclass
class Monkey:
    """Kills the daemon and the controller at random moments, and starts them again."""

    site: Site
    rng: random.Random
    daemon_kills: int
    controller_kills: int
    killed_s: list[float]
    """when the controller was killed"""

    def run(self, end: threading.Event) -> None:
        victims = ["daemon"] * self.daemon_kills + ["controller"] * self.controller_kills
        self.rng.shuffle(victims)
        for victim in victims:
            if end.is_set():
                return
            if victim == "controller" or self.rng.random() < 0.5:
                self.wait_in_charge()
            time.sleep(self.rng.uniform(0.1, 2.0))
            if victim == "daemon":
                self.site.kill()
                self.daemon_kills -= 1
                self.site.start(wait=False)
            else:
                self.killed_s.append(time.time())
                self.site.rig.stop_controller(signal.SIGKILL)
                self.controller_kills -= 1
                self.site.rig.start_controller()

    def wait_in_charge(self) -> None:
        """Until the daemon that runs now has taken over: that is when it starts jobs."""
        end_s = time.monotonic() + 30
        while not self.site.in_charge() and time.monotonic() < end_s:
            time.sleep(0.05)


def burst(n_jobs: int = 2000, n_daemon: int = 50, n_controller: int = 5) -> list[Row]:
    """Jobs of one to four GPUs; the daemon and the controller are killed meanwhile."""
    rng = random.Random(1)
    note = "#!/bin/sh\necho $SLURM_JOB_ID $SLURMD_NODENAME >> FOLDER/noted\nsleep 0.$((SLURM_JOB_ID % 10))\n"
    with slurm_site(RigSpec(extra="MinJobAge=3600\n", cred_expire_s=60)) as site:
        rig = site.rig
        warm(site)
        site.stop()
        site.off_file.unlink()
        sizes = rng.choices([1, 2, 3, 4], [6, 3, 1, 2], k=n_jobs)
        jobs = submit(rig, [f"--gres=gpu:{size} --time=5 @" for size in sizes], note.replace("FOLDER", str(rig.jobs)))
        time.sleep(7)  # slurmctld has saved them all: what it loses from now on was not lost by itself
        begun_s = time.time()
        site.start(wait=False)
        monkey = Monkey(site, rng, n_daemon, n_controller, [])
        end = threading.Event()
        thread = threading.Thread(target=monkey.run, args=(end,))
        thread.start()
        noted = rig.jobs / "noted"

        def left() -> int:
            return len(set(map(str, jobs)) - {line.split()[0] for line in noted.read_text().splitlines()})

        try:
            rig.wait(lambda: noted.exists() and left() == 0, 900, f"{site.tail()}")
        finally:
            drained_s = time.time() - begun_s
            end.set()
            thread.join()
        unsaved = ended_unsaved(rig)
        site.idle(420)
        rows = [line.split() for line in noted.read_text().splitlines()]
        ran = Counter(row[0] for row in rows)
        _, started = controller_log(rig)
        planned = planned_nodes(rig)
        wrong = sum(node not in planned.get(job, set()) for job, node in rows)
        again = twice(started, monkey.killed_s, ran, queued_again(rig))
        for words in again[0]:
            job = words.split()[1]
            print(words, *said_of(rig, job), sep="\n  ", file=sys.stderr)
        n_again = len(again[0]) + sum(again[1:])
        assert sum(count - 1 for count in ran.values()) <= n_again, "a job noted a start that slurmctld did not"
    lost = sum(str(job) not in ran for job in jobs)
    kills = (
        f"{n_daemon - monkey.daemon_kills} kill -9 of the daemon, {n_controller - monkey.controller_kills} of slurmctld"
    )
    enough = monkey.daemon_kills == 0 and monkey.controller_kills == 0
    detail = f"{n_jobs} jobs drained in {drained_s:.0f} s under {kills}"
    forgot = (
        f"{again[1]} more because slurmctld forgot a start that it had not saved, {again[2]} because it took the start "
    )
    forgot += f"back; {len(unsaved)} more jobs whose end it forgot; {'; '.join(again[0])}"
    return [
        Row("burst: jobs lost", lost, "jobs", "0", lost == 0 and enough, detail),
        Row("burst: started twice", len(again[0]), "jobs", "0", not again[0], forgot.rstrip("; ")),
        Row("burst: on the wrong node", wrong, "jobs", "0", wrong == 0, "against the nodes of the plan"),
    ]


def ended_unsaved(rig: SlurmRig) -> list[str]:
    """Jobs that slurmctld takes for running though they are over: it was killed before it had saved their end, and
    nobody tells it again. Their limit ends them."""
    time.sleep(10)  # the longest takes a second
    left = rig.call(["squeue", "-a", "-h", "-t", "RUNNING", "-o", "%A"]).split()
    for job in left:
        print(f"job {job} is over, and slurmctld has forgotten that", *said_of(rig, job), sep="\n  ", file=sys.stderr)
    return left


def said_of(rig: SlurmRig, job: str) -> list[str]:
    """What slurmctld wrote about a job."""
    mention = re.compile(rf"JobId={job}\b")
    lines = (rig.log / "slurmctld.log").read_text(errors="replace").splitlines()
    return [line for line in lines if mention.search(line)]


def planned_nodes(rig: SlurmRig) -> dict[str, set[str]]:
    """The nodes each job was sent to, which smartmig notes before it sends it."""
    planned: dict[str, set[str]] = {}
    for line in Installed.find(str(rig.etc)).started.read_text().splitlines():
        job, _, nodes, _ = line.split(" ")
        planned.setdefault(job, set()).update(nodes.split(","))
    return planned


def twice(
    started: list[tuple[str, str, float]],
    killed_s: list[float],
    ran: Mapping[str, int],
    back_s: Mapping[str, list[float]],
) -> tuple[list[str], int, int]:
    """Jobs started a second time: for no reason (which, and when); how many because the controller was killed before it
    had saved the first; and how many whose first start Slurm took back, by its own log or because they never ran."""
    times: dict[str, list[float]] = {}
    for job, _, at_s in started:
        times.setdefault(job, []).append(at_s)
    ours, forgotten, taken_back = list[str](), 0, 0
    for job, starts in times.items():
        for first_s, second_s in pairwise(starts):
            kills = [kill_s - first_s for kill_s in killed_s if first_s - 0.1 <= kill_s <= second_s]
            if kills and kills[0] < UNSAVED_S:
                forgotten += 1
            elif ran[job] == 1 or any(first_s <= at_s <= second_s for at_s in back_s.get(job, ())):
                taken_back += 1
            else:
                after = ", ".join(f"{kill_s:.1f} s" for kill_s in kills) or "never"
                ours.append(f"job {job} again after {second_s - first_s:.1f} s, slurmctld killed after {after}")
    return ours, forgotten, taken_back
