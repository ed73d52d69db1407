"""The command as a user runs it: a process, its stdout, its stderr, its exit code and its files."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands import COMPILE_S, SMARTMIG, assert_self_contained, smartmig
from smartmig.cli.app import make_app
from smartmig.registry import PLACEMENTS, REPARTITIONS, REPRODUCTIONS

PAPER = ("--gpus", "8xa100-40gb", "--layouts", "1,1,2,3,3,5,5,10", "--placement", "categorical-edf")


def answer(folder: Path, *args: object) -> Any:
    """What the command printed with `--json`; stdout must be that and nothing else."""
    done = smartmig(folder, *args, "--json")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a light day in it, `day.csv`."""
    place = tmp_path_factory.mktemp("cli")
    done = smartmig(place, "generate", "day", "--seed", 3, "--multiplier", 2, "-o", "day.csv")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(r"\d+ jobs over [\d.]+ h, .* written to day\.csv\n", done.stderr)
    return place


@pytest.fixture(scope="module")
def paper_run(folder: Path) -> dict[str, Any]:
    run: dict[str, Any] = answer(folder, "simulate", "--jobs", "day.csv", *PAPER)
    return run


def test_simulate__tells_what_it_cost(folder: Path, paper_run: dict[str, Any]) -> None:
    n_rows = len((folder / "day.csv").read_text().splitlines()) - 1
    assert paper_run["n_jobs"] == n_rows
    assert paper_run["energy_j"] > 0
    assert 0 <= paper_run["late_frac"] <= 1
    assert paper_run["makespan_s"] > 20 * 3600
    assert paper_run["n_repartitions"] == 0


def test_simulate__et_follows_from_energy_and_tardiness(paper_run: dict[str, Any]) -> None:
    energy_wmin = paper_run["energy_j"] / 60
    tardiness_min = paper_run["mean_tardiness_s"] / 60
    assert paper_run["et"] == pytest.approx((2e-7 * energy_wmin + tardiness_min) / (1 + 2e-7), rel=1e-12)


def test_simulate__the_same_seed_gives_the_same_numbers(folder: Path, paper_run: dict[str, Any]) -> None:
    smartmig(folder, "generate", "day", "--seed", 3, "--multiplier", 2, "-o", "again.csv")
    assert (folder / "again.csv").read_bytes() == (folder / "day.csv").read_bytes()
    assert answer(folder, "simulate", "--jobs", "again.csv", *PAPER) == paper_run
    smartmig(folder, "generate", "day", "--seed", 4, "--multiplier", 2, "-o", "other.csv")
    assert (folder / "other.csv").read_bytes() != (folder / "day.csv").read_bytes()


def test_simulate__the_order_of_rows_does_not_matter(folder: Path, paper_run: dict[str, Any]) -> None:
    header, *rows = (folder / "day.csv").read_text().splitlines()
    random.Random(0).shuffle(rows)
    (folder / "shuffled.csv").write_text("\n".join([header, *rows]) + "\n")
    assert answer(folder, "simulate", "--jobs", "shuffled.csv", *PAPER) == paper_run


def test_simulate__reads_standard_input(folder: Path, paper_run: dict[str, Any]) -> None:
    command = [str(SMARTMIG), "simulate", "--jobs", "-", *PAPER, "--json"]
    day = (folder / "day.csv").read_text()
    done = subprocess.run(command, input=day, capture_output=True, text=True, timeout=COMPILE_S, check=True)
    assert json.loads(done.stdout)["energy_j"] == paper_run["energy_j"]


def test_simulate__recuts_by_draining(folder: Path) -> None:
    flags = ("--gpus", "4xa100-40gb", "--repartition", "slice-count", "--recut", "drain", "--no-preempt")
    run = answer(folder, "simulate", "--jobs", "day.csv", *flags)
    assert run["n_repartitions"] > 0
    assert run["n_preemptions"] == 0
    assert len(run["config_frac"]) > 1
    assert sum(run["config_frac"].values()) == pytest.approx(1.0)


def test_simulate__a_cut_by_names_is_the_cut_by_number(folder: Path) -> None:
    base = ("simulate", "--jobs", "day.csv", "--gpus", "2xa100-40gb", "--layouts")
    by_name = answer(folder, *base, "4g+2g+1g,1g+2g+4g")
    assert by_name == answer(folder, *base, "2x3")
    assert by_name["config_frac"] == {"a100-40gb:4g+2g+1g": 1.0}


def test_simulate__mixed_cards_say_what_is_assumed(folder: Path) -> None:
    base = ("simulate", "--jobs", "day.csv", "--gpus", "2xa100-40gb,2xh200-141gb")
    as_given = answer(folder, *base)
    assert {name.partition(":")[0] for name in as_given["config_frac"]} == {"a100-40gb", "h200-141gb"}
    assert any("as given" in note for note in as_given["notes"])
    estimated = answer(folder, *base, "--speed", "estimated")
    assert estimated["mean_tardiness_s"] < as_given["mean_tardiness_s"]


def test_simulate__without_json_prints_a_table(folder: Path) -> None:
    done = smartmig(folder, "simulate", "--jobs", "day.csv", *PAPER)
    assert done.returncode == 0
    assert re.search(r"^\s*energy\s+[\d.]+\s+kWh\s*$", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout


def test_simulate__report_is_one_page_that_needs_no_network(folder: Path, paper_run: dict[str, Any]) -> None:
    run = answer(folder, "simulate", "--jobs", "day.csv", *PAPER, "--report", "pages/run.html")
    assert run == paper_run
    assert_self_contained(folder / "pages" / "run.html")


def test_compare__pairs_policies_over_seeds(folder: Path) -> None:
    flags = ("--multiplier", 2, "--gpus", "2xa100-40gb", "--seeds", 2, "--first-seed", 3)
    rules = ("--repartition", "static", "--repartition", "slice-count")
    result = answer(folder, "compare", *flags, *rules, "--report", "compare.html")
    assert result["seeds"] == [3, 4]
    names = ["categorical-edf, static", "categorical-edf, slice-count"]
    assert [policy["name"] for policy in result["policies"]] == names
    assert result["baseline"] == names[0]
    base, other = result["policies"]
    assert base["et_change_frac"]["mean"] == 0
    ets = [[run["et"] for run in policy["runs"]] for policy in (base, other)]
    assert other["et_change_frac"]["mean"] == pytest.approx(sum(ets[1]) / sum(ets[0]) - 1)
    assert other["estimates"]["et"]["mean"] == pytest.approx(sum(ets[1]) / 2)
    for policy in result["policies"]:
        assert [run["seed"] for run in policy["runs"]] == [3, 4]
        for run, bound_j in zip(policy["runs"], result["bound_energy_j"], strict=True):
            assert run["energy_j"] > bound_j
    assert_self_contained(folder / "compare.html")
    # A worker process computes what the single run does.
    alone = answer(folder, "simulate", "--jobs", "day.csv", "--gpus", "2xa100-40gb")
    assert base["runs"][0]["energy_j"] == alone["energy_j"]


def test_compare__flags_outrank_the_scenario(folder: Path) -> None:
    (folder / "lab.yaml").write_text(
        "version: 1\ntitle: lab\ncluster: {gpus: 8xa100-40gb}\nworkload: {id: day, multiplier: 20}\nseeds: 9\n"
        "policies:\n  - name: one\n    layouts: 8x1\n    restart_s: 60\n"
    )
    flags = ("--gpus", "2xa100-40gb", "--layouts", "2x3", "--multiplier", 2, "--seeds", 1, "--first-seed", 3)
    result = answer(folder, "compare", "lab.yaml", *flags, "--restart-s", 0)
    assert result["title"] == "lab"
    (run,) = result["policies"][0]["runs"]
    alone = answer(folder, "simulate", "--jobs", "day.csv", "--gpus", "2xa100-40gb", "--layouts", "2x3")
    assert run["energy_j"] == alone["energy_j"]
    assert run["mean_tardiness_s"] == alone["mean_tardiness_s"]
    # No interval from one seed: null, not nan.
    assert result["policies"][0]["estimates"]["et"]["half_width"] is None


def test_compare__runs_a_job_file(folder: Path, paper_run: dict[str, Any]) -> None:
    result = answer(folder, "compare", "--jobs", "day.csv", *PAPER)
    (run,) = result["policies"][0]["runs"]
    assert {key: run[key] for key in ("energy_j", "et")} == {key: paper_run[key] for key in ("energy_j", "et")}


def test_bound__is_below_what_a_run_takes(folder: Path, paper_run: dict[str, Any]) -> None:
    bound = answer(folder, "bound", "--jobs", "day.csv", "--gpus", "8xa100-40gb")
    assert 0 < bound["energy_paper_j"] < paper_run["energy_j"]


def test_lists__are_json_too(folder: Path) -> None:
    rules = answer(folder, "policies")
    assert [rule["id"] for rule in rules["placement"]] == list(PLACEMENTS)
    assert [rule["id"] for rule in rules["repartition"]] == list(REPARTITIONS)
    assert all(rule["about"] for rule in (*rules["placement"], *rules["repartition"]))
    assert {"a100-40gb", "h200-141gb"} <= {card["id"] for card in answer(folder, "gpus")}
    assert len(answer(folder, "layouts", "a100-40gb")["configurations"]) == 12
    assert answer(folder, "trace", "show", "day.csv")["n_jobs"] > 100
    assert [entry["id"] for entry in answer(folder, "reproduce")] == list(REPRODUCTIONS)


def test_trace__converts_splits_and_shows_whole_gpu_jobs(tmp_path: Path) -> None:
    rows = [
        f"{at}#0,{at}.0,{60 + at}.0,{1 + at % 9},2021-03-{1 + at // 10:02d} 00:00:{at % 10:02d}" for at in range(40)
    ]
    header = "job_id,arrival_s,service_sec,gpu_count,submit_time_derived"
    (tmp_path / "venus.csv").write_text("\n".join([header, *rows, "broken,row"]) + "\n")
    raw = answer(tmp_path, "trace", "show", "venus.csv", "--nodes", "2x8")
    assert (raw["format"], raw["n_jobs"], raw["n_limits"]) == ("helios", 40, 0)
    assert raw["report"]["broken"] == {"other than 5 fields": [42]}
    assert raw["load"] == pytest.approx(raw["gpu_hours"] / (16 * 24 * raw["days"]))
    flags = ("--max-gpus", 8, "--to", "2021-03-04", "--requests", "menu-1h", "--seed", 5)
    done = smartmig(tmp_path, "trace", "convert", "venus.csv", *flags, "-o", "jobs.csv.gz")
    assert (done.returncode, done.stdout) == (0, "")
    assert "  broken 1: other than 5 fields (line 42)" in done.stderr.splitlines()
    assert "  left out 9: from 2021-03-04 on" in done.stderr.splitlines()
    assert "40 of 40 requested times are made up: menu-1h, seed 5" in done.stderr
    kept = answer(tmp_path, "trace", "show", "jobs.csv.gz", "--format", "csv")
    assert kept["n_limits"] == kept["n_jobs"] == 27
    done = smartmig(tmp_path, "trace", "split", "jobs.csv.gz", "--at", "2021-03-02", "--at", "2021-03-03", "-o", "part")
    assert done.returncode == 0, done.stderr
    parts = [answer(tmp_path, "trace", "show", f"part-{number}.csv") for number in (1, 2, 3)]
    assert sum(part["n_jobs"] for part in parts) == kept["n_jobs"]
    assert [part["first_submit"][:10] for part in parts] == ["2021-03-01", "2021-03-02", "2021-03-03"]
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


def test_trace__reads_whole_gpu_jobs_from_standard_input(tmp_path: Path) -> None:
    command = [str(SMARTMIG), "trace", "show", "-", "--whole-gpus", "--json"]
    text = "job_id,submit_s,run_s,n_gpus\na,0,60,2\n"
    done = subprocess.run(
        command, cwd=tmp_path, input=text, capture_output=True, text=True, timeout=COMPILE_S, check=True
    )
    assert json.loads(done.stdout)["n_jobs"] == 1


def test_help__names_every_verb(folder: Path) -> None:
    done = smartmig(folder, "--help")
    assert done.returncode == 0
    verbs = ("simulate", "compare", "reproduce", "bound", "demo", "policies", "gpus", "layouts", "generate", "trace")
    assert all(verb in done.stdout for verb in verbs)


def test_pipe__a_reader_that_leaves_is_no_error(folder: Path) -> None:
    done = subprocess.run(
        f"'{SMARTMIG}' generate day --multiplier 20 -o - | head -n 1",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMPILE_S,
        check=False,
    )
    assert done.stdout.startswith("job_id,")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.slow
def test_ctrl_c__stops_a_long_comparison_at_once(tmp_path: Path) -> None:
    command = [str(SMARTMIG), "compare", "--seeds", "5000", "--report", "long.html"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        try:
            first = process.stderr.readline()
            assert first.startswith("days")
            # Somewhere in the middle: workers may be starting, compiling or computing.
            time.sleep(1.0)
            pressed = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=20)
            took_s = time.monotonic() - pressed
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert took_s < 10
    assert out == ""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if not line.startswith("days")]
    assert lines == ["smartmig: stopped"]
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c__while_it_starts(tmp_path: Path) -> None:
    with subprocess.Popen(
        [str(SMARTMIG), "compare", "--seeds", "5000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        time.sleep(1.2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "verb",
    ["", "simulate", "compare", "reproduce", "bound", "demo", "policies", "gpus", "layouts", "generate", "generate day",
     "generate fixed-rate", "trace", "trace show", "trace convert", "trace split", "trace curves"],
)  # fmt: skip
def test_help__of_every_verb_prints(verb: str) -> None:
    done = CliRunner().invoke(make_app(verb.split()[:1]), [*verb.split(), "--help"])
    assert done.exit_code == 0, done.exception
    assert "Usage" in done.stdout
