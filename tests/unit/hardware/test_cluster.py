"""GPU lists and layout lists as people type them."""

from __future__ import annotations

import pytest

from smartmig.errors import InputError, UnknownName
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.hardware.layouts import configurations, layout_text, multiset, placement_sets, sizes
from smartmig.hardware.model import gpu_model

A100 = gpu_model("a100-40gb")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("8xa100-40gb", ["a100-40gb"] * 8),
        ("2xa100-40gb, 1xH200-141GB", ["a100-40gb", "a100-40gb", "h200-141gb"]),
        ("a30", ["a30-24gb"]),
        ("2Xb200", ["b200-180gb"] * 2),
    ],
)
def test_parse_gpus__counts_and_names(text: str, ids: list[str]) -> None:
    assert [model.id for model in parse_gpus(text)] == ids


def test_parse_gpus__takes_a_power_curve() -> None:
    assert [model.power.name for model in parse_gpus("2xa100-40gb@s1,a100-40gb")] == ["s1", "s1", "s3"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--gpus: empty list"),
        ("  ", "--gpus: empty list"),
        ("a30,,a30", "entry 2 is empty"),
        ("0xa30", "entry 1 '0xa30': a count of 0; it must be at least 1"),
        ("a30,-3xa30", "entry 2 '-3xa30': a count of -3"),
        ("100001xa30", "more than 100000 GPUs"),
        ("100000xa30,a30", "entry 2 'a30': more than 100000 GPUs"),
        ("9" * 5000 + "xa30", "more than 100000 GPUs"),
    ],
)
def test_parse_gpus__refuses_with_position(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_gpus(text)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 200


def test_parse_gpus__unknown_card_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"--gpus: no GPU 'a100-60gb'\. Did you mean 'a100-"):
        parse_gpus("4xa100-60gb")


def test_parse_layouts__numbers_cuts_and_repeats() -> None:
    layouts = parse_layouts("1,2x10, 4g+2g+1g,1g.5gb+me+2g", [A100] * 5)
    assert [sizes(A100, layout) for layout in layouts] == [(7,), (2, 2, 1, 1, 1), (2, 2, 1, 1, 1), (4, 2, 1), (2, 1)]
    assert [placement.profile for placement in layouts[4]] == ["2g.10gb", "1g.5gb+me"]


def test_parse_layouts__numbers_are_those_of_each_gpus_model() -> None:
    a30 = gpu_model("a30")
    assert parse_layouts("2x4", [A100, a30]) == (configurations(A100)[3], configurations(a30)[3])


def test_parse_layouts__set_then_get_over_every_layout() -> None:
    sets = placement_sets(A100, A100.profiles)
    text = ",".join(layout_text(A100, layout) for layout in sets)
    again = parse_layouts(text, [A100] * len(sets))
    assert [multiset(A100, layout) for layout in again] == [multiset(A100, layout) for layout in sets]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--layouts: empty list"),
        ("1", "--layouts: 1 layouts for 2 GPUs; write one per GPU ('2x1' repeats one)."),
        ("1,2,3", "entry 3 '3': layouts for more GPUs than the 2 given"),
        ("1,13", "entry 2 '13': no configuration 13 on a100-40gb; allowed: 1 to 12."),
        ("0,1", "entry 1 '0': no configuration 0"),
        ("-1,1", "entry 1 '-1': no configuration -1"),
        ("1.5,1", "no configuration 1.5"),
        ("9" * 5000 + ",1", "no configuration 999"),
        ("9" * 5000 + "x1", "layouts for more GPUs"),
        ("0x1,1,1", "a count of 0"),
        ("1,4g+4g", "entry 2 '4g+4g': impossible cut '4g+4g' on a100-40gb: it needs 8 compute slices"),
        ("1,5g", "entry 2 '5g': a100-40gb: no MIG profile '5g'"),
        ("1,4g++1g", "no MIG profile ''"),
        ("+me,1", "no MIG profile '+me'"),
    ],
)
def test_parse_layouts__refuses_with_position(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layouts(text, [A100, A100])
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 300
