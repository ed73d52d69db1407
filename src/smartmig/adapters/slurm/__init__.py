"""A real Slurm cluster: one partition whose GPU jobs wait for our decisions.

`job_submit.lua` (see `install.py`) holds the jobs; here they are read, started where the policy says, and let go. The
state lives in Slurm (`marks.py`), so a daemon that is killed leaves nothing behind that the next one cannot read.

What it cannot do, and leaves to Slurm (the job is released unpinned; its administrator's comment says why):
`--exclusive`, GPUs by socket, several kinds of GPU in one job, constraints beyond names joined by `&` or `|`, anything
but one MIG slice of a named profile, a `--nodelist` of some of the nodes, jobs for another of the partitions that they
name. Heterogeneous jobs it never touches. It does not see switches, nor accounting limits (a job that Slurm keeps
pending after its start is taken back and tried again later), nor which card a GPU index belongs to.
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass

from smartmig.adapters.slurm.actuator import Rules, SlurmActuator
from smartmig.adapters.slurm.calls import SlurmReads, SlurmWrites
from smartmig.adapters.slurm.cards import MigKnobs
from smartmig.adapters.slurm.libslurm import LibSlurm, load_shim
from smartmig.adapters.slurm.paths import Installed
from smartmig.adapters.slurm.scontrol import Scontrol
from smartmig.adapters.slurm.source import Cooling, SlurmSource
from smartmig.adapters.slurm.started import Started
from smartmig.adapters.slurm.translate import Translator
from smartmig.errors import InputError
from smartmig.hardware.model import gpu_model
from smartmig.ports import Connection

N_WRITERS = 4
"""Starts under way at a time."""
WAYS = ("auto", "libslurm", "scontrol")


class WallClock:
    """The machine's own."""

    def now_s(self) -> float:
        return time.time()


@dataclass(frozen=True)
class Slurm:
    """Knobs of a Slurm cluster."""

    partition: str = ""
    """whose GPU jobs smartmig starts"""
    config: str = ""
    """folder of slurm.conf; empty = that of $SLURM_CONF, else /etc/slurm"""
    via: str = "auto"
    """libslurm (through the shim that `smartmig slurm install` builds), scontrol, or auto: the shim if it is there"""
    poll_s: float = 0.02
    """how often Slurm is asked whether anything changed"""
    start_grace_s: float = 10.0
    """a job that does not run so long after its start is taken back and left alone for a while"""
    reboot_s: float = 25.0
    """Jobs older than the controller rest for so long after it started. If it crashed it may have forgotten that one of
    them ran: its node then still has it, for up to the 15 s after which slurmstepd reports an end again, and Slurm
    drains a node that is asked to run a job twice."""
    mig_model: str = "a100-40gb"
    """cards behind the resource `mig`"""
    mig_cards: int = 1
    """on each node that has `mig`"""
    recut_command: str = ""
    """cuts a card: called with node, card and start:profile,...; empty = only Slurm's counts change"""

    def open(self) -> Connection:
        if not self.partition:
            raise InputError("--partition: a partition of the Slurm cluster is needed")
        if self.via not in WAYS:
            raise InputError(f"via: no way '{self.via}' to talk to Slurm. Known: {', '.join(WAYS)}.")
        if not 0 < self.poll_s <= 60 or not self.start_grace_s > 0 or not self.reboot_s >= 0 or self.mig_cards < 1:
            raise InputError(
                "slurm: poll_s is above 0 and at most 60, start_grace_s above 0, reboot_s from 0, mig_cards from 1"
            )
        gpu_model(self.mig_model, "mig_model")
        mig = MigKnobs(self.mig_model, self.mig_cards)
        ways = Ways(self)
        installed = ways.installed.manifest.exists()
        cooling, started = Cooling(), Started(ways.installed.started if installed else None)
        source = SlurmSource(
            ways.reads("source"), Translator(self.partition, mig, self.reboot_s, started), cooling, self.poll_s
        )
        rules = Rules(
            partition=self.partition,
            mig=mig,
            off_file=ways.installed.off_file if installed else None,
            start_grace_s=self.start_grace_s,
            recut_command=tuple(shlex.split(self.recut_command)),
        )
        writers = [ways.writes(f"writer-{number}") for number in range(N_WRITERS)]
        actuator = SlurmActuator(writers, lambda: ways.both("keeper"), source, cooling, started, rules)
        return Connection(source, actuator, WallClock())


class Ways:
    """Opens handles in the way that was asked for."""

    def __init__(self, knobs: Slurm) -> None:
        self.installed = Installed.find(knobs.config)
        self._shim = None
        if knobs.via == "libslurm" or (knobs.via == "auto" and self.installed.shim.exists()):
            # The library reads its configuration once per process.
            os.environ.setdefault("SLURM_CONF", str(self.installed.conf))
            self._shim = load_shim(self.installed.shim, self.installed.conf)

    def both(self, name: str) -> tuple[SlurmReads, SlurmWrites]:
        handle = self._open(name)
        return handle, handle

    def reads(self, name: str) -> SlurmReads:
        return self._open(name)

    def writes(self, name: str) -> SlurmWrites:
        return self._open(name)

    def _open(self, name: str) -> LibSlurm | Scontrol:
        return LibSlurm(self._shim, name) if self._shim is not None else Scontrol(self.installed.conf)
