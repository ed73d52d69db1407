"""`smartmig slurm`: put smartmig into a Slurm installation, and take it out."""

from __future__ import annotations

import os
import subprocess
from typing import Annotated

import typer

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.install import (
    Changes,
    InstallError,
    Wishes,
    install,
    plan_install,
    read_manifest,
    uninstall,
    why_daemon_cannot_start,
)
from smartmig.adapters.slurm.keeper import name_of, release_all
from smartmig.adapters.slurm.paths import Installed, switch_off
from smartmig.adapters.slurm.scontrol import Scontrol
from smartmig.adapters.slurm.states import JobState
from smartmig.adapters.slurm.translate import held_by_others
from smartmig.cli.console import Json, log, print_json
from smartmig.control.switch import Mode
from smartmig.errors import AdapterError, InputError

UNIT = "smartmig-slurm"
RELEASE_S = 300.0
ASK_S = 10.0

app = typer.Typer(help="Connect smartmig to a Slurm cluster.", no_args_is_help=True)

Config = Annotated[str, typer.Option(help="Folder of slurm.conf. Left out: that of $SLURM_CONF, else /etc/slurm.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")]


@app.command("install")
def install_(
    partition: Annotated[str, typer.Option(help="Its GPU jobs will wait for smartmig.")],
    config: Config = "",
    dry_run: DryRun = False,
    kick: Annotated[bool, typer.Option(help="The plug-in that lets Slurm look at a released job at once.")] = True,
    tune: Annotated[bool, typer.Option(help="SchedulerParameters that let Slurm look once a second.")] = True,
    shim: Annotated[bool, typer.Option(help="The library that talks to Slurm directly; without it: scontrol.")] = True,
    mode: Annotated[str, typer.Option(help="Of the daemon in the systemd unit: observe, shadow or act.")] = "shadow",
    as_json: Json = False,
) -> None:
    """Hold the partition's GPU jobs for smartmig: a submit script, a plug-in, a shim, and two lines of slurm.conf."""
    if mode not in list(Mode):
        raise InputError(f"--mode: got '{mode}', allowed are {', '.join(Mode)}")
    changes = plan_install(Installed.find(config), Wishes(partition, kick, tune, shim, mode))
    nothing_new = changes.already_there
    if not dry_run:
        install(changes)
    trouble = why_daemon_cannot_start(changes.daemon_uid)
    if as_json:
        print_json(_as_json(changes, dry_run) | {"warnings": [trouble] if trouble else []})
        return
    verb = "would write" if dry_run else "kept" if nothing_new else "wrote"
    for path in (*changes.files, *changes.builds):
        typer.echo(f"{verb} {path}")
    typer.echo(changes.diff or f"{changes.before.path}: nothing to change")
    if trouble:
        log(trouble)
    if not dry_run and not nothing_new:
        log("restart slurmctld for it to take effect: systemctl restart slurmctld")


@app.command("uninstall")
def uninstall_(
    config: Config = "",
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Even if held jobs cannot be released.")] = False,
) -> None:
    """Release every job that smartmig holds, then put everything back as it was."""
    paths = Installed.find(config)
    manifest = read_manifest(paths)
    if manifest is None:
        raise InputError(f"{paths.folder}: smartmig is not installed there")
    if dry_run:
        typer.echo(f"would release the jobs held in partition {manifest['partition']}")
        typer.echo(f"would restore {paths.conf} and {paths.script}, and remove {paths.folder}")
        return
    if not force and _daemon_runs(paths):
        raise InstallError(
            "nothing is uninstalled: the daemon runs, and would hold again what is released; "
            f"stop it first: systemctl disable --now {UNIT}"
        )
    partition = manifest["partition"]
    # By its commands: Slurm's library ends the process over a configuration it does not like.
    scontrol = Scontrol(paths.conf)
    try:
        switch_off(paths.off_file)
    except OSError as error:
        raise InputError(f"{paths.off_file}: cannot write: {error.strerror}") from None
    left = ""
    try:
        typer.echo(f"{release_all(scontrol, scontrol, partition, RELEASE_S)} held jobs released")
    except AdapterError as error:
        if not force:
            raise AdapterError(
                "nothing is uninstalled, for what smartmig holds would be held for ever "
                f"(call it again when Slurm takes changes, or with --force): {error}"
            ) from None
        left = _still_held(scontrol, partition)
    for line in uninstall(paths):
        typer.echo(line)
    if left:
        log(left)
    log("restart slurmctld for it to take effect: systemctl restart slurmctld")


def _daemon_runs(paths: Installed) -> bool:
    """As a unit of systemd, and this one: another controller's on the same machine does not count."""
    asked = ["systemctl", "show", UNIT, "--property=ActiveState,FragmentPath"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    values = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    ours = os.path.realpath(values.get("FragmentPath", "")) == os.path.realpath(paths.unit)
    return ours and values.get("ActiveState") in ("active", "activating", "reloading")


def _still_held(scontrol: Scontrol, partition: str) -> str:
    """A sentence with what to type."""
    try:
        jobs = scontrol.jobs(partition, ASK_S)
    except AdapterError:
        look = f"squeue --partition={partition} --states=PENDING --Format=JobID,Reason,admin_comment"
        return (
            f"jobs of partition '{partition}' may stay held: those whose AdminComment begins with smartmig (`{look}`); "
            "release them with `scontrol release JOBID`"
        )
    in_order = sorted(jobs, key=lambda job: job.job_id)
    pending = [job for job in in_order if job.base_state == JobState.PENDING and marks.is_ours(job.admin_comment)]
    held = [name_of(job) for job in pending if job.priority == 0 and not held_by_others(job)]
    parked = [name_of(job) for job in pending if marks.read_parked(job.admin_comment) is not None and job.priority]
    said = []
    if held:
        said.append(f"{len(held)} jobs stay held; release them with `scontrol release {','.join(held)}`")
    if parked:
        update = f"scontrol update JobId={','.join(parked)} StartTime=now"
        said.append(f"{len(parked)} jobs wait for a date far away; let them go with `{update}`")
    return "; ".join(said)


def _as_json(changes: Changes, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "partition": changes.partition,
        "files": [str(path) for path in (*changes.files, *changes.builds)],
        "settings": changes.settings,
        "diff": changes.diff,
    }
