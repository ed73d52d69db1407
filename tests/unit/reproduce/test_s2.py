"""S2's reproduction: its baselines are the searched ones, its gains are paired."""

from __future__ import annotations

import pytest

from smartmig.baselines import best_no_partition, best_static
from smartmig.reproduce import s2
from smartmig.reproduce.reproduction import ET, reproduce


def silent(what: str, done: int, total: int) -> None: ...


@pytest.mark.slow
def test_s2__whole_gpu_and_static_cut_are_those_the_search_finds() -> None:
    assert best_no_partition(s2.where(), silent).policy.placement == s2.NO_PARTITION.placement
    assert best_static(s2.where(), silent).policy == s2.STATIC


def test_s2__gains_are_those_of_dynamic_on_the_same_days() -> None:
    result = reproduce(s2.table(), days=3, first_seed=0, progress=silent)
    *baselines, dynamic = result.values
    for row in baselines:
        assert row[s2.GAIN.id] == pytest.approx(100 * (1 - dynamic[ET.id] / row[ET.id]))
    assert s2.GAIN.id not in dynamic
    assert [row.published.get(s2.GAIN.id) for row in result.reproduction.rows] == ["68", "31", "26", None]
