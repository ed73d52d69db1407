"""The whole-GPU world as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smartmig.registry import ALLOCATIONS, SELECTIONS

SMARTMIG = Path(sys.executable).with_name("smartmig")
COMPILE_S = 300

# Two nodes of 4 for three days; a long job blocks the large one of day 0.
ROWS = """job_id,submit_s,run_s,n_gpus,limit_s,user
a,0,3600,3,7200,ann
b,0,3600,3,,bob
c,10,600,4,1200,ann
d,20,300,1,600,bob
e,30,60,1,90000,bob
f,90000,50,9,60,ann
g,172900,50,2,60,bob
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gang")
    (place / "jobs.csv").write_text(ROWS)
    (place / "outages.csv").write_text("node,from_s,to_s,kind\n0,100,200,failure\n1,100,200,drain\n")
    return place


def answer(folder: Path, *args: object) -> Any:
    command = [str(SMARTMIG), *map(str, args), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SIMULATE = ("simulate", "--world", "gang", "--trace", "jobs.csv", "--nodes", "2x4", "--max-gpus", 8)


def test_simulate__tells_what_waiting_cost(folder: Path) -> None:
    run = answer(folder, *SIMULATE, "--requests", "constant")
    assert run["n_jobs"] == 6
    # Strict: c waits for a node until 3600, d and e with it; all start then, on the GPUs c leaves.
    assert run["mean_wait_s"] == pytest.approx((3590 + 3580 + 3570) / 6)
    assert run["p99_wait_s"] > run["median_wait_s"] == pytest.approx(3570 / 2)
    assert run["mean_bounded_slowdown"] > 1
    assert 0 < run["gpu_utilisation"] < 1
    assert run["makespan_s"] == 172950
    assert run["policy"] == "fcfs, best-fit, strict"
    assert run["notes"] == ["requested times that the trace lacks are made up: constant"]
    assert set(run["wait_by_user_s"]) == {"ann", "bob"}


def test_simulate__backfill_lets_short_jobs_pass(folder: Path) -> None:
    run = answer(folder, *SIMULATE, "--requests", "constant", "--backfill", "easy", "--utilisation", "all")
    # c is promised 7200 on a's node; d is gone by then, e is not but fits beside b.
    assert run["mean_wait_s"] == pytest.approx(3590 / 6)
    assert 0 < run["saturated_gpu_utilisation"] <= 1
    assert 0 < run["busy_gpu_utilisation"] <= 1


def test_simulate__filters_by_day_and_user_sized_jobs(folder: Path) -> None:
    base = ("simulate", "--world", "gang", "--trace", "jobs.csv", "--nodes", "3x4", "--requests", "constant")
    assert answer(folder, *base, "--from", "1970-01-02")["n_jobs"] == 2
    assert answer(folder, *base, "--to", "1970-01-02")["n_jobs"] == 5
    assert answer(folder, *base, "--from", "1970-01-02", "--to", "1970-01-03", "--format", "csv")["n_jobs"] == 1


def test_simulate__failures_cost_runs(folder: Path) -> None:
    run = answer(folder, *SIMULATE, "--requests", "constant", "--outages", "outages.csv")
    # Node 0 fails under a, whose run is lost; node 1 drains, so b goes on.
    assert run["n_restarts"] == 1


def test_simulate__without_limits_says_what_that_means(folder: Path) -> None:
    assert "no limit" in answer(folder, *SIMULATE)["notes"][0]


def test_compare__all_combinations_on_the_same_seeds(folder: Path) -> None:
    rules = ("--selection", "fcfs", "--selection", "sjf", "--backfill", "none", "--backfill", "easy")
    result = answer(folder, "compare", *SIMULATE[1:], "--requests", "menu-1h", "--seeds", 2, "--first-seed", 3, *rules)
    assert result["seeds"] == [3, 4]
    assert result["baseline"] == "fcfs, best-fit, strict"
    names = [policy["name"] for policy in result["policies"]]
    assert names == [f"{s}, best-fit, {b}" for b in ("strict", "easy") for s in ("fcfs", "sjf")]
    for policy in result["policies"]:
        assert [run["seed"] for run in policy["runs"]] == [3, 4]
        mean = sum(run["mean_wait_s"] for run in policy["runs"]) / 2
        assert policy["estimates"]["mean_wait_s"]["mean"] == pytest.approx(mean)
    assert result["policies"][0]["mean_wait_change_frac"]["mean"] == 0
    alone = answer(folder, *SIMULATE, "--requests", "menu-1h", "--seed", 3)
    assert result["policies"][0]["runs"][0]["mean_wait_s"] == alone["mean_wait_s"]


def test_tables__without_json(folder: Path) -> None:
    for verb in ("simulate", "compare"):
        command = [str(SMARTMIG), verb, *map(str, SIMULATE[1:])]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S, check=False)
        assert done.returncode == 0, done.stderr
        assert "fcfs, best-fit, strict" in done.stdout
        assert "7 of 7 rows used" in done.stderr


def test_policies__lists_both_worlds(folder: Path) -> None:
    rules = answer(folder, "policies")
    assert [rule["id"] for rule in rules["selection"]] == list(SELECTIONS)
    assert [rule["id"] for rule in rules["allocation"]] == list(ALLOCATIONS)
