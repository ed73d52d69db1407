"""Which Slurm the machine has, for those who would otherwise fail later and less clearly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

OLDEST = (22, 5)
"""Tested; what the shim reads of a node is missing before."""
ASK_S = 10.0


def find_controller() -> str:
    """The program slurmctld, empty when it is not here. It stands where only root's PATH may lead."""
    return shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""


def slurm_version() -> str:
    """Such as `22.05.8`, empty when nobody says. Slurm's other commands say it only where they find a slurm.conf."""
    program = find_controller()
    try:
        said = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=ASK_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+\S*", said)
    return found[0] if found is not None else ""


def why_too_old(version: str) -> str:
    """A sentence; empty when it will do, or is not known."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    oldest = f"{OLDEST[0]}.{OLDEST[1]:02}"
    return f"Slurm {version} is too old: {oldest} or later is needed" if numbers and numbers < OLDEST else ""
