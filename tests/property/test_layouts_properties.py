"""What must hold for every card and every legal layout, busy set and wish."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.hardware.layouts import (
    can_add,
    check_layout,
    is_valid,
    layout_text,
    multiset,
    placement_sets,
    solve_cut,
    split_cut,
)
from smartmig.hardware.model import GpuModel, gpu_model, gpu_model_ids
from smartmig.hardware.power import fit_concave, is_concave
from smartmig.hardware.transitions import Transition, fragmentation, least_disruption, transition, where_to_create
from smartmig.types import Layout, Placement

models = st.sampled_from([gpu_model(model_id) for model_id in gpu_model_ids()])


@st.composite
def cards_with_layout(draw: st.DrawFn, n: int = 1) -> tuple[GpuModel, list[Layout]]:
    model = draw(models)
    sets = st.sampled_from(placement_sets(model, model.profiles))
    return model, [draw(sets) for _ in range(n)]


def names_of(model: GpuModel) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([profile.key for profile in model.profiles]), max_size=model.n_compute)


def replay(model: GpuModel, current: Layout, change: Transition) -> Layout:
    layout = set(current)
    for step in change.steps:
        if step.action == "destroy":
            layout.remove(step.placement)
        else:
            layout.add(step.placement)
        check_layout(model, tuple(layout))
    return tuple(sorted(layout))


@given(cards_with_layout())
def test_layouts__text_then_solve_gives_the_same_instances(case: tuple[GpuModel, list[Layout]]) -> None:
    model, (layout,) = case
    again = solve_cut(model, split_cut(layout_text(model, layout)))
    assert multiset(model, again) == multiset(model, layout)
    assert is_valid(model, again)


@given(cards_with_layout(), st.data())
def test_can_add__agrees_with_the_full_check(case: tuple[GpuModel, list[Layout]], data: st.DataObject) -> None:
    model, (layout,) = case
    profile = data.draw(st.sampled_from(model.profiles))
    placement = Placement(data.draw(st.integers(-1, model.n_memory)), profile.name)
    assert can_add(model, layout, placement) == is_valid(model, (*layout, placement))


@given(cards_with_layout(n=2))
def test_transition__every_step_is_valid_and_it_arrives(case: tuple[GpuModel, list[Layout]]) -> None:
    model, (current, target) = case
    assert replay(model, current, transition(model, current, target)) == target


@settings(deadline=None)
@given(cards_with_layout(), st.data())
def test_least_disruption__serves_the_wish_and_spares_the_busy(
    case: tuple[GpuModel, list[Layout]], data: st.DataObject
) -> None:
    model, (current,) = case
    busy = data.draw(st.sets(st.sampled_from(current))) if current else set()
    wanted = data.draw(names_of(model))
    change = least_disruption(model, current, busy, wanted)
    need = Counter(model.profile(name).name for name in wanted)

    def serves(layout: Layout) -> bool:
        return busy <= set(layout) and not need - Counter(placement.profile for placement in layout)

    reachable = [layout for layout in placement_sets(model, model.profiles) if serves(layout)]
    if change is None:
        assert not reachable
        return
    assert not set(change.destroy) & busy
    end = replay(model, current, change)
    assert serves(end)
    cost = len(change.destroy), len(change.create)
    assert cost == min((len(set(current) - set(layout)), len(set(layout) - set(current))) for layout in reachable)


@given(cards_with_layout(), st.data())
def test_where_to_create__is_legal_and_the_least_fragmented(
    case: tuple[GpuModel, list[Layout]], data: st.DataObject
) -> None:
    model, (current,) = case
    profile = data.draw(st.sampled_from(model.profiles))
    legal = [Placement(s, profile.name) for s in profile.starts if can_add(model, current, Placement(s, profile.name))]
    chosen = where_to_create(model, current, profile.key)
    if chosen is None:
        assert not legal
        return
    assert chosen in legal
    cost = {option: fragmentation(model, tuple(sorted((*current, option)))) for option in legal}
    assert cost[chosen] == min(cost.values())


@given(cards_with_layout())
def test_fragmentation__lies_between_0_and_1(case: tuple[GpuModel, list[Layout]]) -> None:
    model, (layout,) = case
    assert 0.0 <= fragmentation(model, layout) <= 1.0


@given(models, st.data())
def test_solve_cut__is_legal_or_refused(model: GpuModel, data: st.DataObject) -> None:
    wanted = data.draw(names_of(model))
    names = sorted(model.profile(name).name for name in wanted)
    possible = any(sorted(p.profile for p in layout) == names for layout in placement_sets(model, model.profiles))
    if possible:
        layout = solve_cut(model, wanted)
        check_layout(model, layout)
        assert sorted(placement.profile for placement in layout) == names
    else:
        with pytest.raises(InputError, match="impossible cut"):
            solve_cut(model, wanted)


@given(st.text(alphabet="0123456789xXgGme+.,-@ ab", max_size=30))
def test_parsers__answer_or_refuse_with_a_sentence(text: str) -> None:
    gpus = [gpu_model("a100-40gb"), gpu_model("a30")]
    sentences = []
    try:
        parse_gpus(text)
    except InputError as error:
        sentences.append(str(error))
    try:
        parse_layouts(text, gpus)
    except InputError as error:
        sentences.append(str(error))
    assert all(sentence.startswith("--") for sentence in sentences)


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=7, unique=True),
    st.lists(st.floats(0, 1000), min_size=8, max_size=8),
)
def test_fit_concave__is_always_monotone_concave(slices: list[int], watts: list[float]) -> None:
    points = [(0, watts[0]), *((k, watts[k]) for k in sorted(slices))]
    curve, error_w = fit_concave(points, 7)
    assert is_concave(curve, 1e-6)
    assert curve[0] == watts[0]
    assert error_w >= 0
