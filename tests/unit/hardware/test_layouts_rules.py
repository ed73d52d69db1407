"""Enumeration from the rules, and refusals that name the broken one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smartmig.errors import InputError, UnknownName
from smartmig.hardware.layouts import (
    base_profiles,
    check_layout,
    configurations,
    is_valid,
    layout_text,
    maximal_sets,
    multiset,
    multisets,
    nondominated,
    placement_sets,
    sizes,
    solve_cut,
    split_cut,
)
from smartmig.hardware.model import gpu_model, gpu_model_ids
from smartmig.types import Placement

A100 = gpu_model("a100-40gb")


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_layouts__counts_follow_from_the_rules(model_id: str) -> None:
    model = gpu_model(model_id)
    counts = tuple(map(len, (placement_sets(model), maximal_sets(model), multisets(model), configurations(model))))
    assert counts == ((26, 5, 4, 4) if model_id == "a30-24gb" else (298, 19, 14, 12))


def test_layouts__counts_with_double_memory_1g() -> None:
    profiles = [profile for profile in A100.profiles if not profile.media]
    enumerations = (placement_sets, maximal_sets, multisets, nondominated)
    assert [len(enumerate_(A100, profiles)) for enumerate_ in enumerations] == [723, 78, 38, 28]


def test_base_profiles__one_per_size() -> None:
    assert [profile.name for profile in base_profiles(A100)] == ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]


def test_configurations__are_the_papers_twelve_in_order() -> None:
    assert [sizes(A100, layout) for layout in configurations(A100)] == [
        (7,),
        (4, 3),
        (4, 2, 1),
        (4, 1, 1, 1),
        (3, 3),
        (2, 2, 3),
        (2, 1, 1, 3),
        (1, 1, 1, 1, 3),
        (2, 2, 2, 1),
        (2, 2, 1, 1, 1),
        (2, 1, 1, 1, 1, 1),
        (1,) * 7,
    ]


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_placement_sets__are_distinct_and_valid(model_id: str) -> None:
    model = gpu_model(model_id)
    sets = placement_sets(model, model.profiles)
    assert len(set(sets)) == len(sets)
    assert () in sets
    for layout in sets:
        assert layout == tuple(sorted(layout))
        check_layout(model, layout)


def test_placement_sets__equal_a_brute_force_over_all_subsets() -> None:
    # The A30 is small enough to try every subset of its placements against the checker alone.
    model = gpu_model("a30")
    options = [Placement(start, profile.name) for profile in model.profiles for start in profile.starts]
    brute = set()
    for bits in range(2 ** len(options)):
        layout = tuple(sorted(option for i, option in enumerate(options) if bits >> i & 1))
        if is_valid(model, layout):
            brute.add(layout)
    assert brute == set(placement_sets(model, model.profiles))


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_layout_text__set_then_get_over_every_layout(model_id: str) -> None:
    model = gpu_model(model_id)
    for layout in placement_sets(model, model.profiles):
        again = solve_cut(model, split_cut(layout_text(model, layout)))
        assert multiset(model, again) == multiset(model, layout)
        check_layout(model, again)


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_solve_cut__configurations_are_fixed_points(model_id: str) -> None:
    model = gpu_model(model_id)
    for layout in configurations(model):
        assert solve_cut(model, split_cut(layout_text(model, layout))) == layout


def test_solve_cut__any_order_gives_the_same_layout() -> None:
    assert solve_cut(A100, ["1g", "4g", "2g.10gb"]) == solve_cut(A100, ["4g", "2g", "1g"])


def test_solve_cut__leaves_most_room_among_equal_sizes() -> None:
    assert solve_cut(A100, ["1g"]) == ((6, "1g.5gb"),)
    assert solve_cut(A100, ["3g"]) == ((4, "3g.20gb"),)


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (["4g", "4g"], "8 compute slices and the card has 7"),
        (["3g", "3g", "1g"], "9 memory slices and the card has 8"),
        (["1g.10gb"] * 4 + ["2g"], "10 memory slices"),
        (["1g+me", "1g+me"], r"at most 1 of 1g\.5gb\+me"),
    ],
)
def test_solve_cut__says_why_a_cut_is_impossible(cut: list[str], why: str) -> None:
    with pytest.raises(InputError, match=rf"^here: impossible cut .* on a100-40gb: .*{why}"):
        solve_cut(A100, cut, "here")


def test_solve_cut__refuses_two_media_profiles_of_different_size() -> None:
    with pytest.raises(InputError, match="media engines"):
        solve_cut(gpu_model("a30"), ["1g+me", "2g+me"])


def test_solve_cut__refuses_sums_that_fit_but_starts_that_do_not() -> None:
    # On every real card sums that fit can be placed, so the 3g loses its right-hand start.
    left_only = tuple(replace(p, starts=(0,)) if p.key == "3g" else p for p in A100.profiles)
    with pytest.raises(InputError, match="no legal starts keep these instances apart"):
        solve_cut(replace(A100, profiles=left_only), ["4g", "3g"])


def test_solve_cut__unknown_profile() -> None:
    with pytest.raises(UnknownName, match="no MIG profile '5g'"):
        solve_cut(A100, ["5g"])


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (
            ((0, "4g.20gb"), (2, "2g.10gb")),
            "overlap on a100-40gb: 2g.10gb at memory slice 2 and 4g.20gb at memory slice 0 share memory slice 2",
        ),
        (((0, "1g.5gb"), (0, "1g.5gb")), "overlap"),
        (((1, "2g.10gb"),), "illegal start on a100-40gb: 2g.10gb at memory slice 1. 2g.10gb may start at 0, 2, 4."),
        (((7, "1g.5gb"),), "illegal start"),
        (((-1, "1g.5gb"),), "illegal start"),
        (((0, "1g.5gb+me"), (1, "1g.5gb+me")), "too many 1g.5gb+me on a100-40gb: at most 1"),
        (((0, "3g"),), "write the full name 3g.20gb"),
    ],
)
def test_check_layout__names_the_broken_rule(layout: tuple[tuple[int, str], ...], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        check_layout(A100, tuple(Placement(*pair) for pair in layout), "file.yaml")
    assert str(caught.value).startswith("file.yaml: ")
    assert sentence in str(caught.value)


def test_check_layout__refuses_two_media_instances() -> None:
    with pytest.raises(InputError, match=r"two \+me instances on a30-24gb"):
        check_layout(gpu_model("a30"), (Placement(0, "1g.6gb+me"), Placement(2, "2g.12gb+me")))


def test_check_layout__refuses_too_much_compute() -> None:
    # No real card can break the sum alone, so the card is shrunk.
    small = replace(A100, n_compute=5)
    with pytest.raises(InputError, match="compute sum on a100-40gb is 7 slices, at most 5"):
        check_layout(small, (Placement(0, "4g.20gb"), Placement(4, "3g.20gb")))


def test_split_cut__glues_me_to_the_name_before_it() -> None:
    assert split_cut("1g.5gb+me+2g") == ("1g.5gb+me", "2g")
    assert split_cut(" 4G + 2g+1g") == ("4g", "2g", "1g")
    assert split_cut("empty") == ()
    assert layout_text(A100, ()) == "empty"
