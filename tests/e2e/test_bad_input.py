"""Whatever a user gets wrong: exit code 2, nothing on stdout, one sentence on stderr that names the place."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from commands import SMARTMIG, called_here
from smartmig.policy.policy_file import SHIPPED

HEADER = "job_id,arrive_s,deadline_s,run_1g_s,run_2g_s,run_3g_s,run_4g_s,run_7g_s"
GOOD = "a,0,90,60,32,23,19,13"
FILES: dict[str, bytes] = {
    "good.csv": f"{HEADER}\n{GOOD}\n".encode(),
    "empty.csv": b"",
    "header.csv": f"{HEADER}\n".encode(),
    "missing.csv": f"{HEADER.replace(',deadline_s', '')}\na,0,60,32,23,19,13\n".encode(),
    "unknown.csv": f"{HEADER},colour\n{GOOD},red\n".encode(),
    "ragged.csv": f"{HEADER}\n{GOOD}\nb,0,90\n".encode(),
    "twice.csv": f"{HEADER}\n{GOOD}\nb,1,90,60,32,23,19,13\n{GOOD}\n".encode(),
    "negative.csv": f"{HEADER}\n{GOOD}\nb,-1,90,60,32,23,19,13\n".encode(),
    "negative_run.csv": f"{HEADER}\nb,0,90,-60,32,23,19,13\n".encode(),
    "nan.csv": f"{HEADER}\nb,0,nan,60,32,23,19,13\n".encode(),
    "inf.csv": f"{HEADER}\nb,0,90,inf,32,23,19,13\n".encode(),
    "word.csv": f"{HEADER}\nb,soon,90,60,32,23,19,13\n".encode(),
    "zero_run.csv": f"{HEADER}\nb,0,90,60,32,23,19,0\n".encode(),
    "nowhere.csv": f"{HEADER}\n{GOOD}\nb,0,90,,,,,\n".encode(),
    "backwards.csv": f"{HEADER}\n{GOOD}\n\nb,50,40,60,32,23,19,13\n".encode(),
    "noid.csv": f"{HEADER}\n,0,90,60,32,23,19,13\n".encode(),
    "binary.csv": bytes(range(256)),
    "cut.csv.gz": b"\x1f\x8b\x08\x00broken",
    "large.csv": f"{HEADER},memory_gb\n{GOOD},60\n".encode(),
    "whole.csv": f"{HEADER}\na,0,90,,,,,13\n".encode(),
    "unknown_key.yaml": b"version: 1\nseeds: 2\ntitel: x\n",
    "no_version.yaml": b"title: x\n",
    "version_2.yaml": b"version: 2\n",
    "type.yaml": b"version: 1\nseeds: many\n",
    "knob.yaml": b"version: 1\npolicies:\n  - placement: {id: shortest-work, size_prize: 1}\n",
    "id.yaml": b"version: 1\npolicies:\n  - name: x\n    placement: categorical-efd\n",
    "twice.yaml": b"version: 1\nseeds: 1\nseeds: 2\n",
    "broken.yaml": b"version: 1\npolicies: [\n",
    "jobs.yaml": b"version: 1\nworkload: {id: csv, path: gone.csv}\n",
    "binary.yaml": bytes(range(256)),
    "list.yaml": b"- 1\n",
    "gangs.csv": b"job_id,submit_s,run_s,n_gpus\na,0,60,2\nb,90000,60,1\n",
    "broken_gangs.csv": b"job_id,submit_s,run_s,n_gpus\na,0,60,2\nb,5,soon,1\n",
    "lost_gangs.csv": b"job_id,submit_s,run_s,n_gpus\na,0,,2\n",
    "outages.csv": b"node,from_s,to_s,kind\n0,5,9,failure\n1,5,soon,drain\n",
    "far_outages.csv": b"node,from_s,to_s,kind\n77,5,9,drain\n",
    "pods.csv": b"name,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time\np,1,1000,LS,0,9,1\n",
    "dump.txt": b"JobID|State|Submit|Start|ElapsedRaw\n1|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|5\n",
}


STARTED = ("reading the trace, ", "compiling", "days", "jobs", "2 of 2 rows", "  assumed")
"""How lines begin that tell of work under way."""


class Bad(NamedTuple):
    command: str
    said: str
    """a pattern the sentence must hold"""
    started: bool = False
    """the mistake shows only when the work has begun, so a line of progress may stand above"""


SIMULATE = "simulate --jobs good.csv"
GANG = "simulate --world gang --trace gangs.csv"

SENTENCES = [
    # Names nobody knows.
    Bad(f"{SIMULATE} --placement categorical-efd", "no placement 'categorical-efd'. Did you mean 'categorical-edf'"),
    Bad(f"{SIMULATE} --placement zzz", "no placement 'zzz'. Known: edf-most-packed"),
    Bad(f"{SIMULATE} --placement ''", "no placement ''"),
    Bad(f"{SIMULATE} --repartition slicecount", "no repartition 'slicecount'. Did you mean 'slice-count'"),
    Bad(f"{SIMULATE} --gpus 8xa10-40gb", "no GPU 'a10-40gb'. Did you mean 'a100-40gb'"),
    Bad(f"{SIMULATE} --gpus a100-40gb@s9", "no power curve of a100-40gb 's9'. Did you mean 's"),
    Bad("compare --placement largest-frist", "Did you mean 'largest-first'"),
    Bad("compare --repartition statik", "Did you mean 'static'"),
    Bad("compare --gpus 3xh20-141gb", "Did you mean 'h200-141gb'"),
    Bad("bound --jobs good.csv --gpus a100-41gb", "Did you mean 'a100-40gb'"),
    Bad("layouts h100", "no GPU 'h100'. Did you mean 'h100-"),
    Bad("reproduce s3-fig99", "no reproduction 's3-fig99'. Did you mean 's3-fig9'"),
    Bad("trace show good.csv --format cvs", "--format: no trace format 'cvs'. Did you mean 'csv'"),
    # Clusters and cuts.
    Bad(f"{SIMULATE} --gpus ''", "gpus: empty list"),
    Bad(f"{SIMULATE} --gpus 0xa100-40gb", "it must be at least 1"),
    Bad(f"{SIMULATE} --gpus 999999xa100-40gb", "the limit is 100000"),
    Bad(f"{SIMULATE} --gpus 2xa100-40gb --layouts 1", "1 layouts for 2 GPUs"),
    Bad(f"{SIMULATE} --gpus 2xa100-40gb --layouts 1,2,3", "layouts for more GPUs than the 2 given"),
    Bad(f"{SIMULATE} --gpus a100-40gb --layouts 13", "no configuration 13 on a100-40gb; allowed: 1 to 12"),
    Bad(f"{SIMULATE} --gpus a100-40gb --layouts 0", "no configuration 0"),
    Bad(f"{SIMULATE} --gpus a100-40gb --layouts 4g+4g", "impossible cut .* needs 8 compute slices and the card has 7"),
    Bad(f"{SIMULATE} --gpus a100-40gb --layouts 3g+3g+1g", "impossible cut .* needs 9 memory slices"),
    Bad(f"{SIMULATE} --gpus a100-40gb --layouts 4g+x", "no MIG profile 'x'"),
    Bad(f"{SIMULATE} --gpus a30 --layouts 7g", "no MIG profile '7g'"),
    Bad(f"{SIMULATE} --repartition static:mix=[9g]", "no MIG profile '9g'"),
    # Knobs.
    Bad(f"{SIMULATE} --placement shortest-work:size_prize=1", "no knob 'size_prize'. Did you mean 'size_price'"),
    Bad(f"{SIMULATE} --placement shortest-work:kernels=1", "no knob 'kernels'"),
    Bad(f"{SIMULATE} --placement shortest-work:size_price=high", "size_price: .*valid number"),
    Bad(f"{SIMULATE} --placement shortest-work:size_price=.nan", "size_price: got nan"),
    Bad(f"{SIMULATE} --placement shortest-work:size_price", "'size_price' in .* is not knob=value"),
    Bad(
        f"{SIMULATE} --placement 'shortest-work:size_price=['",
        "--placement: the value in 'size_price=.' cannot be read",
    ),
    Bad(f"{SIMULATE} --placement categorical-edf:x=1", "no knob 'x'"),
    Bad(f"{SIMULATE} --repartition slice-count:check_s=-1", "check_s must be above 0, got -1"),
    Bad("compare --placement largest-first --placement largest-first", "two policies are the same"),
    Bad("compare --deadline soon", "--deadline: got 'soon', allowed is LOW:HIGH"),
    Bad("compare --deadline 4:2", "--deadline: got '4:2'"),
    Bad("compare --deadline 1:", "--deadline: got '1:'"),
    Bad("compare --multiplier -1", "multiplier: got -1"),
    Bad("compare --multiplier nan", "multiplier: got nan"),
    Bad("compare --multiplier 1e9", "at most 1e.08 are allowed"),
    Bad("compare --jobs good.csv --multiplier 2", "a job file .--jobs. is run as it is"),
    Bad("compare --jobs -", "--jobs: .*cannot be standard input"),
    Bad("generate day --deadline 2:x -o out.csv", "--deadline: got '2:x'"),
    Bad("generate day --multiplier 0 -o out.csv", "multiplier: got 0"),
    Bad("generate day --inference-frac 2 -o out.csv", "inference_frac: got 2"),
    Bad("generate day --deadline-size 5 -o out.csv", "deadline_size: got 5, allowed are 1, 2, 3, 4, 7"),
    Bad("generate fixed-rate --jobs 0 -o out.csv", "n_jobs: got 0"),
    # Job files.
    *(
        Bad(f"{verb} {name}", said)
        for verb in ("simulate --jobs", "bound --jobs")
        for name, said in {
            "gone.csv": r"gone\.csv: no such file",
            "folder": "folder: cannot read: Is a directory",
            "empty.csv": r"empty\.csv:1: empty file; expected a header",
            "header.csv": r"header\.csv: no rows below the header",
            "missing.csv": r"missing\.csv:1: .*deadline_s",
            "unknown.csv": r"unknown\.csv:1: .*colour",
            "ragged.csv": r"ragged\.csv:3: ",
            "twice.csv": r"twice\.csv:4: job_id 'a' stands twice",
            "negative.csv": r"negative\.csv:3: arrive_s is -1\.0, below 0",
            "negative_run.csv": r"negative_run\.csv:2: run_1g_s is -60\.0",
            "nan.csv": r"nan\.csv:2: deadline_s is 'nan', not a number",
            "inf.csv": r"inf\.csv:2: run_1g_s is 'inf', not a number",
            "word.csv": r"word\.csv:2: arrive_s is 'soon', not a number",
            "zero_run.csv": r"zero_run\.csv:2: run_7g_s is 0\.0; a run time is above 0",
            "nowhere.csv": r"nowhere\.csv:3: job 'b' has no run time on any size",
            "backwards.csv": r"backwards\.csv:4: deadline_s 40\.0 is before arrive_s 50\.0",
            "noid.csv": r"noid\.csv:2: job_id is empty",
            "binary.csv": r"binary\.csv:\d+: ",
            "cut.csv.gz": r"cut\.csv\.gz: damaged gzip file",
        }.items()
    ),
    Bad("compare --jobs gone.csv", r"gone\.csv: no such file"),
    Bad("compare --jobs twice.csv", r"twice\.csv:4: "),
    Bad("trace show gone.csv", r"gone\.csv: no such file"),
    Bad("trace show missing.csv", r"missing\.csv:1: the header fits no trace format"),
    Bad("trace convert folder -o out.csv", "folder: cannot read"),
    # Traces of whole GPUs.
    Bad("trace show gangs.csv --format helios", r"gangs\.csv:1: missing columns service_sec, gpu_count"),
    Bad("trace show broken_gangs.csv --strict", r"broken_gangs\.csv:3: run_s is 'soon', not a number up to 1e.15"),
    Bad("trace convert broken_gangs.csv --strict -o out.csv", r"broken_gangs\.csv:3: "),
    Bad("trace split broken_gangs.csv --strict --at 1970-01-02 -o out", r"broken_gangs\.csv:3: "),
    Bad("trace show lost_gangs.csv", r"no row is left to become a job: 1 broken, run_s is empty .line 2."),
    Bad("trace show dump.txt", r"dump\.txt:1: missing column AllocTRES or ReqTRES"),
    Bad("trace show gangs.csv --nodes 30", "--nodes: entry 1 '30': cannot be read; write NODESxGPUS"),
    Bad("trace show gangs.csv --from yesterday", "--from: got 'yesterday', allowed is a date like 2020-04-01"),
    Bad("trace show gangs.csv --from 1970-02-01 --to 1970-01-01", "--to: got 1970-01-01, which is not after"),
    Bad("trace show gangs.csv --max-gpus -1", "max_gpus: got -1"),
    Bad("trace show gangs.csv --from 2024-01-01", "no row is left to become a job: 2 before 2024-01-01"),
    Bad("trace show gangs.csv --group gpu", "group: no group 'gpu'"),
    Bad("trace show gangs.csv --procs-per-gpu 2", "--procs-per-gpu: the format 'csv' has no such knob"),
    Bad("trace convert gangs.csv --slack 2:4 -o out.csv", "--slack: the format 'csv' has no such knob"),
    Bad("trace convert gangs.csv --requests menu -o out.csv", "--requests: no request model 'menu'. Did you mean"),
    Bad("trace show pods.csv --max-gpus 1", "--max-gpus: only for jobs of whole GPUs, .* read it with --whole-gpus"),
    Bad("trace show good.csv --nodes 30x8", "--nodes: only for jobs of whole GPUs"),
    Bad("trace show good.csv --format genai --whole-gpus", "--whole-gpus: the format 'genai' has jobs for slices only"),
    Bad("trace split good.csv --at 2024-01-01 -o out", r"good\.csv: the format 'csv' has jobs for slices"),
    Bad("trace split gangs.csv --at 1970-01-01 -o out", "at: no job was submitted before 1970-01-01"),
    Bad("trace split gangs.csv --at 1970-01-02 -o gone/out", r"gone/out-1\.csv: cannot write"),
    # The whole-GPU world.
    Bad("simulate --world gang", "--trace: the whole-GPU world needs a file of jobs"),
    Bad("simulate --trace gangs.csv", "--trace belongs to --world gang, and this is --world mig"),
    Bad("compare --selection sjf", "--selection belongs to --world gang, and this is --world mig"),
    Bad(f"{GANG} --placement largest-first", "--placement belongs to --world mig, and this is --world gang"),
    Bad("compare --world gang --trace gangs.csv --multiplier 2", "--multiplier belongs to --world mig"),
    Bad(f"{GANG} --policy-file good.csv", "--policy-file: no rule given is `learned`, so nothing would read it"),
    Bad("simulate --world gang --trace gone.csv", r"gone\.csv: no such file"),
    Bad("simulate --world gang --trace good.csv", r"good\.csv:1: the header fits no trace format"),
    Bad(f"{GANG} --selection fcsf", "no selection 'fcsf'. Did you mean 'fcfs'"),
    Bad(f"{GANG} --allocation best", "no allocation 'best'. Did you mean 'best-fit'"),
    Bad(f"{GANG} --allocation best-fit:colour=1", "allocation best-fit: no knob 'colour'"),
    Bad(f"{GANG} --selection multifactor:half_life_s=high", "half_life_s: .*valid number"),
    Bad(f"{GANG} --requests menu", "--requests: no request model 'menu'"),
    Bad(f"{GANG} --from soon", "--from: got 'soon', allowed is a date like 2020-04-01"),
    Bad(f"{GANG} --to 2020-13-01", "--to: got '2020-13-01', allowed is a date"),
    Bad(
        f"{GANG} --selection learned --backfill conservative", "picks job by job; conservative backfill needs an order"
    ),
    Bad(f"{GANG} --selection learned --policy-file gone.npz", r"gone\.npz: no such policy file"),
    Bad(f"{GANG} --selection learned --policy-file good.csv", r"good\.csv: not a policy file"),
    Bad(f"{GANG} --selection learned:guard_s=0", "learned.guard_s must be above 0"),
    Bad(f"train ranges {SHIPPED / 'gang-wait.npz'}", "whole GPUs get their ranges from `smartmig train gang`"),
    Bad("train ranges gone.npz", r"gone\.npz: no such policy file"),
    Bad("serve --no-api --drift-margin -1", "the guard's drift_margin must be at least 0, got -1"),
    Bad("serve --no-api --drift-margin nan", "the guard's drift_margin must be at least 0, got nan"),
    Bad(f"{GANG} --selection sjf-predicted:predictor=gone.npz", r"gone\.npz: no such policy file"),
    Bad("reproduce s4-table", "s4-table needs the Helios Venus trace: give its file with --trace"),
    Bad("reproduce s4-table --traces gone", "--traces: gone is no folder"),
    Bad("reproduce s2 --trace gangs.csv", "s2 makes its own days"),
    Bad("train gang --trace gangs.csv -o p.npz", "--to and --tune-to: training needs the day its part ends"),
    Bad("train gang --trace gangs.csv -o p.npz --goal speed", "--goal: got 'speed', allowed are slowdown and wait"),
    Bad("train gang --trace gangs.csv -o p.npz --elite 99", "--elite must be at most --candidates"),
    Bad(
        "train gang --trace gangs.csv -o p.npz --to 1970-01-02 --tune-to 1970-01-03",
        "no row is left to become a job|shorter than --stretch-days",
        started=True,
    ),
    Bad("train run-times --trace gone.csv -o p.npz", r"gone\.csv: no such file"),
    Bad(f"{GANG} --nodes 30", "--nodes: entry 1 '30': cannot be read"),
    Bad(f"{GANG} --nodes-per-switch -1", "--nodes-per-switch"),
    Bad(f"{GANG} --procs-per-gpu 2", "procs_per_gpu: the format 'csv' has no such knob"),
    Bad(f"{GANG} --outages outages.csv", r"outages\.csv:3: cannot be read; write NODE,FROM,TO,failure or drain"),
    Bad(f"{GANG} --outages gangs.csv", r"gangs\.csv:1: expected the header node,from_s,to_s,kind"),
    Bad(f"{GANG} --outages gone.csv", r"gone\.csv: cannot read: No such file"),
    Bad(f"{GANG} --outages far_outages.csv", "needs a node from 0 to 29"),
    Bad("compare --world gang --trace gangs.csv --seeds 3", "--seeds: without made-up requests"),
    Bad(
        "compare --world gang --trace gangs.csv --selection f1 --selection f1",
        "two policies are the same",
        started=True,
    ),
    Bad(f"{GANG} --nodes 1x1", r"gangs\.csv: job 'a' fits nowhere: it needs 2 GPUs; the cluster has 1", started=True),
    # Jobs that fit nowhere.
    Bad("simulate --jobs large.csv", r"large\.csv:2: job 'a' fits no slice: .* needs 60 GB; .* 7g\.40gb", started=True),
    Bad(
        "simulate --jobs whole.csv --gpus 2xa100-40gb --layouts 2x12", r"whole\.csv:2: .* runs on 7g only", started=True
    ),
    Bad("compare --jobs large.csv", r"large\.csv:2: job 'a' fits no slice", started=True),
    Bad("bound --jobs large.csv", r"large\.csv:2: job 'a' fits no slice", started=True),
    Bad("bound --jobs good.csv --against foo", "no placement 'foo'"),
    # Scenarios.
    Bad("compare unknown_key.yaml", r"unknown_key\.yaml:3: titel: unknown key"),
    Bad("compare no_version.yaml", r"no_version\.yaml:1: version: this key is required"),
    Bad("compare version_2.yaml", r"version_2\.yaml:1: version: .*got 2"),
    Bad("compare type.yaml", r"type\.yaml:2: seeds: .*got 'many'"),
    Bad("compare knob.yaml", r"knob\.yaml:3: policies\.0\.placement: .*Did you mean 'size_price'"),
    Bad("compare id.yaml", r"id\.yaml:4: policies\.0\.placement: .*Did you mean 'categorical-edf'"),
    Bad("compare twice.yaml", r"twice\.yaml:3: seeds: this key stands twice"),
    Bad("compare broken.yaml", r"broken\.yaml:3: not valid YAML"),
    Bad("compare jobs.yaml", r"gone\.csv: no such file"),
    Bad("compare gone.yaml", r"gone\.yaml: no such file"),
    Bad("compare folder", "folder: cannot be read"),
    Bad("compare binary.yaml", r"binary\.yaml: "),
    Bad("compare list.yaml", r"list\.yaml: a scenario is a mapping"),
    # Places that cannot be written.
    Bad("generate day --multiplier 1 -o gone/day.csv", r"gone/day\.csv: cannot write: No such file or directory"),
    Bad("generate day --multiplier 1 -o folder", "folder: cannot write: it is a folder"),
    Bad(f"{SIMULATE} --report folder", "folder: cannot write: it is a folder"),
    Bad("train placement -o /proc/mine.npz", r"/proc/mine\.npz: cannot write: No such file or directory"),
    Bad(f"{SIMULATE} --report good.csv/page.html", r"good\.csv/page\.html: cannot write"),
    Bad("compare --report good.csv/page.html", r"good\.csv/page\.html: cannot write"),
    Bad("reproduce s3-fig4 --figure good.csv/page.html", r"good\.csv/page\.html: cannot write"),
    Bad("demo --report good.csv/page.html", r"good\.csv/page\.html: cannot write"),
]

USAGE = [
    Bad("", "Usage"),
    Bad("nosuchverb", "No such command 'nosuchverb'"),
    Bad("simulate", "--jobs"),
    Bad(f"{SIMULATE} --colour red", "No such option"),
    Bad(f"{SIMULATE} --recut fast", "--recut"),
    Bad(f"{SIMULATE} --speed slow", "--speed"),
    Bad(f"{SIMULATE} --restart-s -1", "--restart-s"),
    Bad(f"{SIMULATE} --restart-s inf", "--restart-s"),
    Bad(f"{SIMULATE} --seed -1", "--seed"),
    Bad("compare --seeds 0", "--seeds"),
    Bad("compare --seeds many", "--seeds"),
    Bad("compare --processes 0", "--processes"),
    Bad("demo --seeds 0", "--seeds"),
    Bad("reproduce s3-fig4 --days 1", "--days"),
    Bad("generate day", "--output"),
    Bad("trace split gangs.csv -o out", "--at"),
    Bad("trace show gangs.csv --procs-per-gpu 0", "--procs-per-gpu"),
    Bad("generate day --seed -1 -o out.csv", "--seed"),
]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every bad file, which is where the commands run."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_sentence(err: str, bad: Bad) -> None:
    lines = err.splitlines()
    if bad.started:
        lines = [line for line in lines if not line.startswith(STARTED)]
    assert len(lines) == 1, err
    assert lines[0].startswith("smartmig: ")
    assert re.search(bad.said, lines[0]), lines[0]
    assert "Traceback" not in err


@pytest.mark.parametrize("bad", SENTENCES, ids=lambda bad: bad.command)
def test_bad_input__is_one_sentence(
    lab: Path, bad: Bad, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in lab.iterdir())
    code, out, err = called_here(shlex.split(bad.command), monkeypatch, capsys)
    assert (code, out) == (2, "")
    check_sentence(err, bad)
    assert sorted(path.name for path in lab.iterdir()) == before


@pytest.mark.parametrize("bad", USAGE, ids=lambda bad: bad.command)
def test_bad_usage__is_explained(
    lab: Path, bad: Bad, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in lab.iterdir())
    code, out, err = called_here(shlex.split(bad.command), monkeypatch, capsys)
    assert code == 2
    # Without any verb the help is the answer, not a complaint.
    assert out == "" or bad.command == ""
    assert bad.said in out + err
    assert "Traceback" not in err
    assert sorted(path.name for path in lab.iterdir()) == before


@pytest.mark.parametrize(
    "bad",
    [
        Bad("simulate --jobs backwards.csv", r"backwards\.csv:4: deadline_s"),
        Bad(f"{SIMULATE} --placement categorical-efd", "Did you mean 'categorical-edf'"),
        Bad("compare id.yaml", r"id\.yaml:4: "),
        Bad("compare --jobs large.csv", r"large\.csv:2: job 'a' fits no slice", started=True),
        Bad("generate day -o gone/day.csv", "cannot write"),
    ],
    ids=lambda bad: bad.command,
)
def test_bad_input__of_the_real_command(lab: Path, bad: Bad) -> None:
    command = [str(SMARTMIG), *shlex.split(bad.command)]
    done = subprocess.run(command, cwd=lab, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    check_sentence(done.stderr, bad)
