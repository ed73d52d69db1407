"""Every registered name leads somewhere, and a wrong one is told the way."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from smartmig import registry
from smartmig.errors import InputError, UnknownName
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.cuts import cut_table
from smartmig.hardware.layouts import check_layout
from smartmig.hardware.model import gpu_model
from smartmig.policy.allocation.rule import AllocationRule
from smartmig.policy.repartition.static import Static
from smartmig.policy.selection.rule import SelectionRule
from smartmig.registry import (
    ADAPTERS,
    ALLOCATIONS,
    CURVE_SETS,
    GANG_TRACES,
    PLACEMENTS,
    REPARTITIONS,
    REPRODUCTIONS,
    REQUESTS,
    SELECTIONS,
    TRACES,
    WORKLOADS,
    load,
)
from smartmig.reproduce.s4 import GangReproduction
from smartmig.scenario import allocation_rule, placement_rule, repartition_rule, selection_rule, workload
from smartmig.sim.mig.run import Cluster, cuts_of
from smartmig.sim.mig.world import Settings, build_world
from smartmig.workload.mix import JobMix

TABLES: dict[str, Mapping[str, str]] = {
    "placement": PLACEMENTS,
    "repartition": REPARTITIONS,
    "selection": SELECTIONS,
    "allocation": ALLOCATIONS,
    "workload": WORKLOADS,
    "trace format": TRACES,
    "whole-GPU trace format": GANG_TRACES,
    "request model": REQUESTS,
    "curve set": CURVE_SETS,
    "reproduction": REPRODUCTIONS,
    "adapter": ADAPTERS,
}
ENTRIES = [(what, name) for what, table in TABLES.items() for name in table]


def test_registry__this_test_knows_every_table() -> None:
    tables = {name for name, value in vars(registry).items() if name.isupper() and isinstance(value, dict)}
    rules = {"PLACEMENTS", "REPARTITIONS", "SELECTIONS", "ALLOCATIONS"}
    jobs = {"WORKLOADS", "TRACES", "GANG_TRACES", "REQUESTS", "CURVE_SETS"}
    assert tables == rules | jobs | {"REPRODUCTIONS", "ADAPTERS"}


@pytest.mark.parametrize(("what", "name"), ENTRIES)
def test_registry__every_entry_loads_and_is_documented(what: str, name: str) -> None:
    thing = load(TABLES[what], what, name)
    assert callable(thing)
    module = importlib.import_module(thing.__module__)
    assert module.__doc__
    assert name == name.lower().replace("_", "-")


@pytest.mark.parametrize("name", PLACEMENTS)
def test_placement__builds_with_default_knobs(name: str) -> None:
    rule = placement_rule(name)
    assert is_dataclass(rule)
    assert rule.__dataclass_params__.frozen  # type: ignore[attr-defined]
    about = (type(rule).__doc__ or "").strip()
    # A dataclass without a docstring shows its signature instead.
    assert about
    assert not about.startswith(f"{type(rule).__name__}(")
    cuts = cuts_of(Cluster(parse_gpus("1xa100-40gb")), Static())
    assert np.isfinite(build_world(cuts, rule, Settings()).knobs).all()
    run_s = np.array([[60.0, 30.0, 20.0, 15.0, 9.0], [np.inf, np.inf, np.inf, np.inf, 5.0]])
    assert rule.groups(run_s).shape == (2,)


@pytest.mark.parametrize("name", REPARTITIONS)
def test_repartition__builds_with_default_knobs(name: str) -> None:
    rule = repartition_rule(name)
    assert is_dataclass(rule)
    assert rule.__dataclass_params__.frozen  # type: ignore[attr-defined]
    about = (type(rule).__doc__ or "").strip()
    assert about
    assert not about.startswith(f"{type(rule).__name__}(")
    # A trained policy serves the cards it was trained for, by number of compute slices.
    cards = ("a100-40gb", "h200-141gb") if name == "mean-field" else ("a100-40gb", "a30", "h200-141gb")
    gpus = tuple(gpu_model(card) for card in cards)
    layouts = rule.start(gpus)
    for gpu, layout in zip(gpus, layouts, strict=True):
        check_layout(gpu, layout)
    cuts = cut_table(gpus, layouts)
    assert set(rule.reachable(cuts)) <= set(range(len(cuts.configs)))
    world = build_world(cuts, placement_rule("categorical-edf"), Settings())
    assert np.isfinite(rule.knobs(cuts, world)).all()
    assert rule.period_s() > 0


@pytest.mark.parametrize(
    ("make", "name"),
    [(selection_rule, name) for name in SELECTIONS] + [(allocation_rule, name) for name in ALLOCATIONS],
)
def test_gang_rule__builds_with_default_knobs(make: Callable[[str], SelectionRule | AllocationRule], name: str) -> None:
    rule = make(name)
    assert is_dataclass(rule)
    assert rule.__dataclass_params__.frozen  # type: ignore[attr-defined]
    about = (type(rule).__doc__ or "").strip()
    assert about
    assert not about.startswith(f"{type(rule).__name__}(")
    assert all(isinstance(number, (int, float)) for number in rule.knobs())


def test_selection__only_what_is_called_oracle_is_one() -> None:
    assert [name for name in SELECTIONS if selection_rule(name).oracle] == ["sjf-oracle"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload__builds_with_default_knobs(name: str) -> None:
    made = workload(name)
    assert isinstance(made, JobMix)
    jobs = made.jobs(0)
    assert len(jobs) > 100
    np.testing.assert_array_equal(jobs.arrive_s, workload(name).jobs(0).arrive_s)


@pytest.mark.parametrize("table", [TRACES, GANG_TRACES])
def test_trace__first_field_is_the_path(table: Mapping[str, str]) -> None:
    for name in table:
        assert fields(load(table, "trace format", name))[0].name == "path"


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_reproduction__carries_its_own_id(name: str) -> None:
    made = load(REPRODUCTIONS, "reproduction", name)()
    assert made.id == name
    assert made.source
    assert made.differs
    assert made.days > 0
    if isinstance(made, GangReproduction):
        return  # its rows are whole comparisons, see tests/unit/test_s4.py
    assert made.rows
    metrics = {metric.id for metric in made.metrics}
    for row in made.rows:
        assert set(row.published) <= metrics
        if row.policy is not None:
            row.policy.policy()


@pytest.mark.parametrize(
    ("what", "wrong", "nearest"),
    [
        ("placement", "categorical-efd", "categorical-edf"),
        ("placement", "largest", "largest-first"),
        ("repartition", "slicecount", "slice-count"),
        ("selection", "fcsf", "fcfs"),
        ("allocation", "bestfit", "best-fit"),
        ("workload", "fixedrate", "fixed-rate"),
        ("trace format", "opnb", "openb"),
        ("whole-GPU trace format", "sact", "sacct"),
        ("request model", "menu-2h", "menu-1h"),
        ("reproduction", "s3-fig-12", "s3-fig12"),
    ],
)
def test_load__unknown_name_lists_the_nearest_and_the_rest(what: str, wrong: str, nearest: str) -> None:
    with pytest.raises(UnknownName) as caught:
        load(TABLES[what], what, wrong, "lab.yaml")
    text = str(caught.value)
    assert text.startswith(f"lab.yaml: no {what} '{wrong}'. Did you mean '{nearest}'?")
    assert all(name in text for name in TABLES[what])
    assert "\n" not in text
    assert caught.value.exit_code == 2


def test_load__nothing_near_still_lists_what_there_is() -> None:
    with pytest.raises(UnknownName, match=r"^no placement 'zzz'\. Known: edf-most-packed, "):
        load(PLACEMENTS, "placement", "zzz")


@pytest.mark.parametrize("make", [placement_rule, repartition_rule, workload])
def test_rules__a_knob_nobody_has_is_refused(make: object) -> None:
    name = {placement_rule: "shortest-work", repartition_rule: "slice-count", workload: "day"}[make]  # type: ignore[index]
    with pytest.raises(InputError, match="no knob 'colour'"):
        make({"id": name, "colour": 3})  # type: ignore[operator]
