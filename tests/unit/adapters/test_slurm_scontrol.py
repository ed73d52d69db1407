"""What scontrol is asked to do, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.calls import Hold, Release, SlurmRefusal
from smartmig.adapters.slurm.scontrol import Scontrol
from smartmig.types import Share

START = marks.write_start(5, 6.0, (Share("n1", 1),))


def asked(tmp_path: Path, *, refuses: str = "nothing") -> Scontrol:
    program = tmp_path / "scontrol"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nif [ "$1" = {refuses} ]; then echo no >&2; exit 1; fi\n'
    )
    program.chmod(0o755)
    return Scontrol(None, tmp_path)


@pytest.mark.parametrize(
    ("release", "calls"),
    [
        (
            Release(START, ("n1",), "gpu"),
            [f"update JobId=7 AdminComment={START} ReqNodeList=n1 Partition=gpu", "release 7"],
        ),
        (Release(marks.LET_GO), ["release 7", f"update JobId=7 AdminComment={marks.LET_GO}"]),
        (
            Release(marks.LET_GO, (), nice=3),
            ["update JobId=7 ReqNodeList=", "release 7", f"update JobId=7 AdminComment={marks.LET_GO} Nice=3"],
        ),
        (
            Release(marks.write_parked(0), begin_s=marks.FAR_S),
            [f"update JobId=7 AdminComment={marks.write_parked(0)} StartTime=2096-10-02T07:06:40", "release 7"],
        ),
    ],
)
def test_release__changes_only_what_is_asked_for(tmp_path: Path, release: Release, calls: list[str]) -> None:
    asked(tmp_path).release("7", release, 10.0)
    assert (tmp_path / "asked").read_text().splitlines() == calls


@pytest.mark.parametrize("mark", [marks.LET_GO, marks.write_given_back(5, 6.0, "why")])
def test_release__that_is_refused_leaves_the_job_ours(tmp_path: Path, mark: str) -> None:
    with pytest.raises(SlurmRefusal, match="no"):
        asked(tmp_path, refuses="release").release("7", Release(mark), 10.0)
    assert (tmp_path / "asked").read_text().splitlines() == ["release 7"]


def test_hold__leaves_the_pin_alone_unless_it_is_to_change(tmp_path: Path) -> None:
    asked(tmp_path).hold("7_[0-2]", Hold(), 10.0)
    calls = [f"update JobId=7_[0-2] AdminComment={marks.HOLDING}", "uhold 7_[0-2]"]
    assert (tmp_path / "asked").read_text().splitlines() == calls
