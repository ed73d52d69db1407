"""Put smartmig's submit script, kick plug-in and shim into a Slurm installation, and take them out again."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from smartmig import __version__
from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.paths import Installed
from smartmig.adapters.slurm.slurm_conf import SlurmConf, with_tuning, with_words
from smartmig.atomic import atomic_write
from smartmig.errors import InputError, SmartmigError

BUILD_S = 120.0
PLUGIN_DIRS = ("/usr/lib/*/slurm-wlm", "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm")
OUR_SCRIPT = "-- smartmig:"
_HOLDS = re.compile(r"\.priority\s*=\s*0\b")


class InstallError(SmartmigError):
    """The machine lacks something, or somebody else is in charge."""


@dataclass(frozen=True)
class Changes:
    """What an installation would do."""

    paths: Installed
    partition: str
    before: SlurmConf
    after: SlurmConf
    settings: dict[str, str]
    files: dict[Path, str]
    """text files to write"""
    builds: dict[Path, list[str]]
    """shared objects, and how each is built"""
    daemon_uid: int

    @property
    def diff(self) -> str:
        name = str(self.before.path)
        lines = difflib.unified_diff(self.before.lines, self.after.lines, name, name, lineterm="", n=1)
        return "\n".join(lines)

    @property
    def already_there(self) -> bool:
        return not self.diff and all(_reads(path) == text for path, text in self.files.items())


@dataclass(frozen=True)
class Wishes:
    """What to install."""

    partition: str
    kick: bool = True
    """the plug-in that lets Slurm look at a released job at once"""
    tune: bool = True
    """SchedulerParameters that let it look once a second"""
    shim: bool = True
    """the library over libslurm; without it scontrol is used"""
    mode: str = "shadow"
    """of the daemon in the systemd unit"""


def plan_install(paths: Installed, wishes: Wishes) -> Changes:
    """Look, and refuse what cannot work; nothing is written."""
    partition = wishes.partition
    conf = SlurmConf.read(paths.conf)
    known = conf.partitions()
    if partition not in known:
        raise InputError(f"{paths.conf}: no partition '{partition}'. Known: {', '.join(known) or 'none'}.")
    _refuse_others(paths, conf, partition)
    words = ("lua", "smartmig_kick") if wishes.kick else ("lua",)
    settings = {"JobSubmitPlugins": with_words(conf.get("JobSubmitPlugins"), words)}
    if wishes.kick:
        folders = conf.get("PluginDir") or _plugin_dir()
        settings["PluginDir"] = ":".join(dict.fromkeys([*folders.split(":"), str(paths.plugins)]))
    if wishes.tune:
        settings["SchedulerParameters"] = with_tuning(conf.get("SchedulerParameters"))
    daemon_uid = _uid(conf.get("SlurmUser"))
    site = _reads(paths.script)
    script = {
        "PARTITION": partition,
        "DAEMON_UID": str(daemon_uid),
        "OFF_FILE": str(paths.off_file),
        "SITE_SCRIPT": str(paths.site_script) if _has_site_script(paths, site) else "",
        "HELD_MARK": marks.HELD,
        "PARKED_MARK": marks.PARKED,
        "USER_HOLD": marks.USER_HOLD,
    }
    unit = {
        "SMARTMIG": str(Path(sys.executable).with_name("smartmig")),
        "PARTITION": partition,
        "CONFIG": str(paths.config),
        "UNIT": str(paths.unit),
        "USER": conf.get("SlurmUser") or "root",
        "MODE": wishes.mode,
    }
    builds = {paths.shim: ["smartmig_slurm.c", "-lslurm"]} if wishes.shim else {}
    if wishes.kick:
        builds[paths.kick] = ["job_submit_smartmig_kick.c"]
    return Changes(
        paths=paths,
        partition=partition,
        before=conf,
        after=conf.with_settings(settings),
        settings=settings,
        files={paths.script: _filled("job_submit.lua", script), paths.unit: _filled("smartmig-slurm.service", unit)},
        builds=builds,
        daemon_uid=daemon_uid,
    )


def install(changes: Changes) -> None:
    """Write it all; slurm.conf last, so that it never names what is not there."""
    paths = changes.paths
    had = read_manifest(paths)
    try:
        paths.plugins.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{paths.folder}: cannot write: {error.strerror}") from None
    for target, how in changes.builds.items():
        _build(target, how)
    if had is None:
        with atomic_write(paths.conf_backup) as file:
            file.write(changes.before.text)
        # Nobody is there yet to start what is held: holding begins when a daemon takes over.
        paths.off_file.touch()
        site = _reads(paths.script)
        if site is not None and not site.startswith(OUR_SCRIPT):
            with atomic_write(paths.site_script) as file:
                file.write(site)
            shutil.copymode(paths.script, paths.site_script)
    manifest = {
        "smartmig": __version__,
        "partition": changes.partition,
        "host": socket.gethostname(),
        "settings": changes.settings,
        "lines_before": had["lines_before"]
        if had is not None
        else {key: changes.before.line_of(key) for key in changes.settings},
        "conf_sha256": hashlib.sha256(changes.after.text.encode()).hexdigest(),
    }
    with atomic_write(paths.manifest) as file:
        file.write(json.dumps(manifest, indent=2) + "\n")
    for path, text in changes.files.items():
        with atomic_write(path) as file:
            file.write(text)
        path.chmod(0o644)
    if changes.diff:
        _replace_conf(paths.conf, changes.after.text)
    if os.geteuid() == 0:
        # The daemon may run as Slurm's user, and must be able to set and clear the switch.
        os.chown(paths.folder, changes.daemon_uid, -1)


def uninstall(paths: Installed) -> tuple[str, ...]:
    """Everything as it was; what was done, in sentences. The jobs we hold must be released before."""
    manifest = read_manifest(paths)
    if manifest is None:
        raise InputError(f"{paths.folder}: smartmig is not installed there")
    done = []
    conf = SlurmConf.read(paths.conf)
    if hashlib.sha256(conf.text.encode()).hexdigest() == manifest["conf_sha256"]:
        if conf.text != paths.conf_backup.read_text(encoding="utf-8"):
            _replace_conf(paths.conf, paths.conf_backup.read_text(encoding="utf-8"))
        done.append(f"{paths.conf}: as it was before the installation")
    else:
        undone = conf.without_settings(manifest["settings"], manifest["lines_before"])
        _replace_conf(paths.conf, undone.text)
        done.append(f"{paths.conf}: it was changed after the installation, so only our settings were undone")
    if paths.site_script.exists():
        with atomic_write(paths.script) as file:
            file.write(paths.site_script.read_text(encoding="utf-8"))
        shutil.copymode(paths.site_script, paths.script)
        done.append(f"{paths.script}: the site's own script is back")
    else:
        paths.script.unlink(missing_ok=True)
        done.append(f"{paths.script}: removed")
    shutil.rmtree(paths.folder)
    done.append(f"{paths.folder}: removed")
    return tuple(done)


def read_manifest(paths: Installed) -> dict[str, Any] | None:
    text = _reads(paths.manifest)
    if text is None:
        return None
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        found = {}
    if not {"settings", "lines_before", "conf_sha256", "partition"} <= set(found):
        raise InputError(f"{paths.manifest}: cannot be read; restore {paths.conf_backup} by hand")
    return found


def _refuse_others(paths: Installed, conf: SlurmConf, partition: str) -> None:
    """Two controllers that start the same jobs would fight."""
    mine = read_manifest(paths)
    if mine is not None and mine["partition"] != partition:
        raise InstallError(
            f"{paths.manifest}: smartmig is in charge of partition '{mine['partition']}' here; "
            "run `smartmig slurm uninstall` first"
        )
    script = _reads(paths.script)
    if script is not None and not script.startswith(OUR_SCRIPT):
        for number, line in enumerate(script.splitlines(), start=1):
            if _HOLDS.search(line.partition("--")[0]):
                raise InstallError(
                    f"{paths.script}:{number}: this script holds jobs for another controller; only one can be in charge"
                )
    if script is not None and script.startswith(OUR_SCRIPT) and mine is None:
        raise InstallError(
            f"{paths.script}: was written by a smartmig whose folder {paths.folder} is gone; remove it by hand"
        )
    scheduler = conf.get("SchedulerType")
    if scheduler.startswith("sched/wiki"):
        raise InstallError(f"{paths.conf}: SchedulerType={scheduler}: Maui or Moab is in charge of this cluster")


def _has_site_script(paths: Installed, script: str | None) -> bool:
    return paths.site_script.exists() or (script is not None and not script.startswith(OUR_SCRIPT))


def _replace_conf(path: Path, text: str) -> None:
    """Keeps the owner and mode that Slurm reads it with."""
    status = path.stat()
    with atomic_write(path) as file:
        file.write(text)
    path.chmod(status.st_mode & 0o7777)
    if os.geteuid() == 0:
        os.chown(path, status.st_uid, status.st_gid)


def _build(target: Path, how: list[str]) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise InstallError("gcc: not found; install it with: apt-get install gcc libslurm-dev")
    source = files("smartmig.adapters.slurm") / "native" / how[0]
    # Beside the target and renamed, because a running slurmctld has the old one open.
    fresh = target.with_name(f".{target.name}.new")
    command = [compiler, "-O2", "-fPIC", "-shared", "-x", "c", "-", "-o", str(fresh), *how[1:]]
    done = subprocess.run(
        command, input=source.read_text(encoding="utf-8"), capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode != 0:
        why = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise InstallError(
            f"{how[0]}: cannot be built: {why}; are Slurm's headers there (apt-get install libslurm-dev)?"
        )
    fresh.replace(target)


def _plugin_dir() -> str:
    for pattern in PLUGIN_DIRS:
        for folder in sorted(Path("/").glob(pattern.lstrip("/"))):
            if (folder / "job_submit_lua.so").exists():
                return str(folder)
    looked = ", ".join(PLUGIN_DIRS)
    raise InstallError(f"job_submit_lua.so: not found in {looked}; install slurm-wlm-basic-plugins or set PluginDir")


def _uid(name: str) -> int:
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name or "root").pw_uid
    except KeyError:
        raise InputError(f"SlurmUser={name}: no such user on this machine") from None


def _filled(name: str, values: dict[str, str]) -> str:
    text = (files("smartmig.adapters.slurm") / "native" / name).read_text(encoding="utf-8")
    for key, value in values.items():
        if any(letter in value for letter in '"\\\n'):
            raise InputError(f"{key}: '{value}' cannot stand in {name}: it has a quote, a backslash or a line end")
        text = text.replace(f"@{key}@", value)
    return text


def _reads(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {getattr(error, 'strerror', error)}") from None
