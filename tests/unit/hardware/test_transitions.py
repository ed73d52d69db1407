"""From one cut to another without ever breaking a rule, and without touching busy instances."""

from __future__ import annotations

import pytest

from smartmig.errors import InputError
from smartmig.hardware.layouts import check_layout, configurations, maximal_sets, placement_sets, solve_cut
from smartmig.hardware.model import GpuModel, gpu_model, gpu_model_ids
from smartmig.hardware.transitions import Transition, fragmentation, least_disruption, transition, where_to_create
from smartmig.types import Layout, Placement

A100 = gpu_model("a100-40gb")


def replay(model: GpuModel, current: Layout, change: Transition) -> Layout:
    layout = set(current)
    for step in change.steps:
        if step.action == "destroy":
            layout.remove(step.placement)
        else:
            assert step.placement not in layout
            layout.add(step.placement)
        check_layout(model, tuple(layout))
    return tuple(sorted(layout))


@pytest.mark.parametrize("model_id", gpu_model_ids())
def test_transition__every_configuration_to_every_other(model_id: str) -> None:
    model = gpu_model(model_id)
    for current in configurations(model):
        for target in configurations(model):
            change = transition(model, current, target)
            assert replay(model, current, change) == target == change.target
            assert set(change.keep) == set(current) & set(target)
            assert not set(change.destroy) & set(change.create)


def test_transition__keeps_what_is_in_both() -> None:
    change = transition(A100, solve_cut(A100, ["4g", "3g"]), solve_cut(A100, ["4g", "2g", "1g"]))
    assert change.keep == ((0, "4g.20gb"),)
    assert [(step.action, step.placement) for step in change.steps] == [
        ("destroy", (4, "3g.20gb")),
        ("create", (4, "2g.10gb")),
        ("create", (6, "1g.5gb")),
    ]


def test_transition__refuses_an_invalid_layout() -> None:
    with pytest.raises(InputError, match="target layout: illegal start"):
        transition(A100, (), (Placement(1, "4g.20gb"),))


def test_least_disruption__does_nothing_when_the_wish_is_there() -> None:
    current = solve_cut(A100, ["4g", "2g", "1g"])
    change = least_disruption(A100, current, (), ["1g", "2g"])
    assert change == Transition(current, (), (), ())


def test_least_disruption__destroys_only_what_is_in_the_way() -> None:
    current = solve_cut(A100, ["2g", "1g", "1g", "3g"])
    busy = [Placement(4, "3g.20gb"), Placement(0, "2g.10gb")]
    change = least_disruption(A100, current, busy, ["2g", "2g"])
    assert change is not None
    assert change.destroy == ((2, "1g.5gb"), (3, "1g.5gb"))
    assert change.create == ((2, "2g.10gb"),)


def test_least_disruption__busy_instance_in_the_only_place_is_a_no() -> None:
    current = (Placement(0, "1g.5gb"),)
    assert least_disruption(A100, current, current, ["4g"]) is None
    moved = least_disruption(A100, current, (), ["4g", "1g"])
    assert moved is not None
    assert moved.target == ((0, "4g.20gb"), (6, "1g.5gb"))


def test_least_disruption__busy_instance_serves_an_equal_wish() -> None:
    current = (Placement(0, "4g.20gb"),)
    change = least_disruption(A100, current, current, ["4g", "3g"])
    assert change is not None
    assert change.create == ((4, "3g.20gb"),)


def test_least_disruption__refuses_a_busy_instance_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"busy instance 3g\.20gb at memory slice 4 is not in the layout"):
        least_disruption(A100, (), [Placement(4, "3g.20gb")], ["1g"])


@pytest.mark.parametrize("model_id", ["a30-24gb", "a100-40gb"])
def test_fragmentation__zero_for_empty_and_full_and_never_outside_the_unit(model_id: str) -> None:
    model = gpu_model(model_id)
    assert fragmentation(model, ()) == 0.0
    for layout in placement_sets(model):
        assert 0.0 <= fragmentation(model, layout) <= 1.0
    for layout in configurations(model):
        assert fragmentation(model, layout) == 0.0


def test_fragmentation__dominated_maximal_set_has_lost_everything() -> None:
    # [3,2,1] with 3g on the left blocks all; with 3g on the right a 1g still fits.
    lost = Placement(0, "3g.20gb"), Placement(4, "2g.10gb"), Placement(6, "1g.5gb")
    assert lost in maximal_sets(A100)
    assert fragmentation(A100, lost) == 1.0


def test_where_to_create__keeps_the_large_starts_free() -> None:
    assert where_to_create(A100, (), "1g") == (6, "1g.5gb")
    assert where_to_create(A100, (), "2g") == (4, "2g.10gb")
    assert where_to_create(A100, (), "3g") == (4, "3g.20gb")
    assert where_to_create(A100, solve_cut(A100, ["7g"]), "1g") is None


def test_where_to_create__one_by_one_fills_the_card_with_1g() -> None:
    layout: Layout = ()
    for _ in range(7):
        placement = where_to_create(A100, layout, "1g")
        assert placement is not None
        layout = tuple(sorted((*layout, placement)))
        check_layout(A100, layout)
    assert where_to_create(A100, layout, "1g") is None
