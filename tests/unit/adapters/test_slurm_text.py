"""Slurm's texts: resources, marks, states, requests, slurm.conf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartmig.adapters.slurm import asks, marks
from smartmig.adapters.slurm.gres import Gres, parse_gres, write_gres
from smartmig.adapters.slurm.install import Wishes, plan_install
from smartmig.adapters.slurm.paths import Installed
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, RecordReader
from smartmig.adapters.slurm.scontrol import _row
from smartmig.adapters.slurm.slurm_conf import SlurmConf, with_tuning, with_words
from smartmig.adapters.slurm.states import node_state
from smartmig.errors import InputError
from smartmig.types import NodeState, Share


def job(**changes: Any) -> JobRecord:
    """A pending job of one GPU that we hold."""
    values: dict[str, Any] = {
        "job_id": 7,
        "array_job_id": 0,
        "array_task_id": None,
        "array_tasks": "",
        "array_max_tasks": 0,
        "state": "PENDING",
        "reason": "JobHeldUser",
        "partition": "gpu",
        "priority": 0,
        "nice": 0,
        "submit_s": 1000,
        "eligible_s": 0,
        "start_s": 0,
        "end_s": 0,
        "limit_min": 10,
        "user_id": 0,
        "account": "",
        "nodes": (),
        "n_nodes": 1,
        "max_nodes": 0,
        "n_cpus": 1,
        "n_tasks": 1,
        "memory_mb": 100,
        "memory_per_cpu": True,
        "tres_per_node": "gres:gpu:1",
        "tres_per_job": "",
        "tres_per_socket": "",
        "tres_per_task": "",
        "gres_detail": "",
        "dependency": "",
        "het_job_id": 0,
        "features": "",
        "excluded_nodes": (),
        "required_nodes": (),
        "reservation": "",
        "shared": 65534,
        "comment": "",
        "admin_comment": marks.HELD,
    }
    return JobRecord(**{**values, **changes})


def node(name: str = "n1", **changes: Any) -> NodeRecord:
    values: dict[str, Any] = {"state": "IDLE", "gres": "gpu:a100:4", "gres_used": "gpu:a100:0", "n_cpus": 32}
    values |= {"n_cpus_used": 0, "memory_mb": 64000, "memory_used_mb": 0, "features": "", "comment": ""}
    return NodeRecord(name, **{**values, **changes})


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:a100:4(S:0-1)", {Gres("gpu", "a100"): 4}),
        ("gres:gpu:2", {Gres("gpu", ""): 2}),
        ("gres/gpu:a100=2", {Gres("gpu", "a100"): 2}),
        ("gpu:a100:2(IDX:0,3),mig:1g.5gb:1(CNT:1)", {Gres("gpu", "a100"): 2, Gres("mig", "1g.5gb"): 1}),
        ("gres:gpu", {Gres("gpu", ""): 1}),
        ("gres:gpu:a100", {Gres("gpu", "a100"): 1}),
        ("shard:2K", {Gres("shard", ""): 2048}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_gres__is_read_as_slurm_writes_it(text: str, counts: dict[Gres, int]) -> None:
    assert parse_gres(text) == counts


@given(
    st.dictionaries(
        st.builds(Gres, st.sampled_from(["gpu", "mig"]), st.sampled_from(["a100", "1g.5gb", "3g.20gb"])),
        st.integers(1, 5000),
    )
)
def test_gres__written_reads_back(counts: dict[Gres, int]) -> None:
    assert parse_gres(write_gres(counts)) == counts


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("IDLE", NodeState.up),
        ("MIXED+PLANNED", NodeState.up),
        ("IDLE+DRAIN", NodeState.drained),
        ("ALLOCATED+DRAIN+NOT_RESPONDING", NodeState.down),
        ("DOWN*", NodeState.down),
        ("UNKNOWN", NodeState.down),
        ("IDLE+SOMETHING_NEW", NodeState.drained),
        ("IDLE+CLOUD+POWERED_DOWN", NodeState.up),
        ("MIXED+NOT_RESPONDING+POWERING_UP", NodeState.up),
        ("IDLE+POWERING_DOWN", NodeState.down),
        ("IDLE+DRAIN+POWERED_DOWN", NodeState.drained),
        ("DOWN+POWERED_DOWN", NodeState.down),
    ],
)
def test_node_state__is_the_worst_word(words: str, state: NodeState) -> None:
    assert node_state(words) is state


names = st.text("abcdefgh0123456789-", min_size=1, max_size=12)


@given(
    st.integers(0, 2**33),
    st.floats(0, 1e10).map(lambda at: round(at, 3)),
    st.lists(
        st.one_of(
            st.builds(Share, names, st.integers(1, 64)),
            st.builds(Share, names, st.just(0), st.integers(0, 15), st.integers(0, 7)),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(names, max_size=3),
)
def test_start_mark__reads_back(submit_s: int, at_s: float, shares: list[Share], own: list[str]) -> None:
    mark = marks.read_start(marks.write_start(submit_s, at_s, tuple(shares), tuple(own)))
    assert mark == marks.StartMark(submit_s, at_s, tuple(shares), tuple(own))
    assert marks.is_ours(marks.write_start(submit_s, at_s, tuple(shares)))


def test_marks__of_one_kind_are_not_read_as_another() -> None:
    given_back = marks.write_given_back(5, 9.5, "why")
    assert marks.read_given_back(given_back, 5) == 9.5
    assert marks.read_given_back(given_back, 6) is None
    assert marks.read_parked(marks.write_parked(12)) == 12
    for comment in (marks.HELD, marks.LET_GO, given_back, marks.write_parked(0), "smartmig start nonsense", ""):
        assert marks.read_start(comment) is None


@pytest.mark.parametrize(
    ("changes", "ask"),
    [
        ({}, asks.Ask(1, 1)),
        ({"tres_per_node": "gres:gpu:a100:3"}, asks.Ask(3, 1, "a100")),
        ({"tres_per_node": "gres:gpu:2", "n_nodes": 3}, asks.Ask(6, 3)),
        ({"tres_per_node": "gres:gpu:2,gres:mig:0"}, asks.Ask(2, 1)),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:6"}, asks.Ask(6, 0)),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:6", "n_nodes": 2}, asks.Ask(6, 2)),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:2", "max_nodes": 1}, asks.Ask(2, 1)),
        ({"tres_per_node": "", "tres_per_task": "gres:gpu:1", "n_tasks": 4}, asks.Ask(4, 0)),
        ({"tres_per_node": "gres:mig:3g.20gb:1"}, asks.Ask(0, 0, "", "3g.20gb")),
    ],
)
def test_ask__says_what_a_job_wants(changes: dict[str, Any], ask: asks.Ask) -> None:
    assert asks.read_ask(job(**changes)) == ask


@pytest.mark.parametrize(
    "changes",
    [
        {"het_job_id": 3},
        {"tres_per_node": "gres:gpu:0"},
        {"tres_per_node": "", "tres_per_job": "gres:gpu:a100:0"},
        {"tres_per_node": ""},
        {"shared": 0},
        {"tres_per_socket": "gres:gpu:1"},
        {"features": "[a|b]*2"},
        {"features": "a&b|c"},
        {"tres_per_node": "gres:gpu:1,gres:gpu:a100:1"},
        {"tres_per_node": "gres:gpu:1,gres:shard:2"},
        {"tres_per_job": "gres:gpu:2"},
        {"tres_per_node": "gres:mig:1g.5gb:2"},
        {"tres_per_node": "gres:mig:1"},
        {"tres_per_node": "", "tres_per_job": "gres:gpu:5", "n_nodes": 2},
    ],
)
def test_ask__what_only_slurm_can_place_is_a_sentence(changes: dict[str, Any]) -> None:
    why = asks.read_ask(job(**changes))
    assert isinstance(why, str)
    assert why


def test_features__names_joined_by_and_or_or() -> None:
    here = node(features="fast,nvlink")
    assert asks.has_features(here, "")
    assert asks.has_features(here, "fast&nvlink")
    assert not asks.has_features(here, "fast&slow")
    assert asks.has_features(here, "slow|fast")
    assert not asks.has_features(here, "slow")


@pytest.mark.parametrize(
    ("text", "tasks"), [("0-3", [0, 1, 2, 3]), ("1-7:3%2", [1, 4, 7]), ("5", [5]), ("", []), ("0-9999", list(range(8)))]
)
def test_tasks__of_an_array(text: str, tasks: list[int]) -> None:
    assert asks.read_tasks(text, 8) == tasks


def test_record_reader__unchanged_lines_give_the_same_object() -> None:
    reader = RecordReader(NodeRecord)
    line = "\x1f".join(["n1", "IDLE", "gpu:2", "gpu:0", "4", "0", "100", "0", "", "a | b", ""]) + "\x1e"
    other = line.replace("n1", "n2")
    first = reader.read(line + other)
    second = reader.read(other + line.replace("IDLE", "DOWN"))
    assert first[0] == node("n1", gres="gpu:2", gres_used="gpu:0", n_cpus=4, memory_mb=100, comment="a | b")
    assert second[0] is first[1]
    assert second[1].state == "DOWN"


def test_scontrol_row__values_with_blanks_and_first_keys_win() -> None:
    row = _row("NodeName=n1 CPUTot=4 OS=Linux 6.1 CPUTot=9 CfgTRES=cpu=4   Comment=a b=c X=")
    assert row["OS"] == "Linux 6.1"
    assert row["CPUTot"] == "4"
    assert row["CfgTRES"] == "cpu=4"
    assert row["Comment"] == "a b=c"


CONF = """ClusterName=x
schedulerparameters = bf_continue,sched_interval=5   # ours
NodeName=n1 Gres=gpu:4
PartitionName=DEFAULT State=UP
PartitionName=gpu Nodes=n1
PartitionName=cpu Nodes=n1
"""


def test_slurm_conf__changes_only_what_it_must_and_back(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF)
    before = SlurmConf.read(path)
    assert before.partitions() == ("gpu", "cpu")
    parameters = with_tuning(before.get("SchedulerParameters"))
    assert parameters.startswith("bf_continue,sched_interval=5,batch_sched_delay=0")
    settings = {"JobSubmitPlugins": with_words("throttle,lua", ("lua", "kick")), "SchedulerParameters": parameters}
    assert settings["JobSubmitPlugins"] == "throttle,lua,kick"
    after = before.with_settings(settings)
    assert {key: after.get(key) for key in settings} == settings
    kept = [line for line in after.lines if line in before.lines]
    assert kept == [line for line in before.lines if "schedulerparameters" not in line]
    assert after.with_settings(settings) == after
    # Somebody edits the file afterwards: only our settings are undone.
    edited = SlurmConf(path, ("# mine", *after.lines))
    lines_before = {key: before.line_of(key) for key in settings}
    assert edited.without_settings(settings, lines_before).lines == ("# mine", *before.lines)


def test_slurm_conf__of_a_list_that_was_changed_only_our_words_go(tmp_path: Path) -> None:
    before = SlurmConf.of(tmp_path / "slurm.conf", b"JobSubmitPlugins=throttle,lua\n")
    ours = {"JobSubmitPlugins": "throttle,lua,kick", "SchedulerParameters": "sched_interval=1,batch_sched_delay=0"}
    lines = before.with_settings(ours).text.replace(",kick", ",kick,theirs").replace("sched_interval=1,", "")
    edited = SlurmConf.of(before.path, lines.encode())
    undone = edited.without_settings(ours, {key: before.line_of(key) for key in ours})
    assert undone.text == "JobSubmitPlugins=throttle,lua,theirs\n"


def test_slurm_conf__line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_bytes(CONF.replace("\n", "\r\n").encode())
    before = SlurmConf.read(path)
    assert before.partitions() == ("gpu", "cpu")
    settings = {"SchedulerParameters": "x", "JobSubmitPlugins": "lua"}
    after = before.with_settings(settings)
    assert after.text.count("\n") == after.text.count("\r\n") == CONF.count("\n") + 2
    assert after.get("SchedulerParameters") == "x"
    lines_before = {key: before.line_of(key) for key in settings}
    assert after.without_settings(settings, lines_before).text.encode() == path.read_bytes()


def test_slurm_conf__included_files_are_read_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "here.conf").write_text("JobSubmitPlugins=lua\nPartitionName=far\nInclude deeper.conf\n")
    (tmp_path / "deeper.conf").write_text('SlurmUser="slurm"\nInclude slurm.conf\n')
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=here\nSlurmUser=root\nInclude %c.conf\nPartitionName=near\nJobSubmitPlugins=throttle\n"
    )
    conf = SlurmConf.read(tmp_path / "slurm.conf")
    assert conf.partitions() == ("far", "near")
    assert (conf.get("SlurmUser"), conf.get("JobSubmitPlugins")) == ("slurm", "throttle")
    # Whichever wins: what we write in one file must not be undone by another.
    with pytest.raises(InputError, match=r"here\.conf: JobSubmitPlugins stands in an included file"):
        conf.with_settings({"JobSubmitPlugins": "throttle,lua"})


@pytest.mark.parametrize(
    ("given", "installed"),
    [
        ('"throttle"', "throttle,lua"),
        ('"throttle, pack"  # both', "throttle,pack,lua"),
        ("throttle", "throttle,lua"),
        ('"throttle,lua"', None),
    ],
)
def test_slurm_conf__quoted_values_are_lists_too(tmp_path: Path, given: str, installed: str | None) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(f'jobsubmitplugins={given}\nPartitionName="gpu" Nodes=ALL\n')
    before = SlurmConf.read(path)
    assert before.partitions() == ("gpu",)
    changes = plan_install(Installed(tmp_path), Wishes("gpu", kick=False, tune=False))
    first = f"JobSubmitPlugins={installed}" if installed is not None else before.lines[0]
    assert changes.after.lines == (first, *before.lines[1:])
    # Somebody quotes ours afterwards, and adds to it.
    ours = changes.settings["JobSubmitPlugins"]
    for edited, left in ((f'"{ours}"', before.lines[0]), (f'"{ours},a b"', None)):
        conf = SlurmConf(path, (f"JobSubmitPlugins={edited}", *before.lines[1:]))
        undone = conf.without_settings(changes.settings, {"JobSubmitPlugins": before.lines[0]})
        words = [word for word in ours.split(",") if word != "lua" or "lua" in given]
        assert undone.lines[0] == (left if left is not None else f'JobSubmitPlugins="{",".join(words)},a b"')


def test_slurm_conf__a_quotation_mark_inside_a_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text('JobSubmitPlugins=throttle,"pack"\nPartitionName=gpu\n')
    with pytest.raises(InputError, match=r"slurm\.conf: JobSubmitPlugins: there is a quotation mark inside"):
        plan_install(Installed(tmp_path), Wishes("gpu", kick=False))


def test_unit__runs_as_the_user_that_may_start_jobs(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("SlurmUser=nobody\nPartitionName=gpu Nodes=ALL\n")
    paths = Installed(tmp_path)
    unit = plan_install(paths, Wishes("gpu", kick=False, mode="act")).files[paths.unit]
    lines = unit.splitlines()
    assert "User=nobody" in lines
    assert {"[Unit]", "[Service]", "[Install]"} <= set(lines)
    assert "@" not in unit
    (command,) = (line for line in lines if line.startswith("ExecStart="))
    assert command.endswith(f"smartmig serve --adapter slurm:partition=gpu,config={tmp_path} --mode act")
