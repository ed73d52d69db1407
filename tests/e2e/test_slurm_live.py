"""smartmig in charge of a partition of a real Slurm: a controller, eight node daemons, fake GPUs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from slurm_rig import missing
from slurm_site import Site, slurm_site, smartmig

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def running_site() -> Iterator[Site]:
    with slurm_site() as site:
        # The first dispatch after the controller starts takes Slurm some seconds.
        site.rig.sbatch("--gres=gpu:1")
        site.wait_runs(1)
        yield site


@pytest.fixture
def site(running_site: Site) -> Iterator[Site]:
    (running_site.rig.jobs / "ran.log").unlink(missing_ok=True)
    if running_site.daemon is None:  # a test that failed left it so
        (running_site.home / "kill").unlink(missing_ok=True)
        running_site.start()
    yield running_site
    running_site.rig.call(["scancel", "--user=nobody"], check=False)
    running_site.idle()


def test_jobs__are_held_then_started_where_the_plan_says(site: Site) -> None:
    rig = site.rig
    sizes = {str(rig.sbatch(f"--gres=gpu:{1 + at % 4}", seconds=0.2)): 1 + at % 4 for at in range(14)}
    sizes[str(rig.sbatch("--gpus=6"))] = 6
    slices = [str(rig.sbatch("--gres=mig:1g.5gb:1")) for _ in range(3)]
    site.wait_runs(18)
    site.idle()
    ran = site.ran()
    assert set(ran) == {*sizes, *slices}
    assert all(len(starts) == 1 for starts in ran.values())
    for job_id, n_gpus in sizes.items():
        record = rig.job(job_id)
        planned = rig.scontrol("show", "-o", "job", job_id).split(" on=")[1].split()[0]
        nodes = [part.partition(":")[0] for part in planned.split(",")]
        assert rig.scontrol("show", "hostnames", record["NodeList"]).split() == sorted(nodes)
        assert sum(int(part.partition(":")[2]) for part in planned.split(",")) == n_gpus
        if n_gpus <= 4:
            node, gpus, _ = ran[job_id][0]
            assert [node] == nodes
            assert len(gpus.split(",")) == n_gpus
    assert {ran[job_id][0][0] for job_id in slices} == {"node8"}


def test_array__runs_every_task_once_within_its_limit(site: Site) -> None:
    rig = site.rig
    array = rig.sbatch("--gres=gpu:1", "--array=0-8%3", seconds=0.3)
    most = 0

    def done() -> bool:
        nonlocal most
        running = rig.call(["squeue", "-a", "-h", "-t", "R", "-j", str(array)], check=False)
        most = max(most, len(running.splitlines()))
        return len(rig.runs()) >= 9

    rig.wait(done, what=site.tail())
    assert 1 <= most <= 3
    tasks = [task for _, task, _, _, _ in rig.runs()]
    assert sorted(tasks, key=int) == [str(task) for task in range(9)]


def test_dependency__is_kept(site: Site) -> None:
    rig = site.rig
    first = rig.sbatch("--gres=gpu:1", seconds=1)
    second = rig.sbatch("--gres=gpu:1", f"--dependency=afterok:{first}")
    never = rig.sbatch("--gres=gpu:1", f"--dependency=afternotok:{first}")
    site.wait_runs(2)
    begun = {job_id: starts[0][2] for job_id, starts in site.ran().items()}
    assert begun[str(second)] - begun[str(first)] >= 1
    assert str(never) not in begun
    assert rig.job(never)["JobState"] == "PENDING"


def test_cancelled__never_starts(site: Site) -> None:
    rig = site.rig
    full = [rig.sbatch("--gres=gpu:4", seconds=60) for _ in range(7)]
    site.wait_runs(7)
    gone, stays = rig.sbatch("--gres=gpu:4"), rig.sbatch("--gres=gpu:4")
    rig.call(["scancel", str(gone)])
    rig.call(["scancel", str(full[0])])
    site.wait_runs(8)
    rig.call(["scancel", *map(str, full[1:])])
    site.idle()
    assert str(gone) not in site.ran()
    assert len(site.ran()[str(stays)]) == 1


def test_drained_node__gets_nothing_until_it_is_back(site: Site) -> None:
    rig = site.rig
    drained = ",".join(rig.nodes[:6])
    rig.scontrol("update", f"NodeName={drained}", "State=DRAIN", "Reason=test", user="root")
    rig.scontrol("update", "NodeName=node7", "State=DOWN", "Reason=test", user="root")
    jobs = [rig.sbatch("--gres=gpu:4") for _ in range(2)]
    time.sleep(1.5)
    assert site.ran() == {}
    rig.scontrol("update", "NodeName=node7", "State=RESUME", user="root")
    site.wait_runs(2)
    assert {starts[0][0] for starts in site.ran().values()} == {"node7"}
    assert set(site.ran()) == set(map(str, jobs))
    rig.scontrol("update", f"NodeName={drained}", "State=RESUME", user="root")


def test_other_partition__is_not_held_and_its_gpus_are_not_given_twice(site: Site) -> None:
    rig = site.rig
    foreign = rig.sbatch("--gres=gpu:4", seconds=600, partition="other")
    rig.wait(lambda: rig.job(foreign)["JobState"] == "RUNNING")
    ours = [rig.sbatch("--gres=gpu:4", seconds=0.5) for _ in range(6)]
    site.wait_runs(7)
    taken = site.ran()[str(foreign)][0][0]
    assert taken not in {site.ran()[str(job)][0][0] for job in ours}
    assert "smartmig" not in rig.job(foreign).get("AdminComment", "")


def test_jobs_without_gpus__are_slurms_own(site: Site) -> None:
    rig = site.rig
    rig.sbatch()
    site.wait_runs(1)
    assert "AdminComment" not in rig.job(rig.runs()[0][0])


def test_owner__may_hold_and_release_but_not_start_move_or_pin(site: Site) -> None:
    rig, owner = site.rig, "daemon"
    job = rig.sbatch("--gres=gpu:1", "--hold", "--comment=mine", "--nodelist=node5", user=owner)
    time.sleep(1.2)
    assert (rig.job(job)["JobState"], rig.job(job)["Priority"]) == ("PENDING", "0")
    for change in (["Partition=other"], ["NodeList=node1"], ["AdminComment=smartmig held", "NodeList=node1"]):
        assert "denied" in rig.scontrol("update", f"JobId={job}", *change, user=owner, check=False)
    assert rig.job(job)["ReqNodeList"] == "node5"
    # The release queues it with smartmig, which starts it where its owner asked; `nobody` may not run it as `daemon`.
    rig.scontrol("release", str(job), user=owner)
    rig.wait(lambda: "smartmig start" in rig.scontrol("show", "-o", "job", str(job)), what="its start")
    assert rig.job(job)["ReqNodeList"] == "node5"
    rig.call(["scancel", str(job)], user=owner)
    later = rig.sbatch("--gres=gpu:4", "--begin=now+60", user=owner)
    rig.scontrol("release", str(later), user=owner)
    assert rig.job(later)["Priority"] == "0"
    rig.call(["scancel", str(later)], user=owner)


def test_operator__may_hold_and_release(site: Site) -> None:
    rig = site.rig
    job = rig.sbatch("--gres=gpu:1", "--begin=now+2")
    rig.scontrol("hold", str(job), user="root")
    time.sleep(3)
    assert rig.job(job)["Priority"] == "0"
    rig.scontrol("release", str(job), user="root")
    site.wait_runs(1)
    assert "smartmig start" in rig.scontrol("show", "-o", "job", str(job))


def test_requeued__runs_again_through_smartmig(site: Site) -> None:
    rig = site.rig
    job = rig.sbatch("--gres=gpu:2", seconds=4)
    site.wait_runs(1)
    rig.scontrol("requeue", str(job))
    site.wait_runs(2)
    assert rig.job(job)["Restarts"] == "1"
    assert "smartmig start" in rig.scontrol("show", "-o", "job", str(job))


def test_what_only_slurm_can_place__is_left_to_it(site: Site) -> None:
    rig = site.rig
    job = rig.sbatch("--gres=gpu:1", "--exclusive")
    site.wait_runs(1)
    assert "given back" in rig.scontrol("show", "-o", "job", str(job))


def test_kill_switch__releases_every_job_at_once(site: Site) -> None:
    rig = site.rig
    for _ in range(7):
        rig.sbatch("--gres=gpu:4", seconds=6)
    site.wait_runs(7)
    waiting = [rig.sbatch("--gres=gpu:1") for _ in range(5)]
    site.kill()  # the daemon is gone; the command does it alone
    held = [job for job in waiting if rig.job(job)["Priority"] == "0"]
    assert held, "every one of them has started: the machine is too slow for this test"
    kill_file = site.home / "kill"
    said = smartmig("kill", "--kill-file", kill_file, "--adapter", site.adapter).stdout
    assert f"{len(held)} jobs released" in said
    assert all(rig.job(job)["Priority"] != "0" for job in waiting)
    assert rig.job(rig.sbatch("--gres=gpu:1"))["Priority"] != "0"
    site.wait_runs(13)
    smartmig("resume", "--kill-file", kill_file)
    site.start()
    rig.sbatch("--gres=gpu:1")
    site.wait_runs(14)
    assert all(len(starts) == 1 for starts in site.ran().values())


def test_killed_daemon_and_controller__lose_nothing_and_start_nothing_twice(site: Site) -> None:
    rig = site.rig
    jobs = [rig.sbatch(f"--gres=gpu:{1 + at % 4}", seconds=0.5) for at in range(70)]
    for wait in (True, False, True):  # as it takes over, and at some moment before
        site.kill()
        site.start(wait=wait)
    # slurmctld itself forgets what it has not saved, which takes it up to six seconds: nothing is in flight now.
    site.kill()
    time.sleep(6)
    rig.stop_controller(signal.SIGKILL)
    rig.start_controller()
    site.start(wait=False, knobs=",reboot_s=3")
    site.wait_runs(len(jobs))
    site.idle()
    ran = site.ran()
    assert set(ran) == set(map(str, jobs))
    assert {name: starts for name, starts in ran.items() if len(starts) > 1} == {}


def test_controller__that_forgot_all_and_counts_anew_is_served_on(site: Site) -> None:
    rig = site.rig
    rig.stop_controller(signal.SIGKILL)
    rig.start_controller(forgets=True)
    first = rig.sbatch("--gres=gpu:1")
    site.wait_runs(1)
    rig.stop_controller(signal.SIGKILL)
    rig.start_controller(forgets=True)
    assert rig.sbatch("--gres=gpu:2") == first, "its id comes again"
    site.wait_runs(2)
    site.idle()
    assert [gpus.count(",") for _, gpus, _ in site.ran()[str(first)]] == [0, 1]
    assert "smartmig start" in rig.scontrol("show", "-o", "job", str(first))


def test_stop__gives_the_partition_back_and_shadow_takes_nothing(site: Site) -> None:
    rig = site.rig
    for _ in range(7):
        rig.sbatch("--gres=gpu:4", seconds=1)
    site.wait_runs(7)
    job = rig.sbatch("--gres=gpu:1")
    site.stop()
    assert site.off_file.exists()
    site.wait_runs(8)
    assert str(job) in site.ran()
    site.start("shadow")
    own = rig.sbatch("--gres=gpu:1")
    site.wait_runs(9)
    assert rig.job(own)["ReqNodeList"] == "(null)"
    site.stop()
    site.start()
    assert not site.off_file.exists()
    rig.sbatch("--gres=gpu:1")
    site.wait_runs(10)
