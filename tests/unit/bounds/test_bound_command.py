"""`smartmig bound` on a small job file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smartmig.cli.app import make_app
from smartmig.errors import InputError, SmartmigError
from smartmig.workload.jobs_csv import write_jobs
from smartmig.workload.poisson import FixedRate

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bound") / "jobs.csv"
    write_jobs(FixedRate(n_jobs=30, rate_per_min=4.0).jobs(seed=2), path)
    return path


def run(job_file: Path, *flags: str) -> str:
    done = RUNNER.invoke(make_app(["bound"]), ["bound", "--jobs", str(job_file), "--gpus", "2xa100-40gb", *flags])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_bound__answers_with_every_number_and_how_it_was_found(job_file: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof.npz"
    page = tmp_path / "pareto.html"
    flags = ("--max-tardiness", "60", "--time-limit", "1", "--against", "categorical-edf")
    answer = json.loads(run(job_file, *flags, "--certificate", str(proof), "--pareto", str(page), "--json"))
    for name in ("energy", "energy_paper", "energy_given", "mean_tardiness"):
        assert answer[f"{name}_{'s' if name == 'mean_tardiness' else 'j'}"] >= 0
        assert answer[f"{name}_method"]
        assert answer[f"{name}_solve_s"] >= 0
    assert answer["et"] > 0
    assert answer["et_solve_s"] < 5
    assert answer["energy_j"] >= answer["energy_paper_j"]
    assert answer["assumptions"]
    assert answer["pareto"]
    (above,) = (reached["above_bound"] for reached in answer["reached"])
    assert above["et"] >= 0
    assert above["energy_j"] >= 0
    assert "What nobody can beat" in page.read_text(encoding="utf-8")
    verdicts = json.loads(run(job_file, "--check", str(proof), "--json"))
    assert set(verdicts) >= {"et", "mean_tardiness_s", "energy_given_j"}
    assert all(verdict["valid"] for verdict in verdicts.values())
    with pytest.raises(SmartmigError, match="not proved"):
        RUNNER.invoke(
            make_app(["bound"]),
            ["bound", "--jobs", str(job_file), "--gpus", "1xa30-24gb", "--check", str(proof)],
            catch_exceptions=False,
        )


def test_bound__prints_a_table(job_file: Path) -> None:
    text = run(job_file, "--time-limit", "0.2", "--against", "none")
    assert "energy, S3's bound" in text
    assert "slice-time prices" in text


def test_bound__tells_the_gap_to_the_best_known_schedule(job_file: Path) -> None:
    answer = json.loads(run(job_file, "--time-limit", "0.5", "--json"))
    (best,) = answer["reached"]
    assert best["policy"] == "shortest-work, slice-count"
    assert best["above_bound"]["et"] >= 0


def test_bound__by_the_papers_methods(job_file: Path) -> None:
    answer = json.loads(run(job_file, "--method", "paper", "--time-limit", "5", "--against", "none", "--json"))
    assert "2 n eps" in answer["mean_tardiness_method"]
    assert answer["energy_paper_j"] > 0
    assert answer["et"] is None


def test_bound__refuses_what_it_cannot_write(job_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder"):
        run(job_file, "--certificate", str(tmp_path))
