"""Curves: the published numbers, the sublinearity score, and files of curves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.types import SLICE_SIZES
from smartmig.workload.curves import (
    CAPPED,
    LINEAR,
    Curve,
    curve_named,
    gaps_filled,
    normalised,
    published_curves,
    run_times,
    sublinearity,
)


def runs(*curves: Curve) -> np.ndarray:
    return run_times(np.full(len(curves), 100.0), np.array([c.speedup for c in curves]))


def test_published__are_the_papers_numbers() -> None:
    curves = {c.name: c.speedup for c in published_curves()}
    assert list(curves) == ["bert-train", "resnet50-train", "bert-infer", "resnet50-infer", "capped"]
    assert curves["bert-train"] == pytest.approx(np.array([2.2, 4.1, 5.8, 7.1, 10.5]) / 2.2)
    assert curves["resnet50-train"] == pytest.approx(np.array([3.4, 6, 7.85, 8.4, 9.75]) / 3.4)
    assert curves["bert-infer"] == SLICE_SIZES
    assert curves["resnet50-infer"] == pytest.approx((1, 2, 3, 12.5 / 3.2, 18.4 / 3.2))
    assert curves["capped"] == (1, 2, 3, 3, 3)


def test_sublinearity__is_one_for_linear_jobs_and_falls_with_the_cap() -> None:
    assert sublinearity(runs(LINEAR, LINEAR)) == pytest.approx(1.0)
    # By hand: sizes 1,2,3,4,7 have mean 3.4 and squares 21.2; capped speeds 1,2,3,3,3 have mean 2.4.
    by_hand = sum((k - 3.4) * (v - 2.4) for k, v in zip(SLICE_SIZES, (1, 2, 3, 3, 3), strict=True)) / 21.2
    assert sublinearity(runs(CAPPED)) == pytest.approx(by_hand)
    assert sublinearity(runs(CAPPED)) < sublinearity(runs(CAPPED, LINEAR)) < 1


def test_sublinearity__does_not_depend_on_how_long_jobs_are() -> None:
    run_s = runs(CAPPED, LINEAR)
    assert sublinearity(run_s * np.array([[1.0], [1000.0]])) == pytest.approx(sublinearity(run_s))


def test_sublinearity__leaves_out_sizes_that_do_not_fit() -> None:
    linear = runs(LINEAR)
    linear[0, :2] = np.inf
    assert sublinearity(linear) == pytest.approx(1.0)
    assert math.isnan(sublinearity(np.full((1, 5), np.inf)))
    assert math.isnan(sublinearity(np.zeros((0, 5))))


def test_normalised__starts_at_the_smallest_size_that_fits() -> None:
    nan = math.nan
    assert normalised("a", (2.0, 4.0, 6.0, 7.0, 9.0), "s").speedup == (1.0, 2.0, 3.0, 3.5, 4.5)
    late = normalised("b", (nan, nan, 6.0, 8.0, 10.0), "s").speedup
    assert late[2:] == (3.0, 4.0, 5.0)
    assert all(math.isnan(v) for v in late[:2])


def test_gaps_filled__touches_only_holes_inside() -> None:
    nan = math.nan
    filled = gaps_filled(Curve("a", (nan, 2.0, 3.0, nan, 7.0), "s")).speedup
    assert math.isnan(filled[0])
    assert filled[1:] == (2.0, 3.0, 4.0, 7.0)


def test_curve__refuses_nonsense() -> None:
    for speedup in ((1.0, 2.0), (1.0, 2.0, 3.0, 0.0, 7.0), (math.nan,) * 5, (1.0, 2.0, 3.0, 4.0, math.inf)):
        with pytest.raises(InputError, match="curve 'x'"):
            Curve("x", speedup, "s")


def test_curve_named__lists_the_known_names() -> None:
    assert curve_named("linear") is LINEAR
    assert curve_named(CAPPED) is CAPPED
    with pytest.raises(InputError, match=r"--curve: no curve 'bert-trian'. Did you mean 'bert-train'"):
        curve_named("bert-trian", "--curve")


def test_curve_file__is_read_and_its_mistakes_have_a_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("name,1g,2g,3g,4g,7g,source\nfast,1,2,3,4,7,lab\nbig,,,3,3.5,5,lab\n")
    fast, big = published_curves(path)
    assert fast == Curve("fast", (1, 2, 3, 4, 7), "lab")
    assert math.isnan(big.speedup[0])
    path.write_text("name,1g,2g,3g,4g,7g\nfast,1,2,3,4,7\nbad,1,2,-3,4,7\n")
    with pytest.raises(InputError, match=r"mine\.csv:3: curve 'bad'"):
        published_curves(path)
