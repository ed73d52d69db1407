"""The adapter alone, on a real Slurm: both ways of talking, slices, and what is refused."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import asdict

import pytest
from slurm_rig import PARTITION, SlurmRig, missing
from slurm_ways import both_ways, seen, why

from smartmig.adapters.slurm import Slurm, marks
from smartmig.adapters.slurm.calls import Hold, Release
from smartmig.adapters.slurm.keeper import release_all
from smartmig.adapters.slurm.libslurm import LibSlurm, load_shim
from smartmig.adapters.slurm.paths import Installed
from smartmig.adapters.slurm.scontrol import Scontrol
from smartmig.errors import AdapterError, InputError
from smartmig.ports import Connection
from smartmig.types import JobKey, Layout, Placement, Repartition, Share, Start, Stop

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def test_both_ways__say_the_same(rig: SlurmRig) -> None:
    array = rig.sbatch("--gres=gpu:1", "--array=1-9:2%2", "--time=90", "--begin=now+90")
    wide = ["-N2", "--gres=gpu:a100:2", "--exclude=node[2-3]", "--cpus-per-gpu=3", "--mem-per-gpu=300"]
    rig.sbatch(*wide, "--comment=a b=c", f"--dependency=afterok:{array}")
    running = rig.sbatch("--gpus=5", "--mem=300", seconds=30, partition="other,gpu")
    rig.scontrol("update", "NodeName=node7", "State=DRAIN", "Reason=x y=z", user="root")
    rig.scontrol("create", "reservation", "ReservationName=r1", "StartTime=now+3600", "Duration=60", "Users=nobody",
                 "Nodes=node5", user="root")  # fmt: skip
    rig.wait(lambda: rig.job(running)["JobState"] == "RUNNING")
    paths = Installed.find(str(rig.etc))
    library, command = LibSlurm(load_shim(paths.shim, paths.conf), "test"), Scontrol(paths.conf)
    # Named differently, and not read: the reason of a job that runs, and a word for "no preference".
    unread = {"shared", "reason", "array_tasks"}
    ours, theirs = (
        [{key: value for key, value in asdict(one).items() if key not in unread} for one in way.jobs(PARTITION, 10)]
        for way in (library, command)
    )
    assert ours == theirs
    assert len(ours) == 3
    assert [one.array_tasks.partition("%")[0] for one in library.job(array, 10)] == ["1,3,5,7,9"]
    nodes = library.nodes(10)
    assert [(node.name, node.gres, node.gres_used, node.n_cpus, node.n_cpus_used) for node in nodes] == [
        (node.name, node.gres, node.gres_used, node.n_cpus, node.n_cpus_used) for node in command.nodes(10)
    ]
    assert nodes[6].state.split("+")[1] == "DRAIN"
    assert library.partitions(10) == command.partitions(10)
    assert library.reservations(10) == command.reservations(10)
    rig.scontrol("delete", "ReservationName=r1", user="root")
    rig.scontrol("update", "NodeName=node7", "State=RESUME", user="root")
    rig.call(["scancel", "--user=nobody"])
    rig.wait(lambda: not rig.call(["squeue", "-a", "-h"]).strip())


@both_ways
def test_start__exactly_there_and_only_once(rig: SlurmRig, connection: Connection) -> None:
    job = rig.sbatch("--gres=gpu:2", seconds=1)
    (request,) = seen(connection, 1).queued
    start = Start(request.key, (Share("node6", 2),))
    assert why(connection, start) == ""
    rig.wait(lambda: len(rig.runs()) == 1)
    assert rig.runs()[0][2:4] == ("node6", "0,1")
    assert "RUNNING" in why(connection, start)
    assert why(connection, Start(JobKey(str(job), request.key.submit_s - 5), start.shares)).endswith("is gone")
    assert "gone" in why(connection, Start(JobKey("99999", 5.0), start.shares)) or "Invalid" in why(
        connection, Start(JobKey("99999", 5.0), start.shares)
    )
    (running,) = connection.source.observe(10).running
    assert (running.request.key, running.shares) == (request.key, (Share("node6", 2),))


def test_start__a_hold_that_came_after_the_look_wins(rig: SlurmRig, connection: Connection) -> None:
    job = rig.sbatch("--gres=gpu:1")
    request = seen(connection, 1).queued[0]
    rig.scontrol("hold", str(job))
    assert why(connection, Start(request.key, (Share("node1", 1),)))
    assert (rig.job(job)["JobState"], rig.job(job)["Priority"]) == ("PENDING", "0")


def test_start__node_without_cpus_is_refused(rig: SlurmRig, connection: Connection) -> None:
    rig.sbatch("--gres=gpu:1", "-n30", seconds=3)
    rig.sbatch("--gres=gpu:1", "-n8")
    first, second = seen(connection, 2).queued
    one, other = connection.actuator.apply(
        (Start(first.key, (Share("node1", 1),)), Start(second.key, (Share("node1", 1),))), 10
    )
    assert one.done
    assert "lacks 8 CPUs" in other.why
    # It goes elsewhere, where it finds room, as long as the other one is there.
    (request,) = connection.source.observe(10).queued
    assert request.nodes == tuple(name for name in rig.nodes if name != "node1")
    assert why(connection, Start(request.key, (Share("node2", 1),))) == ""


def test_reservation__is_for_those_who_name_it(rig: SlurmRig, connection: Connection) -> None:
    words = ["ReservationName=mine", "StartTime=now", "Duration=60", "Users=nobody", "Nodes=node2"]
    rig.scontrol("create", "reservation", *words, user="root")
    plain, inside = rig.sbatch("--gres=gpu:1"), rig.sbatch("--gres=gpu:1", "--reservation=mine")
    rig.wait(lambda: connection.source.observe(10).reservations)
    state = seen(connection, 2)
    # A node that may still have a job of that id, from before the controller lost its state, is left out, too.
    outside, within = (set(request.nodes) for request in state.queued)
    assert within == {"node2"}
    assert {"node1", "node3", "node4"} <= outside
    assert "node2" not in outside
    (fence,) = state.reservations
    assert fence.users == ("nobody",)
    plan = Start(state.queued[0].key, (Share("node1", 1),)), Start(state.queued[1].key, (Share("node2", 1),))
    assert all(outcome.done for outcome in connection.actuator.apply(plan, 10))
    rig.wait(lambda: len(rig.runs()) == 2)
    assert {run[0]: run[2] for run in rig.runs()} == {str(plain): "node1", str(inside): "node2"}
    # Slurm lets nobody in who does not name it, not even its own user.
    other = rig.sbatch("--gres=gpu:1")
    (request,) = seen(connection, 1).queued
    assert [one.users for one in connection.source.observe(10).reservations] == [()]
    assert why(connection, Start(request.key, (Share("node2", 1),))) == ""
    time.sleep(2)
    assert rig.job(other)["JobState"] == "PENDING"
    rig.call(["scancel", str(other)])
    rig.scontrol("delete", "ReservationName=mine", user="root")


def test_stop__sends_a_job_back_into_our_queue(rig: SlurmRig, connection: Connection) -> None:
    job = rig.sbatch("--gres=gpu:1", seconds=20)
    (request,) = seen(connection, 1).queued
    assert why(connection, Start(request.key, (Share("node2", 1),))) == ""
    rig.wait(lambda: len(rig.runs()) == 1)
    rig.wait(lambda: len(connection.source.observe(10).running) == 1)
    assert why(connection, Stop(request.key)) == ""
    rig.wait(lambda: rig.job(job)["Priority"] == "0" and rig.job(job)["JobState"] == "PENDING")
    # Slurm waits until old credentials are void; then it is queued as a new life of the job.
    (again,) = seen(connection, 1).queued
    assert again.key.submit_s >= request.key.submit_s
    assert why(connection, Start(again.key, (Share("node3", 1),))) == ""
    rig.wait(lambda: len(rig.runs()) == 2)
    assert rig.runs()[1][2] == "node3"


def comments(rig: SlurmRig, job: int) -> tuple[str, str]:
    """(the administrator's, the owner's) of a job that is held; else empty."""
    text = rig.scontrol("show", "job", str(job))
    found = {line.strip().partition("=")[0]: line.strip().partition("=")[2] for line in text.splitlines()}
    held = " Priority=0 " in text
    return (found.get("AdminComment", ""), found.get("Comment", "").strip()) if held else ("", "")


@both_ways
def test_hold__everybody_knows_whose_it_is(rig: SlurmRig, connection: Connection) -> None:
    ours, theirs = ("smartmig held", ""), "[held by its owner]"
    job, other, first, zero = (rig.sbatch("--gres=gpu:1", "--begin=now+600") for _ in range(4))
    child = rig.sbatch("--gres=gpu:1", f"--dependency=after:{first}")
    # What an operator lets go is ours again, and not taken for held by its owner.
    rig.scontrol("release", str(job), user="root")
    rig.wait(lambda: comments(rig, job) == ours)
    # A hold outlives a change of the comment, and ends with the release.
    rig.scontrol("hold", str(job))
    rig.scontrol("update", f"JobId={job}", "Comment=a word")
    assert comments(rig, job) == ("smartmig held", f"a word {theirs}")
    # Held while smartmig was off, by somebody who may or may not know of it.
    connection.actuator.let_go(10)
    rig.scontrol("update", f"JobId={job}", "Comment=more")
    rig.scontrol("hold", str(other))
    connection.actuator.take_over(10)
    time.sleep(1.5)
    assert comments(rig, job) == ("smartmig held", f"more {theirs}")
    assert comments(rig, other)[0] == "smartmig let go"
    for one in (job, other):
        rig.scontrol("release", str(one))
    rig.wait(lambda: comments(rig, job)[0] == comments(rig, other)[0] == "smartmig held")
    assert [theirs in comments(rig, one)[1] for one in (job, other)] == [False, False]
    # A job that waits for another one waits for it again.
    rig.wait(lambda: "smartmig parked" in rig.scontrol("show", "job", str(child)))
    rig.scontrol("hold", str(child))
    for user in ("nobody", "root"):
        rig.scontrol("release", str(child), user=user)
    rig.wait(lambda: rig.job(child)["Priority"] != "0")
    rig.call(["scancel", str(zero), str(job), str(other)])
    rig.scontrol("update", f"JobId={first}", "StartTime=now")
    (request,) = seen(connection, 1).queued
    assert why(connection, Start(request.key, (Share("node1", 1),))) == ""
    (request,) = seen(connection, 1).queued
    assert request.key.job_id == str(child)


@both_ways
def test_hold__does_not_end_with_a_change_of_niceness(rig: SlurmRig, connection: Connection, via: str) -> None:
    paths = Installed.find(str(rig.etc))
    writes = LibSlurm(load_shim(paths.shim, paths.conf), "test") if via == "libslurm" else Scontrol(paths.conf)
    job = str(rig.sbatch("--gres=gpu:1", "--begin=now+600", "--nice=3"))
    for user in ("nobody", "root"):
        assert "denied" in rig.scontrol("update", f"JobId={job}", "Nice=100", user=user, check=False)
    assert (rig.job(job)["Priority"], rig.job(job)["Nice"]) == ("0", "3")
    # A turn of a job that only Slurm can place begins with a large one, and ends with that of its owner.
    connection.actuator.close()
    writes.release(job, Release(marks.write_given_back(5, 5.0, "a test"), (), nice=1_000_000_003), 10)
    assert (rig.job(job)["Priority"] != "0", rig.job(job)["Nice"]) == (True, "1000000003")
    writes.hold(job, Hold((), 3), 10)
    assert (rig.job(job)["Priority"], rig.job(job)["Nice"]) == ("0", "3")
    writes.close()


def tasks(rig: SlurmRig, array: int) -> dict[str, tuple[str, bool, str]]:
    """Of an array: (state, held, administrator's comment) by what `squeue` calls the tasks."""
    found = {}
    for line in rig.scontrol("show", "-o", "job", str(array)).splitlines():
        row = dict(word.split("=", 1) for word in line.split() if "=" in word)
        mark = line.partition(" AdminComment=")[2].partition(" Comment=")[0].partition(" StdErr=")[0].strip()
        found[row["ArrayTaskId"]] = row["JobState"], row["Priority"] == "0", mark
    return found


@both_ways
def test_let_go__of_an_array_spares_a_task_that_its_owner_holds(rig: SlurmRig, connection: Connection) -> None:
    array = rig.sbatch("--gres=gpu:1", "--array=0-8:2", "--begin=now+600")
    rig.scontrol("hold", f"{array}_4")
    assert connection.actuator.let_go(10) == 1
    assert tasks(rig, array) == {
        "0,2,6,8": ("PENDING", False, "smartmig let go"),
        "4": ("PENDING", True, "smartmig held"),
    }
    connection.actuator.take_over(10)
    assert {name: held for name, (_, held, _) in tasks(rig, array).items()} == {"0,2,6,8": True, "4": True}
    assert connection.actuator.let_go(10) == 1
    rig.scontrol("release", f"{array}_4")
    assert not any(held for _, held, _ in tasks(rig, array).values())


@both_ways
def test_take_over__of_an_array_touches_only_the_tasks_that_wait(rig: SlurmRig, connection: Connection) -> None:
    array = rig.sbatch("--gres=mig:1g.5gb:1", "--array=0-3", seconds=60)
    requests = seen(connection, 4).queued
    plan = tuple(Start(request.key, (Share("node8", 0, 0, at),)) for request, at in zip(requests, (4, 6), strict=False))
    assert [outcome.why for outcome in connection.actuator.apply(plan, 10)] == ["", ""]
    rig.wait(lambda: len(rig.runs()) == 2)
    before = tasks(rig, array)
    # The other two would run now, too.
    rig.scontrol("update", "NodeName=node8", "State=DRAIN", "Reason=x", user="root")
    assert connection.actuator.let_go(10) == 1
    let_go = tasks(rig, array)
    assert connection.actuator.take_over(10) == 1
    after = tasks(rig, array)
    rig.scontrol("update", "NodeName=node8", "State=RESUME", user="root")
    assert before["0"][2].endswith("on=node8/0@4")
    assert {name: let_go[name] for name in ("0", "1")} == {name: before[name] for name in ("0", "1")}
    assert after == before
    assert let_go["2-3"] == ("PENDING", False, "smartmig let go")
    assert [job.shares[0].start for job in connection.source.observe(10).running] == [4, 6]


def test_hold__of_a_job_that_ran_stays_until_it_is_released(rig: SlurmRig, connection: Connection) -> None:
    job = rig.sbatch("--gres=gpu:1", "--nodelist=node2", seconds=20)
    (request,) = seen(connection, 1).queued
    assert why(connection, Start(request.key, (Share("node2", 1),))) == ""
    rig.wait(lambda: len(rig.runs()) == 1)
    rig.scontrol("requeuehold", str(job), user="root")
    rig.wait(lambda: rig.job(job)["JobState"] == "PENDING")
    time.sleep(2)
    assert comments(rig, job)[0].startswith("smartmig start")
    assert connection.source.observe(10).queued == ()
    rig.scontrol("release", str(job))
    rig.wait(lambda: comments(rig, job)[0] == "smartmig held")
    (request,) = seen(connection, 1).queued
    assert request.nodes == ("node2",)
    assert len(rig.runs()) == 1


@both_ways
def test_partition__that_drains_starts_what_it_has(rig: SlurmRig, connection: Connection) -> None:
    rig.sbatch("--gres=gpu:1")
    try:
        for state, queued in (("DOWN", 0), ("INACTIVE", 0), ("DRAIN", 1)):
            rig.scontrol("update", f"PartitionName={PARTITION}", f"State={state}", user="root")
            rig.wait(lambda queued=queued: len(connection.source.observe(10).queued) == queued)
        (request,) = connection.source.observe(10).queued
        assert why(connection, Start(request.key, (Share("node1", 1),))) == ""
        rig.wait(lambda: len(rig.runs()) == 1)
    finally:
        rig.scontrol("update", f"PartitionName={PARTITION}", "State=UP", user="root")


def test_jobs__that_ask_for_no_gpu_are_slurms_own(rig: SlurmRig, connection: Connection) -> None:
    job = rig.sbatch("--gres=gpu:0")
    rig.wait(lambda: len(rig.runs()) == 1)
    assert "AdminComment" not in rig.scontrol("show", "job", str(job))
    assert connection.source.observe(10).queued == ()


def test_scontrol__what_users_write_is_never_taken_for_slurms_word(rig: SlurmRig, connection: Connection) -> None:
    assert connection.source.observe(10).queued == ()
    commands = Scontrol(Installed.find(str(rig.etc)).conf)
    # An operator holds somebody's job, and another user would like to have it released.
    theirs = rig.sbatch("--gres=gpu:1", "--begin=now+600", user="daemon")
    rig.scontrol("hold", str(theirs), user="root")
    shown = rig.scontrol("show", "-o", "job", str(theirs)).partition(" StdErr=")[0]
    assert " [held by its owner]" in shown
    unsaid = (
        r"\S*(?:QOS|MCS|Requeue|BatchFlag|Reboot|ExitCode|RunTime|Sched|Socks|Ntasks|Req.:|Command|WorkDir)\S*=\S* "
    )
    line = re.sub(unsaid, "", shown.replace(" [held by its owner]", "").replace("JobHeldAdmin", "JobHeldUser"))
    forged = [
        f"x\n{line}\nJobId=1 ",
        f"x\n{line.replace(f'JobId={theirs}', 'JobId=77777')}\n",
        "a\nb",
        "x UserId=root(0) JobState=RUNNING Priority=7 NodeList=node1 MinMemoryNode=1M AdminComment=smartmig",
    ]
    mine = [rig.sbatch("--gres=gpu:1", "--begin=now+600", f"--job-name={name}") for name in forged]
    library = LibSlurm(load_shim(Installed.find(str(rig.etc)).shim, Installed.find(str(rig.etc)).conf), "test")
    unread = {"shared", "array_tasks", "gres_total"}
    facts = {
        record.job_id: {key: value for key, value in asdict(record).items() if key not in unread}
        for record in library.jobs(PARTITION, 10) or ()
    }
    assert set(facts) == {theirs, *mine}
    for record in commands.jobs(PARTITION, 30):
        assert {key: value for key, value in asdict(record).items() if key not in unread} == facts.pop(record.job_id)
    assert set(facts) == {mine[0], mine[1], mine[3]}, "what looks like a record is left out"
    assert release_all(commands, commands, PARTITION, 60) == 1
    assert rig.job(theirs)["Priority"] == "0"
    rig.call(["scancel", str(theirs)], user="root")
    library.close()


def cut(*slices: tuple[int, str]) -> Layout:
    return tuple(Placement(start, profile) for start, profile in slices)


def layout(connection: Connection) -> Layout:
    node = connection.source.observe(10).nodes[7]
    return tuple(Placement(one.start, one.profile) for one in node.gpus[0].instances)


SEVEN = cut(*((start, "1g.5gb") for start in range(7)))


@both_ways
def test_recut__only_where_free(rig: SlurmRig, connection: Connection) -> None:
    assert layout(connection) == SEVEN
    for _ in range(2):
        rig.sbatch("--gres=mig:1g.5gb:1", seconds=2)
    first, second = seen(connection, 2).queued
    places = [Share("node8", 0, 0, 0), Share("node8", 0, 0, 5)]
    outcomes = connection.actuator.apply((Start(first.key, places[:1]), Start(second.key, places[1:])), 10)
    assert all(outcome.done for outcome in outcomes)
    rig.wait(lambda: len(rig.runs()) == 2)
    assert [job.shares for job in connection.source.observe(10).running] == [(place,) for place in places]
    mixed = cut((0, "1g.5gb"), (1, "1g.5gb"), (2, "2g.10gb"), (5, "1g.5gb"))
    assert why(connection, Repartition("node8", 0, mixed)) == ""
    assert layout(connection) == mixed
    # Both of the slices in use would go: Slurm would let that happen, we do not.
    assert "2 slices of 1g.5gb are in use" in why(connection, Repartition("node8", 0, cut((4, "3g.20gb"))))
    assert "none with the number 3" in why(connection, Repartition("node8", 3, SEVEN))
    assert layout(connection) == mixed
    rig.sbatch("--gres=mig:2g.10gb:1")
    (third,) = seen(connection, 1).queued
    assert "has no 2g.10gb" in why(connection, Start(third.key, (Share("node8", 0, 0, 1),)))
    rig.wait(lambda: len(connection.source.observe(10).running) == 0)
    assert why(connection, Repartition("node8", 0, SEVEN)) == ""


def test_recut__failing_command_brings_the_old_cut_back(rig: SlurmRig) -> None:
    knobs = Slurm(partition=PARTITION, config=str(rig.etc), recut_command="sh -c 'echo no such card >&2; exit 3'")
    connection = knobs.open()
    said = why(connection, Repartition("node8", 0, cut((0, "7g.40gb"))))
    assert "ended with 3: no such card; the old cut is back" in said
    assert layout(connection) == SEVEN
    assert "mig:1g.5gb:7" in rig.scontrol("show", "-o", "node", "node8")
    connection.actuator.close()
    connection.source.close()


# After the other starts: a job of an id that a node may still have goes elsewhere.
def test_start__of_a_job_whose_id_came_again_is_refused(rig: SlurmRig, connection: Connection) -> None:
    def submitted_to_a_new_controller() -> int:
        rig.stop_controller(signal.SIGKILL)
        rig.start_controller(forgets=True)
        rig.wait(lambda: set(rig.node_states().values()) == {"idle"})
        time.sleep(1.1)  # Slurm counts in seconds, and jobs as old as the controller rest
        return rig.sbatch("--gres=gpu:1")

    job = submitted_to_a_new_controller()
    request = seen(connection, 1).queued[0]
    assert submitted_to_a_new_controller() == job == int(request.key.job_id)
    assert why(connection, Start(request.key, (Share("node1", 1),))), "by what was seen of the first one"
    assert (rig.job(job)["JobState"], rig.job(job)["AdminComment"]) == ("PENDING", "smartmig")
    (again,) = [one for one in seen(connection, 1).queued if one.key != request.key]
    assert why(connection, Start(again.key, (Share("node1", 1),))) == ""
    rig.wait(lambda: len(rig.runs()) == 1)


@pytest.mark.parametrize(
    ("knobs", "error", "sentence"),
    [
        ({}, InputError, "--partition"),
        ({"partition": "gpu", "via": "pigeon"}, InputError, "Known: auto, libslurm, scontrol"),
        ({"partition": "gpu", "poll_s": 0.0}, InputError, "poll_s"),
        ({"partition": "gpu", "mig_model": "a10"}, InputError, "a10"),
        ({"partition": "gpu", "via": "libslurm", "config": "/nowhere"}, AdapterError, "smartmig slurm install"),
    ],
)
def test_open__refuses_bad_knobs(knobs: dict[str, object], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        Slurm(**knobs).open()  # type: ignore[arg-type]


def test_shim__of_another_release_is_refused(rig: SlurmRig) -> None:
    paths = Installed.find(str(rig.etc))
    (rig.folder / "shim.c").write_text("void *smartmig_open(void) { return 0; }")
    rig.call(["gcc", "-shared", "-fPIC", "-o", str(rig.folder / "shim.so"), str(rig.folder / "shim.c")], user="root")
    with pytest.raises(AdapterError, match=r"of another release; build it again with `smartmig slurm install`"):
        load_shim(rig.folder / "shim.so", paths.conf)


def test_partition__unknown_is_refused(rig: SlurmRig) -> None:
    with pytest.raises(AdapterError, match=r"no partition 'nope'\. Known: gpu, other"):
        Slurm(partition="nope", config=str(rig.etc)).open().source.observe(10)
