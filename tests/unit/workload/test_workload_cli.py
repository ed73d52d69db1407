"""The verbs `generate` and `trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from smartmig.cli import generate, trace
from smartmig.errors import InputError
from smartmig.workload.jobs_csv import read_jobs

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def run(app: object, *args: object) -> Result:
    result = CliRunner().invoke(app, [str(arg) for arg in args])  # type: ignore[arg-type]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_generate_day__writes_a_job_file(tmp_path: Path) -> None:
    out = tmp_path / "day.csv"
    result = run(generate.app, "day", "--seed", 3, "--multiplier", 2, "--deadline", "2:4", "-o", out)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "jobs over 2" in result.stderr
    jobs = read_jobs(out)
    assert ((jobs.deadline_s - jobs.arrive_s) > 1.9 * jobs.run_s[:, 4]).all()


def test_generate_fixed_rate__writes_to_standard_output() -> None:
    result = run(generate.app, "fixed-rate", "--jobs", 5, "--rate", 8, "-o", "-")
    assert len(result.stdout.splitlines()) == 6
    assert result.stderr.count("\n") == 1
    again = run(generate.app, "fixed-rate", "--jobs", 5, "--rate", 8, "-o", "-")
    assert again.stdout == result.stdout


def test_generate__draws_from_measured_curves(tmp_path: Path) -> None:
    out = tmp_path / "f.csv"
    run(generate.app, "fixed-rate", "--jobs", 20, "--curves", SAMPLES / "migperf_train.csv", "-o", out)
    assert set(read_jobs(out).kind) == {"migperf:toynet-train-bs8-seq64", "migperf:toynet-train-bs256-seq64"}


def test_generate__refuses_bad_flags(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--deadline: got 'soon'"):
        run(generate.app, "day", "--deadline", "soon", "-o", tmp_path / "d.csv")
    with pytest.raises(InputError, match="has no job"):
        run(generate.app, "day", "--multiplier", 1e-9, "-o", tmp_path / "d.csv")
    assert run(generate.app, "day").exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["openb_pods.csv", "genai_requests.csv"])
def test_trace__show_and_convert_guess_the_format(tmp_path: Path, name: str) -> None:
    out = tmp_path / "jobs.csv"
    result = run(trace.app, "convert", SAMPLES / name, "--slack", "3:3", "-o", out)
    assert "skipped" in result.stderr
    assert "assumed deadline: U(3, 3)" in result.stderr
    raw = json.loads(run(trace.app, "show", SAMPLES / name, "--json").stdout)
    converted = json.loads(run(trace.app, "show", out, "--json").stdout)
    assert raw["sizes"] == converted["sizes"]
    assert raw["report"]["skipped"]
    assert converted["slack"] == pytest.approx([3.0] * 6)
    assert sum(converted["arrivals_by_hour"]) == converted["n_jobs"]
    text = run(trace.app, "show", SAMPLES / name).stdout
    assert "arrivals by hour" in text
    assert "####" in text
    assert "assumed curve" in text


def test_trace__pods_are_slices_unless_whole_gpus_are_asked_for() -> None:
    pods = SAMPLES / "openb_pods.csv"
    assert "sizes" in json.loads(run(trace.app, "show", pods, "--json").stdout)
    for flags in ((), ("--format", "openb")):
        whole = json.loads(run(trace.app, "show", pods, "--whole-gpus", *flags, "--json").stdout)
        assert whole["format"] == "openb"
        assert "n_jobs" in whole


@pytest.mark.parametrize(
    ("name", "told"),
    [("log.swf", "swf"), ("sacct.txt", "sacct"), ("philly_jobs.csv", "philly"), ("gang_jobs.csv", "csv"),
     ("helios_jobs.csv", "helios"), ("pai_tasks.csv", "pai"), ("drac_jobs.csv", "drac"), ("beocat_jobs.csv", "beocat")],
)  # fmt: skip
def test_trace__converted_jobs_show_the_same(tmp_path: Path, name: str, told: str) -> None:
    out = tmp_path / "jobs.csv"
    run(trace.app, "convert", SAMPLES / name, "-o", out)
    before, after = (json.loads(run(trace.app, "show", path, "--json").stdout) for path in (SAMPLES / name, out))
    assert (before.pop("format"), after.pop("format")) == (told, "csv")
    before.pop("report"), after.pop("report")
    assert before == after
    text = run(trace.app, "show", SAMPLES / name).stdout
    assert "GPUs a job:" in text
    assert "rows used" in text


def test_trace_show__puts_many_sizes_together(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("job_id,submit_s,run_s,n_gpus,user\n" + "".join(f"{n},{n},60,{n},u{n}\n" for n in range(1, 40)))
    text = run(trace.app, "show", path, "--nodes", "4x8").stdout
    assert [line.split()[:2] for line in text.splitlines() if "%" in line] == [
        ["1", "1"], ["2", "1"], ["3-4", "2"], ["5-8", "4"], ["9-16", "8"], ["17-32", "16"], ["33-64", "7"],
    ]  # fmt: skip
    assert "of the other 29" in text
    assert "load on 4x8" in text


def test_trace_convert__window_in_days(tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    run(trace.app, "convert", SAMPLES / "genai_requests.csv", "--from-day", 1, "--days", 1, "--load", 2, "-o", out)
    assert read_jobs(out).job_id.tolist()[0].startswith("4")
    assert len(read_jobs(out)) == 2


def test_trace__refuses_what_does_not_belong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--load: the format 'openb' has no such knob"):
        run(trace.app, "convert", SAMPLES / "openb_pods.csv", "--load", 2, "-o", tmp_path / "j.csv")
    with pytest.raises(InputError, match=r"--format: no trace format 'opnb'\. Did you mean 'openb'"):
        run(trace.app, "show", SAMPLES / "openb_pods.csv", "--format", "opnb")
    with pytest.raises(InputError, match="--processes: the format 'miso' has no such knob"):
        run(trace.app, "curves", SAMPLES / "miso_steps.csv", "--processes", 2)
    odd = tmp_path / "odd.csv"
    odd.write_text("job_id,arrive_s\n1,2\n")
    with pytest.raises(InputError, match=r"odd\.csv:1: the header fits no trace format; nearest is"):
        run(trace.app, "show", odd)
    with pytest.raises(InputError, match="no such file"):
        run(trace.app, "show", tmp_path / "gone.csv")


@pytest.mark.parametrize("name", ["miso_steps.csv", "migperf_train.csv", "parvagpu_mps.csv"])
def test_trace_curves__lists_measurements(name: str) -> None:
    text = run(trace.app, "curves", SAMPLES / name).stdout
    assert "toynet" in text
    curves = json.loads(run(trace.app, "curves", SAMPLES / name, "--json").stdout)
    assert len(curves) == len(text.splitlines()) - 1
    assert len(curves[0]["speedup"]) == 5
