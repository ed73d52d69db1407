"""Putting smartmig into a Slurm installation and taking it out again."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from slurm_rig import USER, RigSpec, SlurmRig, missing
from slurm_site import SMARTMIG, smartmig
from typer.testing import CliRunner

from smartmig.adapters.slurm.install import InstallError
from smartmig.cli.slurm import app
from smartmig.errors import InputError, SmartmigError

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

CONF = """ClusterName=x
SlurmctldHost=localhost
SlurmUser=nobody
MessageTimeout=1
JobSubmitPlugins=throttle
SchedulerParameters=bf_continue
NodeName=n1 Gres=gpu:4
PartitionName=gpu Nodes=n1 Default=YES
PartitionName=cpu Nodes=n1
"""


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A folder of slurm.conf, beside one of plug-ins: the machine's own stay as they are."""
    etc = tmp_path / "etc"
    for name in ("etc", "plugins"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugins" / "job_submit_lua.so").touch()
    (etc / "slurm.conf").write_text(f"{CONF}PluginDir={tmp_path}/plugins\n")
    return etc


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(*words: object) -> str:
    """In this process, because starting another takes longer than the work."""
    done = CliRunner().invoke(app, list(map(str, words)))
    if done.exception is not None:
        raise done.exception
    return done.stdout


def install(etc: Path, *flags: str, partition: str = "gpu") -> str:
    return run("install", "--partition", partition, "--config", etc, *flags)


def leave(etc: Path) -> str:
    """By force, where there is no controller to ask."""
    return run("uninstall", "--config", etc, "--force")


def test_install__dry_run_says_it_all_and_writes_nothing(etc: Path) -> None:
    before = snapshot(etc)
    said = install(etc, "--dry-run")
    assert snapshot(etc) == before
    assert f"would write {etc}/job_submit.lua" in said
    assert "-JobSubmitPlugins=throttle\n" in said
    assert "+JobSubmitPlugins=throttle,lua,smartmig_kick\n" in said
    assert "+SchedulerParameters=bf_continue,batch_sched_delay=0" in said


def test_install__twice_is_once_and_uninstall_restores(etc: Path) -> None:
    before = snapshot(etc)
    (etc / "slurm.conf").chmod(0o640)
    first = json.loads(install(etc, "--json"))
    assert set(first["settings"]) == {"JobSubmitPlugins", "SchedulerParameters"}
    kick = etc.parent / "plugins" / "job_submit_smartmig_kick.so"
    assert str(kick) in first["files"]
    assert kick.exists()
    after = snapshot(etc)
    assert "nothing to change" in install(etc)
    again = snapshot(etc)
    built = {name for name in after if name.endswith(".so")}
    assert built == {"smartmig/libsmartmig_slurm.so"}
    assert {name: again[name] for name in again if name not in built} == {
        name: after[name] for name in after if name not in built
    }
    # Until a daemon takes over nothing is held.
    assert "smartmig/off" in after
    assert oct((etc / "slurm.conf").stat().st_mode)[-3:] == "640"
    leave(etc)
    assert snapshot(etc) == before
    assert not kick.exists()
    with pytest.raises(InputError, match="not installed"):
        run("uninstall", "--config", etc)


def test_install__without_a_place_for_the_kick_says_so(etc: Path) -> None:
    (etc.parent / "plugins" / "job_submit_lua.so").unlink()
    with pytest.raises(InstallError, match=f"job_submit_lua.so: not found in {etc.parent}/plugins"):
        install(etc)


def test_uninstall__keeps_what_was_changed_since(etc: Path) -> None:
    conf = etc / "slurm.conf"
    before = conf.read_text()
    install(etc, "--no-kick", "--no-shim", "--no-tune")
    conf.write_text(conf.read_text() + "NodeName=n2 Gres=gpu:4\n")
    leave(etc)
    assert conf.read_text() == before + "NodeName=n2 Gres=gpu:4\n"


def test_install__again_keeps_what_was_changed_meanwhile_and_drops_what_is_not_wished(etc: Path) -> None:
    conf, kick = etc / "slurm.conf", etc.parent / "plugins" / "job_submit_smartmig_kick.so"
    before = conf.read_text()
    install(etc, "--no-tune")
    assert kick.exists()
    conf.write_text(conf.read_text() + "NodeName=n2 Gres=gpu:4\n")
    own = "-- of the site, written since\n"
    (etc / "job_submit.lua").write_text(own)
    install(etc, "--no-kick", "--no-shim")
    assert "JobSubmitPlugins=throttle,lua\n" in conf.read_text()
    assert "sched_interval=1" in conf.read_text()
    assert not list(etc.parent.rglob("*smartmig*.so"))
    leave(etc)
    assert conf.read_text() == before + "NodeName=n2 Gres=gpu:4\n"
    assert (etc / "job_submit.lua").read_text() == own


def test_uninstall__leaves_a_script_that_took_our_place(etc: Path) -> None:
    install(etc, "--no-kick", "--no-shim")
    (etc / "job_submit.lua").write_text("-- of the site\n")
    assert "stays" in leave(etc)
    assert (etc / "job_submit.lua").read_text() == "-- of the site\n"


@pytest.mark.parametrize(
    "plugins",
    ["", "JobSubmitPlugins=pack\nJobSubmitPlugins=throttle\n", "jobsubmitplugins = throttle  # of the site\n"],
)
def test_uninstall__restores_whatever_was_there(etc: Path, plugins: str) -> None:
    """Byte for byte; a linked slurm.conf stays a link."""
    conf, shared = etc / "slurm.conf", etc.parent / "shared.conf"
    shared.write_text(conf.read_text().replace("JobSubmitPlugins=throttle\n", plugins))
    before = shared.read_bytes()
    conf.unlink()
    conf.symlink_to(shared)
    install(etc, "--no-kick", "--no-shim")
    set_lines = [line for line in shared.read_text().splitlines() if line.lower().startswith("jobsubmitplugins")]
    assert set_lines[-1] == ("JobSubmitPlugins=throttle,lua" if plugins else "JobSubmitPlugins=lua")
    leave(etc)
    assert conf.is_symlink()
    assert shared.read_bytes() == before


@pytest.mark.parametrize("active", [True, False])
def test_uninstall__asks_to_stop_the_daemon_first(
    etc: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, active: bool
) -> None:
    """It would hold again what is released."""
    install(etc, "--no-kick", "--no-shim")
    unit = tmp_path / "smartmig-slurm.service"
    unit.symlink_to(etc / "smartmig" / "smartmig-slurm.service")  # as `systemctl enable` does
    state = "active" if active else "inactive"
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\necho FragmentPath={unit}\necho ActiveState={state}\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    before = snapshot(etc)
    refusal = "stop it first: systemctl disable --now smartmig-slurm" if active else "nothing is uninstalled"
    with pytest.raises(SmartmigError, match=refusal):
        run("uninstall", "--config", etc)
    assert snapshot(etc) == before
    leave(etc)
    assert not (etc / "smartmig").exists()


def test_install__everybody_may_read_what_slurmctld_must(etc: Path) -> None:
    before = os.umask(0o077)
    try:
        install(etc, "--no-shim")
    finally:
        os.umask(before)
    folder = etc / "smartmig"
    kick = etc.parent / "plugins" / "job_submit_smartmig_kick.so"
    read = (folder, folder / "off", kick, etc / "job_submit.lua")
    modes = {path.name: oct(path.stat().st_mode)[-3:] for path in read}
    assert modes == {"smartmig": "755", "off": "644", kick.name: "755", "job_submit.lua": "644"}


def test_install__that_fails_leaves_nothing_behind(etc: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = snapshot(etc.parent)
    (tmp_path / "gcc").write_text("#!/bin/sh\necho 'x.c:1: error: no slurm.h' >&2\nexit 1\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(InstallError, match=r"cannot be built: x\.c:1"):
        install(etc)
    (tmp_path / "gcc").unlink()
    assert snapshot(etc.parent) == before
    assert not (etc / "smartmig").exists()


@pytest.mark.parametrize("again", [False, True])
def test_install__whose_slurm_conf_cannot_be_written_changes_nothing(etc: Path, again: bool) -> None:
    """A file that something is mounted on can be read, but not replaced."""
    (etc / "job_submit.lua").write_text("-- of the site\n")
    if again:
        install(etc, "--no-kick")
    conf = etc / "slurm.conf"
    conf.write_text(conf.read_text() + "NodeName=n2\n")
    before = snapshot(etc.parent)
    mounted = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', str(conf)]
    if subprocess.run([*mounted, "true"], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here: run the tests in a container with CAP_SYS_ADMIN")
    words = [*mounted, str(SMARTMIG), "slurm", "install", "--partition", "gpu", "--config", str(etc)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{conf}: cannot write" in done.stderr
    assert snapshot(etc.parent) == before
    assert (etc / "smartmig").exists() == again


def test_site_script__stays_readable_for_slurmctld(etc: Path) -> None:
    script, nobody = etc / "job_submit.lua", pwd.getpwnam(USER)
    script.write_text("-- of the site\n")
    script.chmod(0o600)
    os.chown(script, nobody.pw_uid, nobody.pw_gid)
    before = script.stat()
    install(etc, "--no-kick", "--no-shim")
    kept = (etc / "smartmig" / "job_submit.site.lua").stat()
    assert (kept.st_uid, kept.st_gid, kept.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    leave(etc)
    back = script.stat()
    assert (back.st_uid, back.st_gid, back.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_install__refuses_a_slurm_that_is_too_old(etc: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slurmctld").write_text("#!/bin/sh\necho slurm 21.08.8\n")
    (tmp_path / "slurmctld").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(InstallError, match=r"Slurm 21\.08\.8 is too old: 22\.05 or later"):
        install(etc)


def test_install__says_when_the_daemon_could_not_start(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the user that the unit names: root may read what it may not."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are root's alone
        python = shutil.copy("/bin/true", folder)
        monkeypatch.setattr("sys.executable", python)
        for mode, warns in ((0o755, False), (0o700, True)):
            Path(folder).chmod(mode)
            warnings = json.loads(install(etc, "--dry-run", "--json"))["warnings"]
            assert [f"{python}: user 'nobody', as whom" in one for one in warnings] == [True] * warns


def test_install__without_gcc_uses_scontrol(etc: Path) -> None:
    said = json.loads(install(etc, "--no-kick", "--no-shim", "--no-tune", "--json"))
    assert said["settings"] == {"JobSubmitPlugins": "throttle,lua"}
    assert not list(etc.rglob("*.so"))


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("job_submit.lua", "function f(j)\n  j.priority = 0\nend\n", "job_submit.lua:2: this script holds jobs"),
        ("slurm.conf", CONF + "SchedulerType=sched/wiki2\n", "Maui or Moab is in charge"),
        ("job_submit.lua", "-- smartmig: an old one\n", "is gone; remove it by hand"),
    ],
)
def test_install__refuses_where_another_controller_left_its_mark(
    etc: Path, file: str, text: str, sentence: str
) -> None:
    (etc / file).write_text(text)
    before = snapshot(etc)
    with pytest.raises(InstallError, match=sentence):
        install(etc)
    assert snapshot(etc) == before


def test_install__refuses_what_cannot_be(etc: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no partition 'nope'. Known: gpu, cpu."):
        install(etc, partition="nope")
    with pytest.raises(InputError, match="cannot read"):
        install(tmp_path / "nowhere")
    install(etc, "--no-kick", "--no-shim")
    with pytest.raises(InstallError, match="in charge of partition 'gpu'"):
        install(etc, partition="cpu")


def test_site_script__is_asked_first_and_comes_back() -> None:
    """On a real controller: the site refuses jobs of one name, smartmig holds the others."""
    own = """function slurm_job_submit(job, parts, uid)
  if job.name == "bad" then return slurm.ERROR end
  job.comment = "seen by the site"
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
    with SlurmRig() as rig:
        script = rig.etc / "job_submit.lua"
        script.write_text(own)
        install(rig.etc)
        (rig.etc / "smartmig" / "off").unlink()
        rig.restart_controller()
        assert "error" in rig.call(["sbatch", "-J", "bad", str(rig.script(0))], check=False)
        job = rig.job(rig.sbatch("--gres=gpu:1"))
        assert (job["Priority"], job["AdminComment"]) == ("0", "smartmig")
        assert "seen by the site" in rig.scontrol("show", "-o", "job", job["JobId"])
        said = run("uninstall", "--config", rig.etc)
        assert "1 held jobs released" in said
        assert script.read_text() == own
        assert rig.job(job["JobId"])["Priority"] != "0"


@pytest.mark.parametrize("way", ["uninstalled", "removed by hand"])
def test_script__holds_nothing_once_smartmig_is_gone(way: str) -> None:
    """slurmctld goes on with the script that it has loaded until it is restarted. On the way: it takes quoted lists."""
    with SlurmRig(RigSpec(n_gpu_nodes=1, n_mig_nodes=0, extra='JobSubmitPlugins="throttle"\n')) as rig:
        conf = rig.conf.read_bytes()
        install(rig.etc, "--no-shim")
        rig.restart_controller()
        (rig.etc / "smartmig" / "off").unlink()
        before = rig.sbatch("--gres=gpu:1")
        assert rig.job(before)["Priority"] == "0"
        if way == "uninstalled":
            run("uninstall", "--config", rig.etc)
            assert rig.conf.read_bytes() == conf
        else:
            shutil.rmtree(rig.etc / "smartmig")
        job = rig.sbatch("--gres=gpu:1")
        rig.wait(lambda: rig.job(job)["JobState"] == "COMPLETED", 30, "it runs although slurmctld was not restarted")
        rig.restart_controller()
        assert rig.job(rig.sbatch("--gres=gpu:1"))["Priority"] != "0"


def test_uninstall__keeps_everything_while_held_jobs_cannot_be_released(monkeypatch: pytest.MonkeyPatch) -> None:
    with SlurmRig(RigSpec(n_gpu_nodes=1, n_mig_nodes=0)) as rig:
        install(rig.etc, "--no-shim")
        rig.restart_controller()
        (rig.etc / "smartmig" / "off").unlink()
        jobs = [rig.sbatch("--gres=gpu:1") for _ in range(2)]
        rig.stop_controller()
        before = snapshot(rig.folder)
        refused = smartmig("slurm", "uninstall", "--config", rig.etc, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "nothing is uninstalled" in refused.stderr
        # New jobs are not held meanwhile.
        assert snapshot(rig.folder) == before | {"etc/smartmig/off": b""}
        rig.start_controller()
        # It answers, but takes no change.
        scontrol = rig.folder / "jobs" / "scontrol"
        deaf = 'echo "Unable to contact slurm controller" >&2; exit 1'
        scontrol.write_text(
            f'#!/bin/sh\ncase "$1" in update|release) {deaf};; esac\nexec {shutil.which("scontrol")} "$@"\n'
        )
        scontrol.chmod(0o755)
        monkeypatch.setenv("PATH", str(scontrol.parent), prepend=":")
        forced = smartmig("slurm", "uninstall", "--config", rig.etc, "--force")
        assert not (rig.etc / "smartmig").exists()
        assert not (rig.etc / "job_submit.lua").exists()
        assert f"2 jobs stay held; release them with `scontrol release {jobs[0]},{jobs[1]}`" in forced.stderr
        rig.scontrol("release", f"{jobs[0]},{jobs[1]}", user="root")
        assert "0" not in {rig.job(job)["Priority"] for job in jobs}


def test_uninstall__by_force_says_how_to_find_what_stays_held(etc: Path) -> None:
    install(etc, "--no-kick", "--no-shim")
    said = smartmig("slurm", "uninstall", "--config", etc, "--force").stderr
    assert "jobs of partition 'gpu' may stay held" in said
    assert "`scontrol release JOBID`" in said
