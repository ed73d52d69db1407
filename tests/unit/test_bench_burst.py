"""Whose fault a second start is, told from what slurmctld wrote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.slurm_burst import twice
from bench.slurm_log import controller_log, queued_again

START = "sched: Allocate JobId={job} NodeList=node{node} #CPUs=1 Partition=gpu"
LOG = [
    ("00:00.000", START.format(job=2, node=1)),
    ("00:28.600", START.format(job=2, node=2)),
    ("00:34.100", START.format(job=2, node=2)),
    ("00:34.106", "Requeuing JobId=2"),
    ("04:42.800", START.format(job=2, node=7)),
]
"""slurmctld forgot the first two starts when it was killed, and queued the job again after the third."""


def told(folder: Path, lines: list[tuple[str, str]], ran: dict[str, int]) -> tuple[list[str], int, int]:
    text = "\n".join(f"[2026-01-01T00:{at}] {line}" for at, line in lines)
    (folder / "slurmctld.log").write_text(text + "\nnot a line of a log\n")
    rig: Any = SimpleNamespace(log=folder)
    _, started = controller_log(rig)
    first_s = started[0][2]
    return twice(started, [first_s + 1.0, first_s + 29.0], Counter(ran), queued_again(rig))


def test_twice__a_start_that_slurmctld_took_back_is_its_own(tmp_path: Path) -> None:
    ours, forgotten, taken_back = told(tmp_path, LOG, {"2": 3})
    assert (ours, forgotten, taken_back) == ([], 2, 1)


def test_twice__without_that_line_it_is_ours(tmp_path: Path) -> None:
    ours, _, taken_back = told(tmp_path, [*LOG[:3], LOG[4]], {"2": 3})
    assert taken_back == 0
    assert ours == ["job 2 again after 248.7 s, slurmctld killed after never"]


def test_twice__another_jobs_line_is_no_excuse(tmp_path: Path) -> None:
    other = [("00:31.000", START.format(job=22, node=3)), ("01:30.000", START.format(job=22, node=4))]
    ours, _, _ = told(tmp_path, [*LOG, *other], {"2": 3, "22": 2})
    assert [words.split()[1] for words in ours] == ["22"]
