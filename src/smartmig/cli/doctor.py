"""`smartmig doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from rich.table import Table

from smartmig.adapters.slurm.version import find_controller, slurm_version, why_too_old
from smartmig.cli.console import Json, output, print_json


@dataclass(frozen=True)
class Finding:
    what: str
    found: str
    """empty: missing"""
    needed_for: str
    remedy: str


PACKAGES = (
    ("sqlalchemy", "live", "journal, serve, replay, token"),
    ("alembic", "live", "the journal's tables"),
    ("psycopg", "live", "a journal in PostgreSQL"),
    ("fastapi", "live", "the API of serve"),
    ("uvicorn", "live", "the API of serve"),
    ("prometheus-client", "live", "metrics"),
    ("gymnasium", "gym", "the environments of MIG cards"),
    ("pettingzoo", "gym", "the environment of whole GPUs"),
    ("torch", "train", "train, study"),
    ("tensorboard", "train", "curves of train"),
    ("stable-baselines3", "sb3", "study, train steps"),
    ("sb3-contrib", "sb3", "study, train steps"),
)

PROGRAMS = (
    ("sinfo", "Slurm's commands", "--adapter slurm", "apt-get install slurm-client"),
    ("munged", "munge", "Slurm's authentication", "apt-get install munge"),
    ("gcc", "a C compiler", "the libslurm shim (scontrol is used without it)", "apt-get install gcc libslurm-dev"),
    ("chromium", "Chromium", "the dashboard's tests", "apt-get install chromium"),
)


def doctor(json_output: Json = False) -> None:
    """Look for everything smartmig can use. Nothing here is needed to simulate; exit code 0 whatever is missing."""
    findings = [_package(*one) for one in PACKAGES] + [_program(*one) for one in PROGRAMS]
    findings += [_controller(), _postgres(), _gpu(), _cores()]
    if json_output:
        print_json([{**asdict(one), "ok": bool(one.found)} for one in findings])
        return
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "needed for", "how to get it"):
        table.add_column(column, overflow="fold")
    for one in findings:
        table.add_row(
            "ok" if one.found else "--",
            one.what,
            one.found or "missing",
            one.needed_for,
            "" if one.found else one.remedy,
        )
    output().print(table)


def _package(name: str, extra: str, needed_for: str) -> Finding:
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = ""
    return Finding(f"Python package {name}", found, needed_for, f"pip install 'smartmig[{extra}]'")


def _program(command: str, what: str, needed_for: str, remedy: str) -> Finding:
    return Finding(
        what, shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin") or "", needed_for, remedy
    )


def _controller() -> Finding:
    found, version = find_controller(), slurm_version()
    remedy = why_too_old(version)
    return Finding(
        "Slurm's controller",
        "" if remedy else f"{found} {version}".strip(),
        "smartmig slurm install, the Slurm tests",
        remedy or "apt-get install slurmctld slurmd slurm-wlm-basic-plugins",
    )


def _postgres() -> Finding:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    found = str(places[0]) if places else shutil.which("postgres") or ""
    return Finding(
        "PostgreSQL server",
        found,
        "the PostgreSQL tests; a server elsewhere serves as well",
        "apt-get install postgresql",
    )


def _gpu() -> Finding:
    command = shutil.which("nvidia-smi")
    found = ""
    if command:
        try:
            asked = [command, "--query-gpu=name,mig.mode.current", "--format=csv,noheader"]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
            found = "; ".join(done.stdout.split("\n")).strip("; ") if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            found = ""
    return Finding("NVIDIA GPU", found, "real cards; everything else works without", "install NVIDIA's driver")


def _cores() -> Finding:
    return Finding("processor cores", str(len(os.sched_getaffinity(0))), "speed", "")
