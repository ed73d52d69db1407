"""S2's reproduction: its baselines are the searched ones, its gains are paired."""

from __future__ import annotations

import pytest

from smartmig.baselines import best_no_partition, best_static
from smartmig.reproduce import s2
from smartmig.reproduce.reproduction import ET, GAIN, reproduce


def silent(what: str, done: int, total: int) -> None: ...


@pytest.mark.slow
def test_s2__whole_gpu_and_static_cut_are_those_the_search_finds() -> None:
    assert best_no_partition(s2.where(), silent).policy.placement == s2.NO_PARTITION.placement
    assert best_static(s2.where(), silent).policy == s2.STATIC


def test_s2__gains_are_those_of_dynamic_on_the_same_days() -> None:
    result = reproduce(s2.table(), days=3, first_seed=0, progress=silent)
    dynamic = result.values[3][ET.id]
    for row in range(3):
        gain = result.estimate(row, GAIN)
        assert gain is not None
        assert gain.mean == pytest.approx(100 * (1 - dynamic.mean() / result.values[row][ET.id].mean()))
    assert result.estimate(3, GAIN) is None
    assert [row.published.get(GAIN.id) for row in result.reproduction.rows] == ["68", "31", "26", None]
