"""What inputs of learned policies are held against."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smartmig.cli.live_policy import PolicyNames
from smartmig.cli.policy_files import trained_ranges
from smartmig.control.guard import drift
from smartmig.policy.encoding import N_FEATURES
from smartmig.policy.policy_file import PRICES, SHIPPED, read_policy, write_policy
from smartmig.types import Floats


def policy_file(folder: Path, shipped: str, kind: str, ranges: tuple[float, float] | None) -> str:
    """A shipped policy that saw other things in training."""
    seen: Floats | None = None if ranges is None else np.repeat(np.array([ranges]).T, N_FEATURES, axis=1)
    path = folder / f"{shipped}.npz"
    write_policy(path, replace(read_policy(SHIPPED / f"{shipped}.npz", kind), ranges=seen))
    return str(path)


@pytest.mark.parametrize(
    ("cuts", "prices", "both"),
    [
        ((0.0, 2.0), (1.0, 3.0), (1.0, 2.0)),
        ((0.0, 2.0), (-math.inf, math.inf), (0.0, 2.0)),
        ((0.0, 2.0), None, (0.0, 2.0)),
        (None, (1.0, 3.0), (1.0, 3.0)),
        (None, None, None),
    ],
)
def test_ranges__of_two_networks_for_cards_are_what_both_have_seen(
    tmp_path: Path,
    cuts: tuple[float, float] | None,
    prices: tuple[float, float] | None,
    both: tuple[float, float] | None,
) -> None:
    names = PolicyNames(
        placement={"id": "learned", "policy_file": policy_file(tmp_path, "prices-drain", PRICES, prices)},
        repartition={"id": "mean-field", "policy_file": policy_file(tmp_path, "mean-field-drain", "mean-field", cuts)},
    )
    ranges = trained_ranges(names.policy(("mig",)))
    assert bool(ranges) == (both is not None)
    if both is not None:
        low, high = ranges["mig"]
        assert ({*low.tolist()}, {*high.tolist()}) == ({both[0]}, {both[1]})


def test_ranges__that_have_nothing_in_common_are_left_by_everything_but_not_forbidden() -> None:
    nothing = {"mig": (np.array([2.0]), np.array([1.0]))}
    assert all(drift({"mig": np.array([seen])}, nothing, 0.5) for seen in (0.0, 1.0, 1.5, 2.0, 3.0))
    assert drift({"mig": np.array([1.5])}, nothing, math.inf) == ""


@pytest.mark.parametrize(
    ("placement", "repartition", "shipped"),
    [
        ("learned", "static", "prices-drain"),
        ("shortest-work", "mean-field", "mean-field-drain"),
        (
            {"id": "learned", "policy_file": "joint"},
            {"id": "mean-field", "policy_file": "joint"},
            "joint-drain",
        ),
    ],
)
def test_ranges__of_one_network_or_of_a_pair_are_the_files_own(placement: str, repartition: str, shipped: str) -> None:
    ranges = trained_ranges(PolicyNames(placement=placement, repartition=repartition).policy(("mig",)))
    kind = PRICES if shipped.startswith("prices") else "mean-field"
    recorded = read_policy(SHIPPED / f"{shipped}.npz", kind).ranges
    assert recorded is not None
    np.testing.assert_array_equal(ranges["mig"], recorded)


def test_ranges__of_whole_gpus_are_the_selectors() -> None:
    assert set(trained_ranges(PolicyNames(selection="learned").policy(("gang",)))) == {"gang"}
    assert trained_ranges(PolicyNames(allocation="learned").policy(("gang",))) == {}
