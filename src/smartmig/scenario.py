"""A scenario: cluster, workload and the policies to compare, read strictly from YAML.

`version: 1` first; an unknown key, a wrong type or a bad value is refused with file and line. The dataclasses here are
the file format; their fields' docstrings are its documentation.
"""

from __future__ import annotations

import math
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as strict_dataclass

from smartmig.errors import InputError, SmartmigError, UnknownName
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.policy.allocation.rule import AllocationRule
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.selection.rule import SelectionRule
from smartmig.registry import ADAPTERS, ALLOCATIONS, PLACEMENTS, REPARTITIONS, SELECTIONS, TRACES, WORKLOADS, load
from smartmig.sim.mig.run import Cluster, Policy, cuts_of
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs

STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True)

RuleSpec = str | dict[str, Any]
"""A rule by id, or a mapping of `id` and the rule's knobs."""

PAIRS: dict[str, tuple[RuleSpec, RuleSpec]] = {
    "joint": ({"id": "learned", "policy_file": "joint"}, {"id": "mean-field", "policy_file": "joint"}),
}
"""Placing and cutting that were trained together, by the name that `--policy` takes."""


@strict_dataclass(frozen=True, config=STRICT)
class ClusterSpec:
    gpus: str = "8xa100-40gb"
    """as in `--gpus`"""
    layouts: str | None = None
    """as in `--layouts`; without it every policy begins as its repartition rule does"""


@strict_dataclass(frozen=True, config=STRICT)
class PolicySpec:
    placement: RuleSpec = "categorical-edf"
    repartition: RuleSpec = "static"
    name: str | None = None
    """shown in tables; default `<placement>, <repartition>`"""
    layouts: str | None = None
    """this policy's own cuts at time 0, in place of the cluster's"""
    preempt: bool = Field(default=True, strict=True)
    recut: Literal["paper", "drain"] = "paper"
    """paper: a re-cut GPU is down for `recut_s`; drain: idle instances only, beside running work"""
    recut_s: float = Field(default=4.0, ge=0, allow_inf_nan=False, strict=True)
    restart_s: float = Field(default=0.0, ge=0, allow_inf_nan=False, strict=True)
    """what a stopped job pays when it starts again"""
    speed: Literal["as-given", "estimated"] = "as-given"
    """estimated: scale run times by each GPU model's estimated speed against A100-40GB"""
    charge_after_release: bool = Field(default=False, strict=True)
    """S1's energy accounting; only to reproduce its table"""

    @property
    def title(self) -> str:
        return self.name or f"{rule_id(self.placement)}, {rule_id(self.repartition)}"

    def policy(self, where: str = "") -> Policy:
        return Policy(placement_rule(self.placement, where), repartition_rule(self.repartition, where))

    def settings(self, seed: int = 0, record: bool = False) -> Settings:
        return Settings(
            preempt=self.preempt,
            drain=self.recut == "drain",
            recut_s=self.recut_s,
            restart_s=self.restart_s,
            estimated_speed=self.speed == "estimated",
            charge_after_release=self.charge_after_release,
            record=record,
            seed=seed,
        )


@strict_dataclass(frozen=True, config=STRICT)
class Scenario:
    version: Literal[1]
    title: str = "smartmig scenario"
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    workload: RuleSpec = "day"
    """a generator (`day`, `fixed-rate`) or a trace format (`csv`, `openb`, `genai` with `path`), and its knobs"""
    policies: tuple[PolicySpec, ...] = Field(default=(PolicySpec(),), min_length=1)
    seeds: int = Field(default=20, ge=1, strict=True)
    """how many days, from `first_seed` on; every policy runs all of them"""
    first_seed: int = Field(default=0, ge=0, strict=True)

    def cluster_for(self, policy: PolicySpec) -> Cluster:
        gpus = parse_gpus(self.cluster.gpus, "cluster.gpus")
        text = policy.layouts or self.cluster.layouts
        return Cluster(gpus, parse_layouts(text, gpus, "layouts") if text else None)

    def jobs(self, seed: int) -> Jobs:
        made: Jobs = workload(self.workload).jobs(seed)
        return made


def placement_rule(spec: RuleSpec, where: str = "") -> PlacementRule:
    rule: PlacementRule = _build(PLACEMENTS, "placement", spec, where)
    return rule


def repartition_rule(spec: RuleSpec, where: str = "") -> RepartitionRule:
    rule: RepartitionRule = _build(REPARTITIONS, "repartition", spec, where)
    return rule


def selection_rule(spec: RuleSpec, where: str = "") -> SelectionRule:
    rule: SelectionRule = _build(SELECTIONS, "selection", spec, where)
    return rule


def allocation_rule(spec: RuleSpec, where: str = "") -> AllocationRule:
    rule: AllocationRule = _build(ALLOCATIONS, "allocation", spec, where)
    return rule


def workload(spec: RuleSpec, where: str = "") -> Any:
    """A generator or trace with a method `jobs(seed)`."""
    return _build({**WORKLOADS, **TRACES}, "workload", spec, where)


def adapter(spec: RuleSpec, where: str = "") -> Any:
    """An adapter's knobs, with a method `open`."""
    return _build(ADAPTERS, "adapter", spec, where)


def rule_id(spec: RuleSpec) -> str:
    """The rule's name without its knobs."""
    return spec if isinstance(spec, str) else str(spec.get("id", "?"))


def _build(table: dict[str, str] | Any, what: str, spec: RuleSpec, where: str) -> Any:
    knobs = {} if isinstance(spec, str) else {key: value for key, value in spec.items() if key != "id"}
    if not isinstance(spec, str) and "id" not in spec:
        raise InputError(f"{where + ': ' if where else ''}{what} needs an 'id', got {sorted(spec)}")
    made = load(table, what, rule_id(spec), where)
    try:
        return TypeAdapter(made).validate_python(_only_known(made, knobs, f"{what} {rule_id(spec)}"))
    except ValidationError as error:
        first = error.errors()[0]
        knob = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where + ': ' if where else ''}{what} {rule_id(spec)}: {knob}: {first['msg']}") from None


def _only_known(made: Any, knobs: dict[str, Any], what: str) -> dict[str, Any]:
    known = [field.name for field in fields(made)]
    for key, value in knobs.items():
        if key not in known:
            raise UnknownName("knob", key, known, what)
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{what}: {key}: got {value}, allowed are finite numbers")
    return knobs


def read_scenario(path: Path) -> Scenario:
    """Raises `InputError` with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise InputError(f"{path}{line}: not valid YAML ({problem})") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a scenario is a mapping that begins with 'version: 1'")
    _refuse_repeated(path, tree)
    try:
        scenario = TypeAdapter(Scenario).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        at = [part for part in first["loc"] if part not in ("constrained-str", "dict[str,any]")]
        raise InputError(f"{path}:{_line(tree, at)}: {'.'.join(map(str, at))}: {_reason(first)}") from None
    scenario = replace(scenario, workload=_beside(path, scenario.workload))
    _check(path, tree, scenario)
    return scenario


def _refuse_repeated(path: Path, node: yaml.Node | None) -> None:
    """YAML takes the last of two equal keys without a word; nobody means that."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated(path, item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise InputError(f"{path}:{key.start_mark.line + 1}: {key.value}: this key stands twice")
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
            _refuse_repeated(path, value)


def _beside(path: Path, spec: RuleSpec) -> RuleSpec:
    """A trace's path counts from the scenario's folder, wherever the command is run."""
    if isinstance(spec, str) or not isinstance(spec.get("path"), str):
        return spec
    return {**spec, "path": str(path.parent / spec["path"])}


def _check(path: Path, tree: yaml.Node | None, scenario: Scenario) -> None:
    """Build everything once, so that a bad id or knob is refused now and with its line."""
    checks: list[tuple[list[str | int], Any]] = [(["workload"], lambda: workload(scenario.workload))]
    for index, policy in enumerate(scenario.policies):
        at: list[str | int] = ["policies", index]
        checks.append(([*at, "placement"], lambda p=policy: placement_rule(p.placement)))
        checks.append(([*at, "repartition"], lambda p=policy: repartition_rule(p.repartition)))
        checks.append(([*at, "layouts"] if policy.layouts else ["cluster"], lambda p=policy: scenario.cluster_for(p)))
        checks.append(([*at, "repartition"], lambda p=policy: cuts_of(scenario.cluster_for(p), p.policy().repartition)))
    for at, check in checks:
        try:
            check()
        except SmartmigError as error:
            raise InputError(f"{path}:{_line(tree, at)}: {'.'.join(map(str, at))}: {error}") from None
    titles = [policy.title for policy in scenario.policies]
    if len(set(titles)) < len(titles):
        twice = next(title for title in titles if titles.count(title) > 1)
        raise InputError(f"{path}:{_line(tree, ['policies'])}: two policies are called '{twice}'; give each a name")


def _reason(error: Any) -> str:
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return "unknown key"
    if error["type"] == "missing":
        return "this key is required"
    return f"{error['msg']}, got {error['input']!r}"


def _line(node: yaml.Node | None, path: list[Any]) -> int:
    """Line of the deepest part of the path that stands in the file."""
    line = 1 if node is None else node.start_mark.line + 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            if not found:
                break
            line = found[0][0].start_mark.line + 1
            node = found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
