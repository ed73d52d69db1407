"""Train the two agents of a whole-GPU cluster, stop, go on and use them, as a user does."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from commands import SMARTMIG, smartmig
from smartmig.cli import STOPPED

pytest.importorskip("torch", reason="pip install 'smartmig[train]'")

SMALL = (
    *("--trace", "jobs.csv", "--nodes", "3x4", "--to", "1970-01-06", "--tune-to", "1970-01-09", "--candidates", "4"),
    *("--elite", "2", "--families", "1", "--siblings", "2", "--stretch-days", "3", "--validate-every", "1"),
    *("--generations", "2", "--updates", "2", "--threads", "1"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With eight days of jobs and agents trained on five of them, `mine.npz`."""
    place = tmp_path_factory.mktemp("agents")
    rng = np.random.default_rng(0)
    n = 900
    submit_s = np.sort(rng.uniform(0, 8 * 86_400, n))
    run_s = np.where(rng.random(n) < 0.9, rng.uniform(20, 900, n), rng.uniform(7200, 30_000, n))
    limit_s = np.where(run_s < 900, 3600, 90_000)
    rows = [
        f"{at},{submit_s[at]:.0f},{run_s[at]:.0f},{rng.choice([1, 2, 4])},{limit_s[at]},u{at % 5}" for at in range(n)
    ]
    (place / "jobs.csv").write_text("\n".join(["job_id,submit_s,run_s,n_gpus,limit_s,user", *rows]) + "\n")
    done = smartmig(place, "train", "gang", "-o", "mine.npz", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rounds"] == len(told["curve"]) == 4
    assert "Traceback" not in done.stderr
    return place


def test_train_gang__stopped_and_resumed_gives_the_same_agents(folder: Path) -> None:
    command = [str(SMARTMIG), "train", "gang", "-o", "parts.npz", *SMALL]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "1/4" in line:
                first.send_signal(signal.SIGINT)
                break
        rest = first.stderr.read()
        assert first.wait(100) == STOPPED, rest
    assert "--resume goes on from parts.ckpt" in rest
    again = smartmig(folder, "train", "gang", "-o", "parts.npz", *SMALL, "--resume")
    assert again.returncode == 0, again.stderr
    one, other = (np.load(folder / name)["weights"] for name in ("mine.npz", "parts.npz"))
    np.testing.assert_array_equal(one, other)


def test_learned__runs_ones_own_agents_with_fairness_and_a_page(folder: Path) -> None:
    flags = ("--world", "gang", "--trace", "jobs.csv", "--nodes", "3x4", "--from", "1970-01-06")
    rules = ("--selection", "fcfs", "--selection", "learned", "--allocation", "learned", "--backfill", "easy")
    page = ("--policy-file", "mine.npz", "--report", "page.html", "--json")
    done = smartmig(folder, "compare", *flags, *rules, *page)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    fair = told["fairness"][1]
    assert fair["name"] == "learned:policy_file=mine.npz, learned:policy_file=mine.npz, easy"
    assert set(fair["wait_by_size_s"]) == {"1", "2", "3-4"}
    assert fair["worst_user_wait_s"]["mean"] >= fair["median_user_wait_s"]["mean"]
    assert fair["longest_wait_s"]["mean"] >= fair["worst_wait_s"]["mean"] > 0
    text = (folder / "page.html").read_text(encoding="utf-8")
    assert set(fair["wait_by_user_s"]) == {f"u{number}" for number in range(5)}
    for heading in ("Waiting over time", "Utilisation by partition", "Slowdown by job size", "Waiting by user"):
        assert heading in text
    # By name, file and flag: the same agents, strict or with EASY.
    one = smartmig(folder, "simulate", *flags, "--selection", "learned:policy_file=mine.npz", "--json")
    other = smartmig(folder, "simulate", *flags, "--selection", "learned", "--policy-file", "mine.npz", "--json")
    assert json.loads(one.stdout)["mean_wait_s"] == json.loads(other.stdout)["mean_wait_s"]
    shown = smartmig(folder, "compare", *flags, "--selection", "learned", "--backfill", "none")
    assert "Who waits: by size, the worst, the starved" in shown.stdout


def test_run_times__are_learned_and_used(folder: Path) -> None:
    done = smartmig(folder, "train", "run-times", "-o", "times.npz", "--trace", "jobs.csv", "--to", "1970-01-06")
    assert done.returncode == 0, done.stderr
    flags = ("--world", "gang", "--trace", "jobs.csv", "--nodes", "3x4", "--json")
    done = smartmig(folder, "simulate", *flags, "--selection", "sjf-predicted:predictor=times.npz")
    assert done.returncode == 0, done.stderr
    done = smartmig(folder, "simulate", *flags, "--selection", "learned:predictor=times.npz")
    assert done.returncode == 0, done.stderr
