"""A comparison, its tables and its JSON, on a toy cluster small enough to check by hand."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from smartmig.errors import InputError, UnknownName
from smartmig.metrics.statistics import estimate, relative_change
from smartmig.metrics.summary import summarise
from smartmig.report.comparison import Comparison, PolicyRuns, SampleDay
from smartmig.report.tables import comparison_json, comparison_table, summary_table
from smartmig.types import Run
from toy_report import shown, toy_comparison, toy_day, toy_summary

# --- comparison ------------------------------------------------------------------------------------------------------


def test_comparison__gives_one_value_per_seed() -> None:
    np.testing.assert_allclose(toy_comparison().values("second", "et"), [1.5, 1.6, 1.7])


def test_comparison__names_the_nearest_policy() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'second'"):
        toy_comparison().values("secnd", "et")


def test_comparison__refuses_what_does_not_line_up() -> None:
    runs = PolicyRuns("p", (toy_summary(1.0),))
    with pytest.raises(InputError, match="1 runs for 2 seeds"):
        Comparison("t", (0, 1), (runs,))
    with pytest.raises(InputError, match="must differ"):
        Comparison("t", (0,), (runs, runs))
    with pytest.raises(InputError, match="at least one"):
        Comparison("t", (), ())
    with pytest.raises(InputError, match="2 bounds for 1 seeds"):
        Comparison("t", (0,), (runs,), bound_energy_j=(1.0, 2.0))


def test_sample_day__needs_segments() -> None:
    day = toy_day()
    bare = Run(**{**vars(day.run), "segments": None})
    with pytest.raises(InputError, match="recording"):
        SampleDay("p", day.jobs, bare, day.gpu_names, day.watts, day.memory_slices)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_comparison_table__shows_means_intervals_and_paired_change() -> None:
    comparison = toy_comparison(bound=True)
    text = shown(comparison_table(comparison))
    change = relative_change(comparison.values("second", "et"), comparison.values("first", "et"))
    et = estimate(comparison.values("second", "et"))
    for part in ("first", "second", "41.00", f"{et.mean:.3f}", f"± {et.half_width:.3f}", f"{change.mean * 100:+.1f}"):
        assert part in text
    assert "+16.7" in text, "42 kWh is 16.7 % above a bound of 36"
    assert "3 seeds, 95 % intervals, paired seeds" in " ".join(text.split())
    assert "2.0e-7 per W·min" in " ".join(text.split())


def test_comparison_table__bold_row_has_the_least_et() -> None:
    assert [row.style for row in comparison_table(toy_comparison()).rows] == ["", "bold"]


def test_comparison_table__fits_an_80_column_terminal() -> None:
    text = shown(comparison_table(toy_comparison(bound=True)), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_comparison_table__leaves_out_columns_on_a_narrow_terminal() -> None:
    wide, narrow = (comparison_table(toy_comparison(bound=True), width) for width in (140, 80))
    assert len(wide.columns) - len(narrow.columns) == 2
    assert len(wide.rows) == len(narrow.rows)


def test_comparison_table__has_no_intervals_for_one_seed() -> None:
    text = shown(comparison_table(toy_comparison(n_seeds=1)))
    assert "±" not in text
    assert "nan" not in text


def test_summary_table__shows_the_run() -> None:
    day = toy_day()
    text = shown(summary_table("toy", summarise(day.jobs, day.run, 14)))
    assert re.search(r"late jobs\s+33\.3\s+%", text)
    assert re.search(r"preemptions\s+1\b", text)


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_comparison_json__is_strict_json(n_seeds: int) -> None:
    comparison = toy_comparison(n_seeds, bound=True)
    back = json.loads(json.dumps(comparison_json(comparison), allow_nan=False))
    assert back["policies"][1]["estimates"]["et"]["mean"] == pytest.approx(comparison.values("second", "et").mean())
    assert (back["policies"][1]["et_change_frac"]["half_width"] is None) == (n_seeds == 1)
    assert len(back["policies"][0]["runs"]) == n_seeds
