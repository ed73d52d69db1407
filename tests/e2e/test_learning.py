"""Train, stop, go on, evaluate and use a policy, as a user does."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from commands import SMARTMIG, called_here, smartmig

pytest.importorskip("torch", reason="pip install 'smartmig[train]'")

SMALL = (
    *("--gpus", "1xa100-40gb", "--multiplier", "1", "--pool", "2", "--days", "4", "--siblings", "2"),
    *("--validation-days", "2", "--validate-every", "1", "--teacher-days", "2", "--teacher-epochs", "2"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a policy trained for two updates in it, `mine.npz`."""
    place = tmp_path_factory.mktemp("learning")
    done = smartmig(place, "train", "repartition", "-o", "mine.npz", *SMALL, "--iterations", "2", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["updates"] == 2
    assert len(told["curve"]) == 2
    assert (place / "mine.npz").exists()
    assert (place / "mine.ckpt").exists()
    return place


def test_train__resumed_after_a_kill_gives_the_same_policy(folder: Path) -> None:
    whole = smartmig(folder, "train", "repartition", "-o", "whole.npz", *SMALL, "--iterations", "6")
    assert whole.returncode == 0, whole.stderr
    assert "on validation days after 6 updates" in whole.stdout
    command = [str(SMARTMIG), "train", "repartition", "-o", "parts.npz", *SMALL, "--iterations", "6"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "1/6" in line:
                first.send_signal(signal.SIGINT)
                break
        rest = first.stderr.read()
        assert first.wait(60) == 130, rest
    assert "Traceback" not in rest
    assert "--resume goes on from parts.ckpt" in rest
    again = smartmig(folder, "train", "repartition", "-o", "parts.npz", *SMALL, "--iterations", "6", "--resume")
    assert again.returncode == 0, again.stderr
    one, other = (folder / name for name in ("whole.npz", "parts.npz"))
    assert weights(one) == weights(other)


def weights(path: Path) -> bytes:
    from smartmig.policy.policy_file import read_policy

    return read_policy(path).weights.tobytes()


def test_trained_policy__runs_and_is_evaluated(folder: Path) -> None:
    assert smartmig(folder, "generate", "day", "--multiplier", "1", "-o", "day.csv").returncode == 0
    where = ("--gpus", "1xa100-40gb")
    own = ("--repartition", "mean-field", "--policy-file", "mine.npz")
    done = smartmig(folder, "simulate", "--jobs", "day.csv", *where, *own, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policy"] == "categorical-edf, mean-field"
    done = smartmig(
        folder, "evaluate", "--policy-file", "mine.npz", *where, "--multiplier", "1", "--seeds", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [policy["name"] for policy in told["policies"]] == ["static mix, CEDF", "slice-count", "mean-field"]
    assert told["trained_with"].startswith("smartmig train repartition -o mine.npz")


def test_train__imitates_a_planner(folder: Path) -> None:
    teacher = "planner:n_samples=2,n_candidates=4,horizon_s=300,every=8"
    args = ("-o", "planned.npz", *SMALL, "--teacher", teacher, "--iterations", "1", "--json")
    done = smartmig(folder, "train", "repartition", *args)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["updates"] == 1


def test_train__placement_is_found_resumed_and_used(folder: Path) -> None:
    small = ("--gpus", "1xa100-40gb", "--multiplier", "1", "--pool", "2", "--days", "1", "--validation-days", "1")
    small += ("--candidates", "4", "--elite", "2", "--generations", "2")
    done = smartmig(folder, "train", "placement", "-o", "prices.npz", *small, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 2
    done = smartmig(folder, "train", "placement", "-o", "prices.npz", *small, "--resume")
    assert done.returncode == 0, done.stderr
    assert smartmig(folder, "generate", "day", "--multiplier", "1", "-o", "day.csv").returncode == 0
    own = ("--gpus", "1xa100-40gb", "--placement", "learned:policy_file=prices.npz")
    done = smartmig(folder, "simulate", "--jobs", "day.csv", *own, "--json")
    assert done.returncode == 0, done.stderr


def test_train__joint_and_its_prices_are_found_resumed_and_used(folder: Path) -> None:
    small = ("--gpus", "1xa100-40gb", "--multiplier", "1", "--pool", "2", "--validation-days", "1", "--days", "2")
    turns = ("--siblings", "2", "--rounds", "1", "--cut-updates", "1", "--price-rounds", "1", "--price-days", "1")
    turns += ("--candidates", "4", "--elite", "2")
    done = smartmig(folder, "train", "joint", "-o", "pair.npz", *small, *turns, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
    done = smartmig(folder, "train", "joint", "-o", "pair.npz", *small, *turns, "--resume")
    assert done.returncode == 0, done.stderr
    start = ("--start", "pair.npz", "--iterations", "1", "--siblings", "2")
    done = smartmig(folder, "train", "prices", "-o", "prices-of-pair.npz", *small, *start, "--json")
    assert done.returncode == 0, done.stderr
    assert smartmig(folder, "generate", "day", "--multiplier", "1", "-o", "one.csv").returncode == 0
    run = ("simulate", "--jobs", "one.csv", "--policy", "joint", "--gpus", "1xa100-40gb", "--json")
    for own in ((), ("--policy-file", "pair.npz")):
        done = smartmig(folder, *run, *own)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["policy"] == "joint"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("simulate", "--jobs", "day.txt", "--policy", "joined"),
            "--policy: no policy 'joined'. Did you mean 'joint'?",
        ),
        (("train", "prices", "-o", "x.npz", "--start", "nobody"), "nobody: no such policy file"),
        (("train", "prices", "-o", "x.npz", "--start", "paper", "--noise", "0"), "--noise must be above 0"),
        (("train", "joint", "-o", "x.npz", "--start", "none.npz"), "none.npz: no such policy file"),
        (("train", "joint", "-o", "x.npz", "--rounds", "0"), "--rounds must be at least 1"),
        (("train", "repartition", "-o", "x.npz", "--days", "5", "--siblings", "2"), "--days must be a multiple"),
        (("train", "repartition", "-o", "x.npz", "--teacher", "static"), "never re-cuts"),
        (("train", "repartition", "-o", "x.npz", "--device", "tpu"), "--device: got 'tpu'"),
        (("train", "repartition", "-o", "x.npz", *SMALL, "--resume"), "x.ckpt: cannot be read"),
        (("evaluate", "--policy-file", "none.npz"), "none.npz: no such policy file"),
        (("evaluate", "--policy-file", "day.txt"), "day.txt: not a policy file"),
        (("evaluate", "--policy-file", "mine.npz", "--gpus", "2xa30", "--seeds", "1"), "trained on a100-40gb"),
    ],
)
def test_bad_input__is_one_sentence(
    folder: Path,
    args: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "day.txt").write_text("hello")
    monkeypatch.chdir(folder)
    code, _, err = called_here(args, monkeypatch, capsys)
    assert code == 2, err
    assert says in err
    assert "Traceback" not in err
    assert not (folder / "x.npz").exists()


@pytest.mark.parametrize("mode", [(), ("--recut", "drain", "--no-preempt")])
def test_shipped_policy__runs_by_default(folder: Path, mode: tuple[str, ...]) -> None:
    assert smartmig(folder, "generate", "day", "--multiplier", "2", "-o", "eight.csv").returncode == 0
    done = smartmig(folder, "simulate", "--jobs", "eight.csv", "--repartition", "mean-field", *mode, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_repartitions"] > 0


def test_train_steps__tells_how_s1s_way_does(tmp_path: Path) -> None:
    flags = ("--steps", "128", "--layers", "8", "--lanes", "4", "--update-steps", "64", "--batch", "32", "--pool", "1")
    small = ("--gpus", "1xa100-40gb", "--layouts", "9", "--multiplier", "0.3", "--validation-days", "2")
    done = smartmig(tmp_path, "train", "steps", "-o", "mine.npz", *flags, *small, "--json")
    told = json.loads(done.stdout)
    assert told["steps"] == 128
    assert 0.0 <= told["late_frac"] <= 1.0
    from smartmig.train.placer import read_placer

    assert read_placer(tmp_path / "mine.npz").command.startswith("smartmig train steps -o mine.npz")


def test_study__prints_a_table_and_draws_it(tmp_path: Path) -> None:
    small = ("--gpus", "1xa100-40gb", "--layouts", "9", "--multiplier", "0.3", "--steps", "64", "--days", "2")
    done = smartmig(tmp_path, "study", "algorithms", *small, "--json")
    rows = json.loads(done.stdout)
    labels = ["Largest-First", "PPO, clipped", "PPO, KL target", "GRPO-style groups", "DQN"]
    assert list(dict.fromkeys(row["label"] for row in rows)) == labels
    assert "GRPO" in (tmp_path / "out" / "study-algorithms.html").read_text(encoding="utf-8")
