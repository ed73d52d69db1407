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
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from smartmig import __version__
from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.paths import Installed, switch_off
from smartmig.adapters.slurm.slurm_conf import SlurmConf, with_tuning, with_words
from smartmig.adapters.slurm.version import slurm_version, why_too_old
from smartmig.atomic import atomic_write
from smartmig.errors import InputError, SmartmigError

BUILD_S = 120.0
ASK_S = 10.0
PLUGIN_DIRS = ("/usr/lib/*/slurm-wlm", "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm")
"""Where packages put Slurm's plug-ins, for a controller that does not answer."""
LUA_PLUGIN, KICK_PLUGIN = "job_submit_lua.so", "job_submit_smartmig_kick.so"
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
    """slurm.conf as it is"""
    without_us: SlurmConf
    """as it is, but for what an earlier installation set"""
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
    why = why_too_old(slurm_version())
    if why:
        raise InstallError(why)
    now = SlurmConf.read(paths.conf)
    conf = _without_us(paths, now)
    known = conf.partitions()
    if partition not in known:
        raise InputError(f"{paths.conf}: no partition '{partition}'. Known: {', '.join(known) or 'none'}.")
    _refuse_others(paths, conf, partition)
    words = ("lua", "smartmig_kick") if wishes.kick else ("lua",)
    settings = {"JobSubmitPlugins": with_words(conf.get("JobSubmitPlugins"), words)}
    if wishes.tune:
        settings["SchedulerParameters"] = with_tuning(conf.get("SchedulerParameters"))
    daemon_uid = _uid(conf.get("SlurmUser"))
    site = _reads(paths.script)
    script = {
        "PARTITION": partition,
        "DAEMON_UID": str(daemon_uid),
        "OFF_FILE": str(paths.off_file),
        "MANIFEST": str(paths.manifest),
        "SITE_SCRIPT": str(paths.site_script) if _has_site_script(paths, site) else "",
        "HELD_MARK": marks.HELD,
        "HOLDING_MARK": marks.HOLDING,
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
        builds[_plugin_folder(conf) / KICK_PLUGIN] = ["job_submit_smartmig_kick.c"]
    return Changes(
        paths=paths,
        partition=partition,
        before=now,
        without_us=conf,
        after=conf.with_settings(settings),
        settings=settings,
        files={paths.unit: _filled("smartmig-slurm.service", unit), paths.script: _filled("job_submit.lua", script)},
        builds=builds,
        daemon_uid=daemon_uid,
    )


def install(changes: Changes) -> None:
    """Write it all; slurm.conf last, so that it never names what is not there. What fails changes nothing."""
    paths = changes.paths
    had = read_manifest(paths)
    # First of all, because that fails most.
    built = {target: _built(how) for target, how in changes.builds.items()}
    stale = [path for path in _built_before(had) if path not in built]
    is_new = not paths.folder.exists()
    before: dict[Path, _Kept | None] = {}
    with _as_sentence(paths.folder):
        try:
            texts = (paths.conf_backup, paths.off_file, paths.site_script, paths.manifest, *changes.files, paths.conf)
            before |= {path: _kept(path) for path in (*texts, *built, *stale)}
            paths.folder.mkdir(parents=True, exist_ok=True)
            _write_files(changes, built, had)
            if os.geteuid() == 0:
                # The daemon may run as Slurm's user, and must be able to set and clear the switch.
                os.chown(paths.folder, changes.daemon_uid, -1)
            if changes.diff:
                _write_like(paths.conf, changes.after.text.encode(), paths.conf.stat())
            for path in stale:
                path.unlink(missing_ok=True)
        except BaseException:
            for path, kept in reversed(before.items()):
                with suppress(OSError, InputError):
                    _put_back(path, kept)
            if is_new:
                shutil.rmtree(paths.folder, ignore_errors=True)
            raise


def _write_files(changes: Changes, built: dict[Path, bytes], had: dict[str, Any] | None) -> None:
    """All but slurm.conf itself; with modes of their own, whatever root's umask: slurmctld runs as another user."""
    paths = changes.paths
    paths.folder.chmod(0o755)
    for target, content in built.items():
        _write(target, content, 0o755)
    _write(paths.conf_backup, changes.without_us.text.encode(), paths.conf.stat().st_mode)
    if had is None:
        # Nobody is there yet to start what is held: holding begins when a daemon takes over.
        switch_off(paths.off_file)
    site = _reads(paths.script)
    if site is not None and not site.startswith(OUR_SCRIPT):
        _write_like(paths.site_script, paths.script.read_bytes(), paths.script.stat())
    manifest = {
        "smartmig": __version__,
        "partition": changes.partition,
        "host": socket.gethostname(),
        "settings": changes.settings,
        "lines_before": {key: changes.without_us.line_of(key) for key in changes.settings},
        "conf_sha256": _sha256(changes.after),
        "built": [str(path) for path in built],
    }
    _write(paths.manifest, (json.dumps(manifest, indent=2) + "\n").encode(), 0o644)
    for path, text in changes.files.items():
        _write(path, text.encode(), 0o644)


def uninstall(paths: Installed) -> tuple[str, ...]:
    """Everything as it was; what was done, in sentences. The jobs we hold must be released before."""
    manifest = read_manifest(paths)
    if manifest is None:
        raise InputError(f"{paths.folder}: smartmig is not installed there")
    with _as_sentence(paths.folder):
        return tuple(_uninstall(paths, manifest))


def _uninstall(paths: Installed, manifest: dict[str, Any]) -> Iterator[str]:
    """One after another; where it breaks off it can be called again."""
    conf = SlurmConf.read(paths.conf)
    before = _without_us(paths, conf)
    if conf != before:
        _write_like(paths.conf, before.text.encode(), paths.conf.stat())
    if _sha256(conf) == manifest["conf_sha256"]:
        yield f"{paths.conf}: as it was before the installation"
    else:
        yield f"{paths.conf}: it was changed after the installation, so only our settings were undone"
    script = _reads(paths.script)
    if script is not None and not script.startswith(OUR_SCRIPT):
        yield f"{paths.script}: is not smartmig's any more, and stays"
    elif paths.site_script.exists():
        _write_like(paths.script, paths.site_script.read_bytes(), paths.site_script.stat())
        yield f"{paths.script}: the site's own script is back"
    else:
        paths.script.unlink(missing_ok=True)
        yield f"{paths.script}: removed"
    for path in _built_before(manifest):
        if path.parent != paths.folder:
            path.unlink(missing_ok=True)
            yield f"{path}: removed"
    # Before the switch: without it the script that slurmctld has loaded holds nothing.
    paths.manifest.unlink()
    shutil.rmtree(paths.folder)
    yield f"{paths.folder}: removed"


def why_daemon_cannot_start(uid: int) -> str:
    """As the unit's user, in one sentence; empty where it can, or where only root could find out."""
    if os.geteuid() != 0 or uid == 0:
        return ""
    try:
        who = pwd.getpwuid(uid)
    except KeyError:
        return f"SlurmUser={uid}: no such user on this machine, so systemd cannot start the daemon"
    try:
        subprocess.run(
            [sys.executable, "-c", "import smartmig"],
            user=uid,
            group=who.pw_gid,
            extra_groups=os.getgrouplist(who.pw_name, who.pw_gid),
            cwd="/",
            env={},
            capture_output=True,
            timeout=ASK_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return (
            f"{sys.executable}: user '{who.pw_name}', as whom the unit runs the daemon, cannot start smartmig from "
            "there; install it where that user may read it, such as /opt/smartmig"
        )
    return ""


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


def _without_us(paths: Installed, conf: SlurmConf) -> SlurmConf:
    """slurm.conf as it would be had smartmig never been installed, with all that others changed since."""
    manifest = read_manifest(paths)
    if manifest is None:
        return conf
    if _sha256(conf) == manifest["conf_sha256"]:
        with suppress(FileNotFoundError):
            return SlurmConf.of(conf.path, paths.conf_backup.read_bytes())
    return conf.without_settings(manifest["settings"], manifest["lines_before"])


def _built_before(manifest: dict[str, Any] | None) -> list[Path]:
    return [Path(name) for name in (manifest or {}).get("built", [])]


def _sha256(conf: SlurmConf) -> str:
    return hashlib.sha256(conf.text.encode()).hexdigest()


@dataclass(frozen=True)
class _Kept:
    """A file as it was."""

    content: bytes
    status: os.stat_result


def _kept(path: Path) -> _Kept | None:
    try:
        return _Kept(path.read_bytes(), path.stat())
    except FileNotFoundError:
        return None


def _put_back(path: Path, kept: _Kept | None) -> None:
    if kept is None:
        path.unlink(missing_ok=True)
    elif (now := _kept(path)) is None or now.content != kept.content:
        _write_like(path, kept.content, kept.status)


def _write(path: Path, content: bytes, mode: int) -> None:
    with atomic_write(path, "wb") as file:
        os.fchmod(file.fileno(), mode & 0o7777)
        file.write(content)


def _write_like(path: Path, content: bytes, status: os.stat_result) -> None:
    """With owner and mode, since Slurm's user must be able to read it."""
    with atomic_write(path, "wb") as file:
        if os.geteuid() == 0:
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.fchmod(file.fileno(), status.st_mode & 0o7777)
        file.write(content)


@contextmanager
def _as_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot write: {error.strerror}") from None


def _built(how: list[str]) -> bytes:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise InstallError(
            "gcc: not found; install it with: apt-get install gcc libslurm-dev, or go without: --no-shim --no-kick"
        )
    source = files("smartmig.adapters.slurm") / "native" / how[0]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "built.so"
        command = [compiler, "-O2", "-fPIC", "-shared", "-x", "c", "-", "-o", str(target), *how[1:]]
        text = source.read_text(encoding="utf-8")
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=BUILD_S, check=False)
        except subprocess.TimeoutExpired:
            raise InstallError(f"{how[0]}: was not built within {BUILD_S:g} s") from None
        if done.returncode != 0:
            why = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
            raise InstallError(
                f"{how[0]}: cannot be built: {why}; are Slurm's headers there (apt-get install libslurm-dev)?"
            )
        return target.read_bytes()


def _plugin_folder(conf: SlurmConf) -> Path:
    """Where slurmctld finds its plug-ins. Another folder would have to stand in slurm.conf, which clients and nodes
    read as well: Slurm's commands refuse to start where a folder of PluginDir is missing."""
    named = [Path(name) for name in (conf.get("PluginDir") or _said_plugin_dir(conf.path)).split(":") if name]
    known = [found for pattern in PLUGIN_DIRS for found in sorted(Path("/").glob(pattern.lstrip("/")))]
    for folder in named or known:
        if (folder / LUA_PLUGIN).exists():
            return folder
    looked = ", ".join(map(str, named)) or ", ".join(PLUGIN_DIRS)
    raise InstallError(f"{LUA_PLUGIN}: not found in {looked}; install slurm-wlm-basic-plugins or set PluginDir")


def _said_plugin_dir(conf: Path) -> str:
    """By the controller, if it answers; else empty."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "config"],
            env={**os.environ, "SLURM_CONF": str(conf)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"^PluginDir\s*=\s*(\S+)", done.stdout, re.MULTILINE)
    return found[1] if found is not None else ""


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
