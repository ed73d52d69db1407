"""docs/slurm.md, followed line by line on a real Slurm.

What a test machine has no room for is stood in for: `/etc/slurm` and `/var/lib/smartmig` are folders of the rig, and
systemd is a few lines that run the unit's own ExecStart.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from slurm_rig import PARTITION, USER, SlurmRig, missing
from slurm_site import READY_S, SMARTMIG

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "slurm.md"
FENCE = re.compile(r"^```console slurm\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Reader:
    """Types what the document says."""

    def __init__(self, rig: SlurmRig) -> None:
        self.rig = rig
        self.var = rig.folder / "var"
        self.unit = rig.etc / "smartmig" / "smartmig-slurm.service"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.log = rig.log / "smartmig.log"
        self.said: dict[str, str] = {}

    def type(self, line: str) -> None:
        line = line.replace("/etc/slurm", str(self.rig.etc)).replace("/var/lib/smartmig", str(self.var))
        if line.startswith("systemctl "):
            self.systemctl(line.split()[1:])
            return
        environment = {**self.rig.env, "PATH": f"{SMARTMIG.parent}:{self.rig.env['PATH']}"}
        account = pwd.getpwnam(USER if line.startswith("sbatch") else "root")
        done = subprocess.run(
            line, shell=True, env=environment, cwd=self.rig.folder, user=account.pw_uid, group=account.pw_gid,
            capture_output=True, text=True, timeout=READY_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"
        self.said[line] = done.stdout

    def systemctl(self, words: list[str]) -> None:
        if words == ["restart", "slurmctld"]:
            self.rig.restart_controller()
            self.rig.wait(lambda: set(self.rig.node_states().values()) == {"idle"})
        elif words[0] == "disable" or words == ["restart", "smartmig-slurm"]:
            self.stop()
        if words[0] in ("enable", "restart") and "smartmig-slurm" in words[-1]:
            self.start()

    def start(self) -> None:
        text = self.unit.read_text().replace("/var/lib/smartmig", str(self.var))
        self.var.mkdir(exist_ok=True)  # StateDirectory=
        settings = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE))
        if "NUMBA_CACHE_DIR" in os.environ:
            settings["NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]  # compiling takes minutes
        else:
            settings.pop("NUMBA_CACHE_DIR")
        (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        assert re.findall(r"^User=(.*)$", text, re.MULTILINE) == [USER]  # SlurmUser of the rig; here root serves
        begun = self.ready()
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [*shlex.split(command), "--port", "0"], env={**os.environ, **settings}, stdout=log, stderr=log
            )
        self.rig.wait(lambda: self.ready() > begun, READY_S, "the daemon")

    def ready(self) -> int:
        return self.log.read_text(errors="replace").count('"listening"') if self.log.exists() else 0

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(READY_S)
            self.daemon = None


def files(rig: SlurmRig) -> dict[Path, bytes]:
    return {path: path.read_bytes() for name in ("etc", "plugins") for path in (rig.folder / name).rglob("*")}


def test_document__works_line_by_line() -> None:
    blocks = [block.splitlines() for block in FENCE.findall(DOCUMENT.read_text())]
    assert [line for block in blocks for line in block if not line.startswith("$ ")] == []
    see, watch, look, charge, give, leave = ([line.removeprefix("$ ") for line in block] for block in blocks)
    with SlurmRig() as rig:
        before = files(rig)
        reader = Reader(rig)
        job = 0

        def follow(lines: list[str]) -> None:
            for line in lines:
                reader.type(line)

        def started() -> bool:
            return rig.job(job)["JobState"] in ("RUNNING", "COMPLETED")

        try:
            follow(see)
            assert files(rig) == before
            follow(watch)
            job = 1
            rig.wait(started, what="Slurm starts the job itself")
            assert "AdminComment" not in rig.job(1)
            follow(look)
            follow(charge)
            job = 2
            rig.wait(started, what="smartmig starts the job")
            assert "smartmig start" in rig.scontrol("show", "-o", "job", "2")
            held = rig.sbatch("--gres=gpu:1", "--begin=now+600")
            assert rig.job(held)["Priority"] == "0"
            follow(give)
            assert rig.job(held)["Priority"] != "0"
            assert rig.job(rig.sbatch("--gres=gpu:1", partition=PARTITION))["Priority"] != "0"
            follow(leave)
            assert reader.daemon is None
            assert files(rig) == before
        finally:
            reader.stop()
