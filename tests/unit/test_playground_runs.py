"""Wishes are bounded and named; a run is that of `smartmig compare`; what a killed server leaves is told apart."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs fastapi (pip install 'smartmig[live]')")

from smartmig.compare import compare
from smartmig.errors import AdapterError, InputError
from smartmig.report.tables import comparison_cells
from smartmig.scenario import PolicySpec, read_scenario
from smartmig.web.playground.runs import MOST_KEPT, Busy, Playground
from smartmig.web.playground.wish import MOST_GPUS, GangWish, MigWish, scenario_text
from smartmig.web.playground.worker import run_mig

SMALL = {"gpus": "1xa100-40gb", "multiplier": 0.5, "days": 2}


def silent(*_: Any) -> None:
    return


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (MigWish(gpus=f"{MOST_GPUS + 1}xa100-40gb", policies=[{}]), "gpus: got 65 GPUs, allowed here are 64"),
        (MigWish(gpus="8xa10", policies=[{}]), "no GPU 'a10'. Did you mean"),
        (MigWish(days=21, policies=[{}]), "days: got 21 days, allowed here are 20"),
        (
            MigWish(policies=[{"placement": f"p{at}"} for at in range(7)]),
            "policies: got 7 policies, allowed here are 6",
        ),
        (MigWish(multiplier=1000, days=20, policies=[{}]), "jobs to simulate, allowed here are 500,000"),
        (MigWish(policies=[{"placement": "edf"}]), "policies: no placement 'edf'"),
        (MigWish(policies=[{"pair": "both"}]), "policies: no policy 'both'. Known: joint"),
        (MigWish(policies=[{}, {}]), "two are the same: categorical-edf, static"),
        (GangWish(world="gang", nodes="100x8", policies=[{}]), "nodes: got 800 GPUs, allowed here are 512"),
        (GangWish(world="gang", policies=[{"selection": "learned:policy_file=/etc/passwd"}]), "no selection"),
    ],
)
def test_wish__what_is_too_much_or_unknown_is_refused(wish: MigWish | GangWish, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
        wish.scenario()


def test_wish__its_scenario_file_says_the_same(tmp_path: Path) -> None:
    wish = MigWish(recut="drain", preempt=False, policies=[{}, {"pair": "joint"}]).scenario()
    (tmp_path / "scenario.yaml").write_text(scenario_text(wish))
    read = read_scenario(tmp_path / "scenario.yaml")
    one = (PolicySpec(),)
    assert replace(read, policies=one) == replace(wish, policies=one)
    assert [replace(one, name=None) for one in read.policies] == [replace(one, name=None) for one in wish.policies]
    assert [one.title for one in read.policies] == [one.title for one in wish.policies]


def test_run__gives_the_numbers_of_compare_on_its_own_scenario(tmp_path: Path) -> None:
    wish = MigWish(**SMALL, policies=[{}, {"placement": "shortest-work", "repartition": "slice-count"}])
    steps: list[tuple[int, int]] = []
    run_mig(wish, tmp_path, lambda _, done, total: steps.append((done, total)))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert {total for _, total in steps} == {4 + 2 + 1}
    result = json.loads((tmp_path / "result.json").read_text())

    (tmp_path / "scenario.yaml").write_text(result["scenario"])
    scenario = read_scenario(tmp_path / "scenario.yaml")
    headings, rows, best = comparison_cells(compare(scenario, silent, 1))
    shown = result["parts"][0]
    assert shown["rows"] == [headings, *([f"{value} {beside}".strip() for value, beside in row] for row in rows)]
    assert shown["strong_row"] == best
    figures = [part["figure"] for part in result["parts"] if part["figure"] is not None]
    assert all((tmp_path / f"figure-{number}.json").is_file() for number in figures)
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_playground__one_run_at_a_time_and_a_cancelled_one_stays_cancelled(tmp_path: Path) -> None:
    told: list[str] = []
    playground = Playground(tmp_path, lambda _, body: told.append(body["status"]))
    wish = MigWish(**SMALL, policies=[{}])
    run = playground.start(wish, "ann")
    with pytest.raises(Busy, match="a run of ann is in progress"):
        playground.start(wish, "bob")
    assert playground.place(run.id, "wish.json") is None, "files are given out when it is done"
    playground.cancel(run.id, "bob")
    playground.close()
    found = playground.run(run.id)
    assert found is not None
    assert (found.status, found.detail) == ("cancelled", "cancelled by bob")
    assert told[-1] == "cancelled"
    assert Playground(tmp_path, silent).run(run.id) == found


def test_playground__a_run_whose_state_cannot_be_kept_is_ended_all_the_same(tmp_path: Path) -> None:
    playground = Playground(tmp_path, silent)
    run = playground.start(MigWish(multiplier=100, days=6, policies=[{}]), "ann")
    worker = playground._process
    assert worker is not None
    (tmp_path / run.id).rename(tmp_path / "gone")  # as a disk that takes nothing any more
    found = playground.cancel(run.id, "ann")
    assert worker.wait(60) == -signal.SIGKILL
    playground.close()
    assert found is not None
    assert found.status == "cancelled"
    assert found.detail.startswith("cancelled by ann; and this cannot be kept: ")


def test_playground__a_run_cut_off_by_the_server_is_interrupted(tmp_path: Path) -> None:
    first = Playground(tmp_path, silent)
    run = first.start(MigWish(**SMALL, policies=[{}]), "ann")
    as_left = (tmp_path / run.id / "run.json").read_text()
    first.close()
    (tmp_path / run.id / "run.json").write_text(as_left)  # as kill -9 leaves it
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    again = Playground(tmp_path, silent)
    assert [(one.id, one.status) for one in again.runs()] == [(run.id, "interrupted")]


def test_playground__a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    playground = Playground(tmp_path, silent, most_s=0.2)
    run = playground.start(MigWish(**SMALL, policies=[{}]), "ann")
    end_s = time.monotonic() + 60
    while (found := playground.run(run.id)) is not None and found.status == "running" and time.monotonic() < end_s:
        time.sleep(0.05)
    playground.close()
    assert found is not None
    assert (found.status, found.detail[:11]) == ("failed", "ended after")


def test_playground__no_room_for_a_run_is_one_sentence_and_blocks_no_other(tmp_path: Path) -> None:
    place = tmp_path / "playground"
    place.write_text("in the way")
    playground, wish = Playground(place, silent), MigWish(**SMALL, policies=[{}])
    with pytest.raises(AdapterError, match="the run cannot be kept"):
        playground.start(wish, "ann")
    place.unlink()
    playground.cancel(playground.start(wish, "ann").id, "ann")
    playground.close()


def test_playground__keeps_the_newest_runs(tmp_path: Path) -> None:
    playground = Playground(tmp_path, silent)
    wish = MigWish(**SMALL, policies=[{}])
    ids = []
    for _ in range(MOST_KEPT + 2):
        ids.append(playground.start(wish, "ann").id)
        playground.cancel(ids[-1], "ann")
    playground.close()
    assert [run.id for run in playground.runs()] == ids[:1:-1]
    assert {place.name for place in tmp_path.iterdir()} == set(ids[2:])
