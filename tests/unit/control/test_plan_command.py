"""`plan`, `export`, `doctor`, `kill`, `resume`, `replay`: what they print and what they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from smartmig.cli.app import make_app
from smartmig.errors import InputError, SmartmigError
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.layouts import multiset
from smartmig.hardware.mig_parted import config_text, read_config
from smartmig.types import Layout
from strategies import clusters, layouts_for

SAMPLES = Path(__file__).parents[2] / "samples"


def run(*args: object, typed: str | None = None) -> str:
    done = CliRunner().invoke(make_app(args[:1]), [str(arg) for arg in args], input=typed)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_plan__whole_gpus_backfill_beside_the_reservation() -> None:
    answer = json.loads(run("plan", SAMPLES / "whole_gpu_state.json"))
    starts = {action["start"]["key"][0]: action["start"]["shares"] for action in answer["plan"]}
    # 17 needs all eight GPUs and gets the reservation at 2500; 18 is done by then, 19 would not be.
    assert starts == {"18": [{"node": "n2", "n_gpus": 2}]}
    assert answer["refused"] == []
    strict = json.loads(run("plan", SAMPLES / "whole_gpu_state.json", "--backfill", "none"))
    assert strict["plan"] == []


def test_plan__the_states_in_the_docs_give_what_they_say() -> None:
    text = (Path(__file__).parents[3] / "docs" / "live.md").read_text()
    states = [fence.partition("```")[0] for fence in text.split("```json\n")[1:]]
    said = text.split("$ smartmig plan state.json\n")[1].partition("```")[0]
    assert len(states) == 2
    assert json.loads(run("plan", "-", typed=states[0])) == json.loads(said)
    assert [list(one) for one in json.loads(run("plan", "-", typed=states[1]))["plan"]] == [["start"]]


def test_plan__slices_by_the_rule() -> None:
    answer = json.loads(
        run("plan", "-", "--placement", "edf-most-packed", typed=(SAMPLES / "mig_state.json").read_text())
    )
    starts = {action["start"]["key"][0]: action["start"]["shares"][0] for action in answer["plan"]}
    assert starts == {"a": {"node": "m1", "gpu": 0, "start": 4}, "b": {"node": "m1", "gpu": 1, "start": 0}}


def test_plan__cuts_only_what_is_idle() -> None:
    rule = "twice-daily:day_cut='10',night_cut='10'"
    answer = json.loads(run("plan", SAMPLES / "mig_state.json", "--repartition", rule))
    cuts = {one["repartition"]["gpu"]: one["repartition"]["layout"] for one in answer["plan"] if "repartition" in one}
    assert sorted(profile for _, profile in cuts[1]) == ["1g.5gb"] * 3 + ["2g.10gb"] * 2
    assert [0, "4g.20gb"] in cuts[0]
    assert [4, "3g.20gb"] not in cuts[0]
    assert all("start" not in one for one in answer["plan"])  # what is cut anew can be used when it is there


def test_plan__schema_describes_a_state() -> None:
    schema = json.loads(run("plan", "--schema"))
    assert schema["required"] == ["time_s", "nodes"]
    assert {"queued", "running", "reservations", "limits"} <= set(schema["properties"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": [], "running": []}, "no GPUs"),
        ({"colour": 1}, "colour"),
        ({"time_s": "noon"}, "time_s"),
        ({"queued": [{"key": ["1", 0.0], "n_gpus": -1}]}, "n_gpus of at least 1"),
        ({"queued": [{"key": ["1", 0.0], "n_gpus": 0}]}, "five run_s"),
        ({"queued": [{"key": ["12", 100.0]}]}, "same id"),
        ({"queued": [{"key": ["1", 0.0], "limit_s": 0}]}, "above 0"),
        ({"nodes": [{"name": "n1", "n_gpus": 1, "n_free": 2}]}, "n_free"),
        ({"time_s": "NaN"}, "time_s must be a number"),
        ({"time_s": "Infinity"}, "time_s must be a number"),
        ({"nodes": [{"name": "n1", "n_gpus": 10**18}]}, "n_gpus must be at most"),
        ({"queued": [{"key": ["1", 0.0], "n_gpus": 10**30}]}, "n_gpus"),
        ({"queued": [{"key": ["1", "NaN"]}]}, "submit_s must be a number"),
        ({"queued": [{"key": ["\ud800", 0.0]}]}, "job_id"),
        ({"queued": [{"key": ["1", 0.0], "limit_s": "NaN"}]}, "limit_s must be a number"),
        ({"queued": [{"key": ["1", 0.0], "deadline_s": "NaN"}]}, "deadline_s must be a number"),
        ({"queued": [{"key": ["1", 0.0], "n_gpus": 3, "n_nodes": 2}]}, "n_nodes must divide n_gpus"),
        ({"running": [{"request": {"key": ["1", 0.0]}, "start_s": 0, "shares": [{"node": "x", "n_gpus": 1}]}]}, "'x'"),
        ({"running": [{"request": {"key": ["1", 0.0], "limit_s": -1}, "start_s": 0, "shares": []}]}, "above 0"),
        ({"running": [{"request": {"key": ["1", 0.0]}, "start_s": "NaN", "shares": []}]}, "start_s must be a number"),
    ],
)
def test_plan__refuses_bad_states_in_one_sentence(change: dict[str, Any], said: str) -> None:
    state = json.loads((SAMPLES / "whole_gpu_state.json").read_text()) | change
    with pytest.raises(SmartmigError, match=said):
        run("plan", "-", typed=json.dumps(state))


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"model": "a100-40gb", "instances": [{"start": 1, "profile": "7g.40gb"}]}, "illegal start"),
        ({"model": "a100-40gb", "instances": [{"start": -4, "profile": "1g.5gb"}]}, "illegal start"),
        ({"model": "a100-40gb", "instances": [{"start": 10**30, "profile": "1g.5gb"}]}, "start"),
        (
            {
                "model": "a100-40gb",
                "instances": [{"start": 0, "profile": "4g.20gb"}, {"start": 2, "profile": "2g.10gb"}],
            },
            "share memory slice 2",
        ),
        ({"model": "a100-40gb", "instances": [], "busy_by_others": [3]}, "no instance begins at 3"),
        ({"model": "a101", "instances": []}, "a101"),
    ],
)
def test_plan__refuses_cards_that_cannot_be(card: dict[str, Any], said: str) -> None:
    state = {"time_s": 0.0, "nodes": [{"name": "m1", "n_gpus": 0, "gpus": [card]}]}
    with pytest.raises(SmartmigError, match=said):
        run("plan", "-", typed=json.dumps(state))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("plan", "nowhere.json"), "no such file"),
        (("plan", SAMPLES / "jobs.csv"), "not valid JSON"),
        (("plan", SAMPLES / "whole_gpu_state.json", "--selection", "sjf-oracle"), "no cluster knows"),
        (("plan", SAMPLES / "mig_state.json", "--repartition", "planner"), "live, take mean-field"),
        (("serve", "--adapter", "simulatd"), "Did you mean 'simulated'"),
        (("serve", "--adapter", "simulated:gpus=8xa100-40gb,nodes=1x4"), "either gpus"),
        (("serve", "--mode", "lead"), "allowed are observe, shadow, act"),
        (("replay", "nowhere.db"), "no such journal"),
        (("journal", "export", "nowhere.db", "-o", "x.csv"), "no such journal"),
        (("replay", "mysql://x/y"), "SQLite or PostgreSQL"),
        (("serve", "--adapter", "simulated:seed=-1"), "seed: got -1, allowed are 0 to"),
        (("serve", "--adapter", "simulated:start_h=-5"), "start_h is an hour from 0 to 24"),
        (("serve", "--adapter", "simulated:nodes=1x4,load=1e12"), "load at most 10,000"),
        (("serve", "--kill-file", "."), "the kill switch is a file"),
        (("serve", "--kill-file", "k" * 300), "cannot hold the kill switch: File name too long"),
        (("serve", "--host", ""), "no address ''"),
        (("serve", "--host", "a..b"), "no address 'a..b'"),
        (("serve", "--host", "999.1.1.1"), "no address '999.1.1.1'"),
        (("kill", "--kill-file", "."), "the kill switch is a file"),
        (("kill", "--kill-file", "/proc/x/kill"), "cannot hold the kill switch: No such file"),
        (("kill", "--kill-file", "/dev/null/kill"), "cannot hold the kill switch"),
        (("resume", "--kill-file", "k" * 300), "cannot hold the kill switch: File name too long"),
        (("journal", "show", "j" * 300), "cannot read: File name too long"),
        (("journal", "show", "x.db", "--kind", "audits"), "--kind: no kind 'audits'. Did you mean 'audit'"),
        (("token", "add", "ann", "--journal", "j" * 300), "cannot write: File name too long"),
        (("plan", "a\0b"), "cannot be read"),
        (("export", "-o", "o" * 300), "cannot write: File name too long"),
        (("token", "add", "A b"), "small letters"),
        (("token", "add", "ann", "--role", "king"), "allowed are viewer, operator"),
        (("export", "--layouts", "99"), "no configuration 99"),
    ],
)
def test_live_verbs__refuse_in_one_sentence(
    args: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SMARTMIG_HOME", str(tmp_path / "home"))
    with pytest.raises(SmartmigError, match=said):
        run(*args)


@pytest.mark.parametrize(
    "args",
    [
        ("journal", "show", "x.db", "--limit", str(10**30)),
        ("plan", "--seed", "-1"),
        ("plan", "--seed", str(2**63)),
        ("serve", "--seed", str(2**63)),
    ],
)
def test_live_verbs__bound_their_numbers(args: tuple[str, ...]) -> None:
    done = CliRunner().invoke(make_app(args[:1]), args, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "should be" in done.output  # greater or less than or equal to


def test_kill__lets_go_although_its_file_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go: list[float] = []
    monkeypatch.setattr("smartmig.adapters.simulated.SimulatedActuator.let_go", lambda _, s: let_go.append(s) or 0)
    with pytest.raises(InputError, match="the kill switch is a file"):
        run("kill", "--kill-file", tmp_path, "--adapter", "simulated")
    assert let_go == [30.0]


def test_kill_file__is_made_and_taken_back(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "kill"
    assert json.loads(run("kill", "--kill-file", place, "--adapter", "simulated", "--json"))["released"] == 0
    assert place.read_text() == "smartmig kill\n"
    assert json.loads(run("resume", "--kill-file", place, "--json"))["was_on"]
    assert not place.exists()
    assert not json.loads(run("resume", "--kill-file", place, "--json"))["was_on"]


@given(data=st.data(), gpus=clusters(max_gpus=8))
@hypothesis_settings(max_examples=40)
def test_export__mig_parted_counts_every_instance(data: st.DataObject, gpus: tuple[Any, ...]) -> None:
    layouts: tuple[Layout, ...] = data.draw(layouts_for(gpus))
    text = config_text({"mine": list(zip(gpus, layouts, strict=True))})
    again = read_config(text, gpus, "mine")
    for gpu, layout, read in zip(gpus, layouts, again, strict=True):
        assert multiset(gpu, read) == multiset(gpu, layout)


def test_export__is_the_format_of_mig_parted(tmp_path: Path) -> None:
    tree = yaml.safe_load(run("export", "--gpus", "3xa100-40gb", "--layouts", "1,10,1", "--name", "day"))
    assert tree == {
        "version": "v1",
        "mig-configs": {
            "day": [
                {"devices": [0, 2], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}},
                {"devices": [1], "mig-enabled": True, "mig-devices": {"2g.10gb": 2, "1g.5gb": 3}},
            ]
        },
    }
    out = tmp_path / "parted.yaml"
    run("export", "--state", SAMPLES / "mig_state.json", "-o", out)
    models = parse_gpus("2xa100-40gb")
    assert [len(layout) for layout in read_config(out.read_text(), models, "m1")] == [2, 1]


def test_doctor__names_everything_with_its_remedy() -> None:
    findings = json.loads(run("doctor", "--json"))
    names = " ".join(one["what"] for one in findings)
    for part in ("sqlalchemy", "fastapi", "Slurm", "munge", "PostgreSQL", "Chromium", "NVIDIA GPU"):
        assert part in names
    assert all(one["found"] or one["remedy"] for one in findings)


def test_doctor__says_that_a_slurm_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "slurmctld"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for version, ok in (("slurm 21.08.8-2", False), ("slurm-wlm 22.05.8", True), ("slurm 25.11.0", True), ("?", True)):
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)
        (found,) = [one for one in json.loads(run("doctor", "--json")) if one["what"] == "Slurm's controller"]
        assert found["ok"] == ok
        assert ok or found["remedy"] == "Slurm 21.08.8-2 is too old: 22.05 or later is needed"


def test_doctor__knows_every_package_of_the_extras() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = {name: project["optional-dependencies"][name] for name in ("train", "gym", "sb3", "live")}
    offered = {re.split(r"[\[<>=]", one)[0] for packages in extras.values() for one in packages}
    told = {one["what"]: one["remedy"] for one in json.loads(run("doctor", "--json"))}
    for package in offered:
        extra = re.search(r"smartmig\[(\w+)\]", told[f"Python package {package}"])
        assert extra is not None
        assert package in " ".join(extras[extra[1]])


def test_core__works_without_the_live_packages() -> None:
    blocked = ("sqlalchemy", "alembic", "fastapi", "uvicorn", "prometheus_client", "psycopg", "starlette")
    program = f"""
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from smartmig.cli.app import make_app
from typer.testing import CliRunner
done = CliRunner().invoke(make_app(), ["plan", {str(SAMPLES / "whole_gpu_state.json")!r}])
assert done.exit_code == 0, done.output
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
