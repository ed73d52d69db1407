"""A real Slurm on one host, for tests and benchmarks: a controller and eight node daemons with fake GPUs.

Everything runs as `nobody` inside one private folder and listens on loopback; nothing of the machine's own Slurm, if it
has one, is touched. The configuration is that of a site that does not know smartmig yet.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from smartmig.adapters.slurm.install import PLUGIN_DIRS

PACKAGES = "slurm-wlm slurmctld slurmd slurm-client munge libslurm-dev slurm-wlm-basic-plugins gcc"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "gcc")
USER = "nobody"
FAKE_GPUS = "/dev/null,/dev/zero,/dev/full,/dev/random"
"""Slurm only asks that a GPU's file is a device."""

FAKE_CPUS = "numanode:1 core:32 pu:1"
"""As fake as the GPUs; each job's shepherd would otherwise read the machine's own out of a hundred files."""

GPUS_PER_NODE = 4
PARTITION = "gpu"
MEMORY_BYTES = 1 << 30
"""free, for a rig to lie in memory"""
WAIT_S = 120.0
"""A machine that is busy with other things is slow; only what never happens takes so long."""


def missing() -> str:
    """One sentence on what a rig lacks here and how to get it; empty when it can start."""
    paths = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=paths) is None]
    if absent or not Path("/usr/include/slurm/slurm.h").exists():
        what = ", ".join(absent) or "slurm/slurm.h"
        return f"a real Slurm is needed and {what} is missing: apt-get install --no-install-recommends {PACKAGES}"
    if os.geteuid() != 0:
        return "a real Slurm is started as user nobody, which only root can do: run the tests as root"
    return ""


@dataclass(frozen=True)
class RigSpec:
    """The site's own settings."""

    scheduler: str = "builtin"
    """Slurm's own scheduler: builtin or backfill"""
    scheduler_parameters: str = ""
    n_gpu_nodes: int = 7
    n_mig_nodes: int = 1
    """with the count-only resource `mig`, cut into seven 1g.5gb"""
    gpus_per_node: int = GPUS_PER_NODE
    cred_expire_s: int = 5
    """a launch later than this is refused by the node; and a job that is queued again waits for so long"""
    apart: bool = False
    """each node sees its own processes only, as on a machine of its own; a node that is killed takes its jobs along"""
    extra: str = ""
    """further lines of slurm.conf"""


class SlurmRig:
    """Start it, submit to it, stop it."""

    def __init__(self, spec: RigSpec | None = None) -> None:
        self.spec = spec or RigSpec()
        self.folder = Path(tempfile.mkdtemp(prefix="smartmig-slurm-", dir=_in_memory()))
        self.folder.chmod(0o755)
        self.etc, self.log, self.jobs = self.folder / "etc", self.folder / "log", self.folder / "jobs"
        for name in ("etc", "log", "jobs", "run", "state", "spool", "dev", "plugins"):
            (self.folder / name).mkdir()
        link_plugins(self.folder / "plugins")
        self.conf = self.etc / "slurm.conf"
        self.n_nodes = self.spec.n_gpu_nodes + self.spec.n_mig_nodes
        self.nodes = [f"node{number}" for number in range(1, self.n_nodes + 1)]
        self._write_configuration()
        account = pwd.getpwnam(USER)
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
        self.env = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        self.env["HWLOC_SYNTHETIC"] = FAKE_CPUS
        for name in [name for name in self.env if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF"]:
            del self.env[name]

    def _write_configuration(self) -> None:
        spec, base, port = self.spec, self.folder, _free_ports(self.n_nodes + 1)
        (self.etc / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.etc / "munge.key").chmod(0o600)
        gpu_nodes, mig_nodes = self.nodes[: spec.n_gpu_nodes], self.nodes[spec.n_gpu_nodes :]
        n_gpus = spec.gpus_per_node
        machine = f"NodeHostname=localhost NodeAddr=127.0.0.1 CPUs={max(32, 2 * n_gpus)} RealMemory=64000"
        lines = [
            "ClusterName=rig",
            "SlurmctldHost=localhost",
            f"SlurmctldPort={port}",
            f"SlurmUser={USER}",
            f"SlurmdUser={USER}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={base}/run/munge.socket,cred_expire={spec.cred_expire_s}",
            "CredType=cred/munge",
            f"StateSaveLocation={base}/state",
            f"SlurmdSpoolDir={base}/spool/%n",
            f"SlurmctldPidFile={base}/run/slurmctld.pid",
            f"SlurmdPidFile={base}/run/{'own-' if spec.apart else ''}slurmd-%n.pid",
            f"SlurmctldLogFile={base}/log/slurmctld.log",
            f"SlurmdLogFile={base}/log/slurmd-%n.log",
            f"PluginDir={base}/plugins",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "DefMemPerCPU=100",
            f"SchedulerType=sched/{spec.scheduler}",
            *([f"SchedulerParameters={spec.scheduler_parameters}"] if spec.scheduler_parameters else []),
            "PriorityType=priority/basic",
            "MaxJobCount=20000",
            "MaxArraySize=5000",
            "MessageTimeout=10",
            "SlurmctldTimeout=120",
            "SlurmdTimeout=60",
            "SlurmdDebug=error",
            "KillWait=1",
            "GresTypes=gpu,mig",
            "SlurmdParameters=config_overrides",
            "ReturnToService=2",
            *(
                f"NodeName={name} {machine} Port={port + 1 + at} Gres=gpu:a100:{n_gpus}"
                for at, name in enumerate(gpu_nodes)
            ),
            *(
                f"NodeName={name} {machine} Port={port + 1 + len(gpu_nodes) + at} Gres=mig:1g.5gb:7"
                for at, name in enumerate(mig_nodes)
            ),
            f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP",
            f"PartitionName=other Nodes={self.nodes[0]} MaxTime=INFINITE DefaultTime=10 State=UP",
        ]
        self.conf.write_text("\n".join(lines) + "\n" + spec.extra)
        cards = FAKE_GPUS
        if n_gpus != GPUS_PER_NODE:
            cards = f"{base}/dev/gpu[1-{n_gpus}]"
            for at in range(n_gpus):
                os.mknod(base / "dev" / f"gpu{at + 1}", 0o666 | stat.S_IFCHR, Path("/dev/null").stat().st_rdev)
        gres = [f"NodeName={name} Name=gpu Type=a100 File={cards}" for name in gpu_nodes]
        gres += [f"NodeName={name} Name=mig Type=1g.5gb Count=7 Flags=CountOnly" for name in mig_nodes]
        (self.etc / "gres.conf").write_text("\n".join(gres) + "\n")

    # ------------------------------------------------------------------ processes

    def start(self) -> SlurmRig:
        run, log = self.folder / "run", self.folder / "log"
        munged = ["munged", "--force", f"--key-file={self.etc}/munge.key", f"--socket={run}/munge.socket"]
        munged += [f"--pid-file={run}/munged.pid", f"--log-file={log}/munged.log", f"--seed-file={run}/munged.seed"]
        self.call(munged)
        self.start_controller()
        for name in self.nodes:
            if self.spec.apart:
                self._start_apart(name)
            else:
                self.call(["slurmd", "-f", str(self.conf), "-N", name])
        self.wait(lambda: len(self.node_states()) == self.n_nodes and set(self.node_states().values()) == {"idle"})
        return self

    def _start_apart(self, name: str) -> None:
        """The shell is the first process there: it collects the shepherds of jobs that ended."""
        account = pwd.getpwnam(USER)
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "setpriv", "--clear-groups"]
        command += [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}"]
        command += ["sh", "-c", 'slurmd -D -f "$0" -N "$1" & wait', str(self.conf), name]
        none = subprocess.DEVNULL
        outer = subprocess.Popen(command, env=self.env, cwd=self.folder, stdin=none, stdout=none, stderr=none).pid

        def daemon() -> int:
            shell = _child(outer)
            return _child(shell) if shell else 0

        self.wait(lambda: daemon() != 0)
        (self.folder / "run" / f"slurmd-{name}.pid").write_text(str(daemon()))

    def start_controller(self, forgets: bool = False) -> None:
        """`forgets`: it has lost its state, and counts jobs from the beginning."""
        if forgets:
            for path in (self.folder / "state").iterdir():
                path.unlink() if path.is_file() else shutil.rmtree(path)
        self.call(["slurmctld", "-f", str(self.conf)])
        self.wait(lambda: "UP" in self.call(["scontrol", "ping"], check=False))

    def stop_controller(self, with_signal: int = signal.SIGTERM) -> None:
        pid = self._pid("slurmctld")
        if pid is None:
            return
        os.kill(pid, with_signal)
        self.wait(lambda: not _alive(pid))

    def restart_controller(self) -> None:
        self.stop_controller()
        self.start_controller()

    def stop(self) -> None:
        """A node daemon that cannot reach its controller ignores SIGTERM, so it goes first, and -9 ends the rest."""
        pids = [pid for name in self.nodes if (pid := self._pid(f"slurmd-{name}")) is not None]
        pids += [pid for name in ("slurmctld", "munged") if (pid := self._pid(name)) is not None]
        for with_signal, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
            _end(pids, with_signal, patience_s)
        while left := self._left_behind():
            _end(left, signal.SIGKILL, 2.0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> SlurmRig:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def pid(self, name: str) -> int:
        """Of `slurmctld`, `munged` or `slurmd-node1`."""
        pid = self._pid(name)
        assert pid is not None, f"{name} does not run"
        return pid

    def _pid(self, name: str) -> int | None:
        try:
            pid = int((self.folder / "run" / f"{name}.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if _alive(pid) else None

    def _left_behind(self) -> list[int]:
        """Whatever still works inside the rig's folder: shepherds of jobs, which outlive their node daemon."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if str(self.folder) in str((entry / "cwd").readlink()):
                        found.append(int(entry.name))
        return found

    # ------------------------------------------------------------------ commands

    def call(self, command: Sequence[str], user: str = USER, check: bool = True, timeout_s: float = WAIT_S) -> str:
        """Standard output of a Slurm command, run by `user`."""
        account = pwd.getpwnam(user)
        done = subprocess.run(
            list(command),
            env=self.env,
            cwd=self.folder,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + ("" if check else done.stderr)

    def sbatch(self, *options: str, seconds: float = 0.0, user: str = USER, partition: str = PARTITION) -> int:
        """Submit a job that notes where and when it ran; its id."""
        script = self.script(seconds)
        out = self.call(["sbatch", "--parsable", "-p", partition, *options, str(script)], user=user)
        return int(out.strip().split(";")[0])

    def script(self, seconds: float) -> Path:
        path = self.jobs / f"sleep-{seconds}.sh"
        if not path.exists():
            note = '"$SLURM_JOB_ID ${SLURM_ARRAY_TASK_ID:--} $SLURMD_NODENAME ${SLURM_JOB_GPUS:--} $(date +%s.%N)"'
            path.write_text(
                "#!/bin/sh\n#SBATCH --output=/dev/null\n"
                f"echo {note} >> {self.jobs}/ran.log\n" + (f"sleep {seconds}\n" if seconds else "")
            )
            path.chmod(0o755)
            account = pwd.getpwnam(USER)
            os.chown(path, account.pw_uid, account.pw_gid)
        return path

    def runs(self) -> list[tuple[str, str, str, str, float]]:
        """(job id, array task, node, GPUs, time) of every start, as the jobs themselves noted it."""
        path = self.jobs / "ran.log"
        if not path.exists():
            return []
        rows = [line.split() for line in path.read_text().splitlines()]
        return [(row[0], row[1], row[2], row[3], float(row[4])) for row in rows if len(row) == 5]

    def scontrol(self, *words: str, user: str = USER, check: bool = True) -> str:
        return self.call(["scontrol", *words], user=user, check=check)

    def job(self, job_id: int | str) -> dict[str, str]:
        """What scontrol says of a job."""
        text = self.scontrol("show", "-o", "job", str(job_id))
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def node_states(self) -> dict[str, str]:
        text = self.call(["sinfo", "-h", "-N", "-p", PARTITION, "-o", "%N %t"], check=False)
        return dict(line.split() for line in text.splitlines() if len(line.split()) == 2)

    def wait(self, until: object, timeout_s: float = WAIT_S, what: str = "") -> None:
        assert callable(until)
        end_s = time.monotonic() + timeout_s
        while not until():
            if time.monotonic() > end_s:
                raise AssertionError(f"waited {timeout_s} s in vain{': ' + what if what else ''}\n{self.last_words()}")
            time.sleep(0.03)

    def last_words(self) -> str:
        """What a failing test shows of the cluster."""
        path = self.folder / "log" / "slurmctld.log"
        log = path.read_text(errors="replace").splitlines()[-15:] if path.exists() else ["no controller log"]
        jobs = self.call(["squeue", "-a", "-o", "%A %t %u %P %b %N %r"], check=False).splitlines()[:20]
        nodes = self.call(["sinfo", "-a", "-N", "-o", "%N %T %E"], check=False).splitlines()
        return "\n".join([*log, *jobs, *nodes])


@contextlib.contextmanager
def slurm_rig(spec: RigSpec | None = None) -> Iterator[SlurmRig]:
    with SlurmRig(spec) as rig:
        yield rig


def link_plugins(folder: Path) -> None:
    """Slurm's plug-ins in a folder of one's own: an installation adds to it, and must not touch the machine's."""
    (found,) = {path.parent for pattern in PLUGIN_DIRS for path in Path("/").glob(f"{pattern[1:]}/job_submit_lua.so")}
    for path in found.iterdir():
        (folder / path.name).symlink_to(path)


def _in_memory() -> str:
    """Where a rig lies: nodes without a disk keep their jobs' files in memory, too. Job scripts are run from there."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    return str(memory) if usable and shutil.disk_usage(memory).free > MEMORY_BYTES else "/tmp"


def _free_ports(count: int) -> int:
    """The first of a row of free ports; below the range from which the kernel hands out others."""
    for _ in range(200):
        first = 17000 + secrets.randbelow(14000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(contextlib.closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no row of free ports on loopback")


def _alive(pid: int) -> bool:
    """Zombies do not count: in a container nobody may collect them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _end(pids: Sequence[int], with_signal: int, patience_s: float) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, with_signal)
    end_s = time.monotonic() + patience_s
    while any(map(_alive, pids)) and time.monotonic() < end_s:
        time.sleep(0.02)


def _child(pid: int) -> int:
    """A process that this one started, 0 if none."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(children[0]) if children else 0
