"""A session's record knows the policy files it was decided with; another file is no replay of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live_cluster import about, gang_loop, turn_all
from smartmig.cli.app import make_app
from smartmig.cli.live_policy import PolicyNames
from smartmig.cli.policy_files import digests
from smartmig.cli.recorded import recorded_pilot
from smartmig.control.guard import GuardRules
from smartmig.control.memory import Memory
from smartmig.control.wire import state_from_json
from smartmig.errors import InputError
from smartmig.policy.policy_file import SHIPPED
from smartmig.policy.repartition.mean_field import MeanField
from strategies import make_gangs

JOBS = make_gangs((0, 4, 30, 40), (0, 3, 20, 60), (1, 8, 10, 20))
JOINT = {"policy_file": "joint"}
SAMPLES = Path(__file__).parents[2] / "samples"
STATES = {
    world: state_from_json(json.loads((SAMPLES / f"{name}_state.json").read_text()), name)
    for world, name in (("gang", "whole_gpu"), ("mig", "mig"))
}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def replay(*args: object) -> None:
    done = CliRunner().invoke(make_app(("replay",)), ["replay", *map(str, args)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("names", "world", "files"),
    [
        (PolicyNames(), "gang", []),
        (PolicyNames(selection="learned"), "gang", ["gang-slowdown.npz", "gang-slowdown-run-times.npz"]),
        (PolicyNames(allocation={"id": "learned", "policy_file": "wait"}), "gang", ["gang-wait.npz"]),
        (PolicyNames(selection={"id": "learned", "policy_file": "hand-made"}), "gang", []),
        (PolicyNames(), "mig", []),
        (PolicyNames(placement="learned"), "mig", ["prices-drain.npz"]),
        (PolicyNames(placement={"id": "learned", "policy_file": "tight"}), "mig", ["prices-tight.npz"]),
        (PolicyNames(placement={"id": "learned", "policy_file": "hand-made"}), "mig", []),
        (PolicyNames(repartition="mean-field"), "mig", ["mean-field-drain.npz"]),
        (
            PolicyNames(placement={"id": "learned", **JOINT}, repartition={"id": "mean-field", **JOINT}),
            "mig",
            ["joint-drain.npz"],
        ),
    ],
)
def test_digests__are_of_every_file_a_policy_reads(names: PolicyNames, world: str, files: list[str]) -> None:
    assert digests(names.policy((world,))) == {f"shipped:{name}": digest(SHIPPED / name) for name in files}


@pytest.mark.parametrize(
    ("names", "world"),
    [
        (PolicyNames(selection="learned", allocation={"id": "learned", "policy_file": "wait"}), "gang"),
        (PolicyNames(placement="learned", repartition="mean-field"), "mig"),
        (PolicyNames(placement={"id": "learned", **JOINT}), "mig"),
    ],
)
def test_digests__leave_out_no_file_that_deciding_opens(
    names: PolicyNames, world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smartmig.policy import gang_files

    opened: set[str] = set()
    read = Path.read_bytes

    def watched(path: Path) -> bytes:
        opened.add(path.name)
        return read(path)

    policy = names.policy((world,))
    recorded = {name.removeprefix("shipped:") for name in digests(policy)}
    gang_files._agents.cache_clear()
    gang_files._times.cache_clear()
    monkeypatch.setattr(Path, "read_bytes", watched)
    recorded_pilot("j.db", about(names, (world,), GuardRules()), Memory()).decide(STATES[world])
    assert {name for name in opened if name.endswith(".npz")} == recorded


def own_policy(folder: Path, shipped: str) -> Path:
    return Path(shutil.copy(SHIPPED / shipped, folder / "own.npz"))


def test_replay__refuses_a_policy_file_that_has_changed(tmp_path: Path) -> None:
    own, place = own_policy(tmp_path, "gang-wait.npz"), tmp_path / "journal.db"
    own.with_name("gang-wait-run-times.npz").write_bytes((SHIPPED / "gang-wait-run-times.npz").read_bytes())
    names = PolicyNames(selection={"id": "learned", "policy_file": str(own)})
    loop, cluster = gang_loop(tmp_path, JOBS, names=names)
    turn_all(loop, cluster)
    loop.journal.close()
    replay(place)
    was = digest(own)
    shutil.copy(SHIPPED / "gang-slowdown.npz", own)
    with pytest.raises(InputError) as refused:
        replay(place)
    assert refused.value.exit_code == 2
    for part in (str(place), str(own), was[:16], digest(own)[:16]):
        assert part in str(refused.value)
    replay(place, "--selection", "sjf")
    own.unlink()
    with pytest.raises(InputError, match=rf"own.npz: cannot be read; recorded was one with SHA-256 {was[:16]}"):
        replay(place)
    replay(place, "--selection", "sjf")


def test_replay__compares_nothing_where_nothing_was_recorded() -> None:
    boot: dict[str, Any] = about(PolicyNames(repartition="mean-field"), ("mig",), GuardRules())
    with pytest.raises(InputError, match=r"mean-field-drain.npz: has SHA-256"):
        recorded_pilot("j.db", {**boot, "policy_files": {"shipped:mean-field-drain.npz": "0" * 64}}, Memory())
    del boot["policy_files"]
    made = recorded_pilot("j.db", boot, Memory()).decider.policy.mig
    assert made is not None
    assert isinstance(made.repartition, MeanField)
