"""The whole-GPU table on a made-up August: every row runs, targets are set against the best of the nine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.reproduce import s4
from smartmig.reproduce.s4 import SLOWDOWN, STRICT, VENUS, WAIT, WITH_EASY


def august(path: Path, n_jobs: int = 700) -> None:
    """Two busy days in the form Helios Venus has."""
    rng = np.random.default_rng(0)
    at_s = np.sort(rng.uniform(0, 2 * 86_400, n_jobs))
    run_s = np.where(rng.random(n_jobs) < 0.7, rng.uniform(5, 900, n_jobs), rng.uniform(20_000, 90_000, n_jobs))
    lines = ["job_id,arrival_s,service_sec,gpu_count,submit_time_derived"]
    for job, (after_s, long_s) in enumerate(zip(np.round(at_s), run_s, strict=True)):
        moment = datetime(2020, 8, 3, tzinfo=UTC) + timedelta(seconds=float(after_s))
        lines.append(f"{job}#0,{after_s:.1f},{long_s:.1f},{rng.choice([1, 4, 8, 8])},{moment:%Y-%m-%d %H:%M:%S}")
    path.write_text("\n".join(lines) + "\n")


def test_s4__runs_all_rows_and_sets_them_against_the_best(tmp_path: Path) -> None:
    august(tmp_path / "venus_gpu_jobs.csv")
    result = s4.reproduce_gangs(None, tmp_path, 2, 0, lambda *_: None)
    venus = result.parts[0]
    assert len(venus.policies) == len(VENUS.policies) == 9 + 9 + 9 + 2
    assert len(result.missing) == 2
    assert "no file philly_jobs*" in result.missing[0]
    by_what = {target.what: target for target in s4.targets(result)}
    slowdown = by_what["slowdown against the best strict of the nine"]
    titles = [name for name, _ in venus.policies]
    means = {t: venus.values(titles.index(t), "mean_bounded_slowdown").mean() for t in titles}
    best = min(means[policy.title] for policy in STRICT)
    assert slowdown.ours.mean == pytest.approx(100 * (means[SLOWDOWN.title] / best - 1))
    assert {SLOWDOWN.title, WAIT.title, *(policy.title for policy in WITH_EASY)} <= set(titles)
    rows = s4.utilisation_rows(result)
    assert [row[0] for row in rows][-1] == "one giant node, FCFS, EASY"
    assert all(0 < float(cell) <= 100 for row in rows[1:] for cell in row[1:])
    what = s4.table()
    json.dumps(s4.result_json(what, result))
    assert len(s4.result_tables(what, result)) == 4
    s4.write_s4_page(tmp_path / "s4.html", what, result)
    text = (tmp_path / "s4.html").read_text(encoding="utf-8")
    assert "Waiting over time" in text
    assert "one giant node" in text


def test_s4__says_where_traces_come_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"s4-table needs the Helios Venus trace.*HeliosData"):
        s4.find_traces(None, tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        s4.find_traces(None, tmp_path / "gone")
    assert s4.find_traces(tmp_path / "mine.csv", None) == {VENUS.pattern: tmp_path / "mine.csv"}
