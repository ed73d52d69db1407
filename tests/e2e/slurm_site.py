"""A rig with smartmig installed, and its daemon: started, killed and looked at as an operator would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from slurm_rig import PARTITION, WAIT_S, RigSpec, SlurmRig

SMARTMIG = Path(sys.executable).with_name("smartmig")
READY_S = 600.0
"""The first start on a machine compiles the policy."""


def smartmig(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(SMARTMIG), *map(str, words)], capture_output=True, text=True, timeout=READY_S, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"smartmig {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Site:
    """A rig under smartmig."""

    def __init__(self, rig: SlurmRig, *policy: str) -> None:
        self.rig, self.policy = rig, policy
        self.home = rig.folder / "smartmig-home"
        self.off_file = rig.etc / "smartmig" / "off"
        self.adapter = f"slurm:partition={PARTITION},config={rig.etc}"
        self.log = rig.folder / "log" / "smartmig.log"
        self.begun = 0
        """where the log of the present daemon begins"""
        self.daemon: subprocess.Popen[bytes] | None = None
        self.ahead: tuple[str, ...] = ("nice", "-n", "-10")
        """of other processes on the machine; as the systemd unit does"""

    def install(self, *flags: str) -> None:
        smartmig("slurm", "install", "--partition", PARTITION, "--config", self.rig.etc, *flags)
        self.rig.restart_controller()
        self.rig.wait(lambda: set(self.rig.node_states().values()) == {"idle"}, what="nodes idle after installing")

    def start(self, mode: str = "act", wait: bool = True, knobs: str = "") -> None:
        environment = {**os.environ, "SMARTMIG_HOME": str(self.home)}
        command = [
            *self.ahead,
            str(SMARTMIG),
            "serve",
            "--no-api",
            "--adapter",
            self.adapter + knobs,
            "--mode",
            mode,
        ]
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [*command, "--period", "1", *self.policy],
                env=environment,
                stderr=log,
                stdout=log,
                start_new_session=True,
            )
        self.begun = self.log.stat().st_size
        if wait:
            said = '"take over"' if mode == "act" else '"ready"'
            begun = self.log.read_text(errors="replace").count(said)
            self.rig.wait(
                lambda: self.log.read_text(errors="replace").count(said) > begun, READY_S, f"the daemon\n{self.tail()}"
            )

    def kill(self) -> None:
        assert self.daemon is not None
        os.kill(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait()
        self.daemon = None

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.terminate()
            try:
                self.daemon.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
                raise
            self.daemon = None

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:]) if self.log.exists() else ""

    def events(self, what: str) -> list[dict[str, object]]:
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("what") == what:
                    found.append(event)
        return found

    def in_charge(self) -> bool:
        """Whether the daemon that runs now has taken over."""
        return b'"take over"' in self.log.read_bytes()[self.begun :]

    def ran(self) -> dict[str, list[tuple[str, str, float]]]:
        """By job (`12` or `12_3`): (node, GPUs, time) of each start."""
        starts: dict[str, list[tuple[str, str, float]]] = {}
        for job_id, task, node, gpus, at in self.rig.runs():
            name = job_id if task == "-" else f"{job_id}/{task}"
            starts.setdefault(name, []).append((node, gpus, at))
        return starts

    def wait_runs(self, count: int, timeout_s: float = WAIT_S) -> None:
        """So many starts in all."""
        self.rig.wait(lambda: len(self.rig.runs()) >= count, timeout_s, f"{count} starts\n{self.tail()}")

    def idle(self, timeout_s: float = WAIT_S) -> None:
        """Nothing waits or runs any more."""
        self.rig.wait(
            lambda: not self.rig.call(["squeue", "-a", "-h"]).strip(), timeout_s, f"empty queue\n{self.tail()}"
        )


@contextlib.contextmanager
def slurm_site(spec: RigSpec | None = None, policy: tuple[str, ...] = (), start: bool = True) -> Iterator[Site]:
    """Installed, and in charge."""
    with SlurmRig(spec) as rig:
        site = Site(rig, *policy)
        try:
            site.install()
            if start:
                site.start()
            yield site
        finally:
            if site.daemon is not None:
                site.daemon.kill()
                site.daemon.wait()
