"""Power curves: their shape, and that the stored numbers follow from what they cite."""

from __future__ import annotations

from itertools import pairwise

import pytest

from smartmig.hardware.model import gpu_model, gpu_model_ids, read_card
from smartmig.hardware.power import fit_concave, is_concave, scale_curve

CURVES = [
    f"{model_id}@{curve['name']}" for model_id in gpu_model_ids() for curve in read_card(model_id)["power"]["curves"]
]


@pytest.mark.parametrize("name", [name for name in CURVES if name != "a100-40gb@s3"])
def test_power__never_falls_and_is_concave(name: str) -> None:
    assert is_concave(gpu_model(name).power.watts)


def test_power__s3_is_kept_as_published_though_one_step_grows() -> None:
    watts = gpu_model("a100-40gb@s3").power.watts
    assert watts == (40, 119, 160, 205.3, 243.9, 247.7, 248.5, 248.5)
    steps = [after - before for before, after in pairwise(watts)]
    assert min(steps) >= 0
    assert [k for k in range(1, 7) if steps[k] > steps[k - 1]] == [2]
    # What the bounds use: no point lies below the straight line from idle to full.
    assert all(watts[k] >= watts[0] + k / 7 * (watts[7] - watts[0]) for k in range(8))
    concave, error_w = fit_concave(list(enumerate(watts)), 7)
    assert is_concave(concave)
    assert error_w < 0.63


def test_power__h200_curve_is_the_fit_of_its_measured_points() -> None:
    stored = read_card("h200-141gb")["power"]["curves"][0]
    watts, error_w = fit_concave(stored["measured_points"], 7)
    assert stored["watts"] == pytest.approx(watts, abs=1e-4)
    assert stored["rms_w"] == pytest.approx(error_w, abs=0.006)
    assert watts[0] == stored["measured_points"][0][1]


@pytest.mark.parametrize("model_id", [name.split("@")[0] for name in CURVES if name.endswith("@scaled")])
def test_power__scaled_curves_follow_from_board_and_shape(model_id: str) -> None:
    raw = read_card(model_id)
    stored = raw["power"]["curves"][0]
    shape = gpu_model(stored["shape_from"]).power.watts
    if stored["shape_from"] == "a100-40gb":
        shape, _ = fit_concave(list(enumerate(shape)), 7)
    again = scale_curve(shape, raw["board"]["idle_w"], raw["board"]["tdp_w"], raw["n_compute"])
    assert stored["watts"] == pytest.approx(again, abs=1e-3)
    assert stored["estimated"]


def test_power__idle_and_full_agree_with_the_board() -> None:
    for model_id in gpu_model_ids():
        raw = read_card(model_id)
        for curve in raw["power"]["curves"]:
            assert curve["watts"][0] == raw["board"]["idle_w"]
            assert curve["watts"][-1] <= raw["board"]["tdp_w"]


def test_fit_concave__returns_concave_points_untouched() -> None:
    points = [(0, 10.0), (1, 50.0), (2, 80.0), (4, 100.0)]
    watts, error_w = fit_concave(points, 4)
    assert watts == pytest.approx((10, 50, 80, 90, 100))
    assert error_w == pytest.approx(0, abs=1e-9)


def test_fit_concave__straightens_a_bump_by_least_squares() -> None:
    # One interior point below the chord: with idle pinned the best line through (0, 0) is sum(xy)/sum(xx).
    watts, error_w = fit_concave([(0, 0.0), (1, 0.0), (2, 10.0)], 2)
    assert watts == pytest.approx((0, 4, 8))
    assert error_w == pytest.approx((20 / 3) ** 0.5)


def test_fit_concave__needs_the_idle_point() -> None:
    with pytest.raises(ValueError, match="idle"):
        fit_concave([(1, 10.0), (2, 20.0)], 2)


def test_scale_curve__reads_the_shape_by_busy_share() -> None:
    assert scale_curve((0, 2, 3, 4, 4), 10, 50, 2) == pytest.approx((10, 40, 50))
