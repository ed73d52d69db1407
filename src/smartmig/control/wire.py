"""States, plans and memories as JSON: what the journal keeps, what the API answers, what `smartmig plan` reads.

Fields are those of the nouns in `types.py`, unknown ones are refused, what has its default may be left out. A key is
`[job_id, submit_s]`, infinity is the text "Infinity", an action says what it is: `{"start": {...}}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import groupby
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from smartmig.control.guard import GuardMemory, GuardRules
from smartmig.control.memory import Memory
from smartmig.errors import InputError
from smartmig.hardware.layouts import check_layout
from smartmig.hardware.model import gpu_model
from smartmig.types import (
    Action,
    ClusterState,
    JobKey,
    JobRequest,
    NodeInfo,
    Outcome,
    Placement,
    Plan,
    Repartition,
    RunningJob,
    Start,
    Stop,
)

STRICT = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

# pydantic takes settings for a list of plain dataclasses, not for the dataclass itself.
_STATES = TypeAdapter(list[ClusterState], config=STRICT)
_REQUESTS = TypeAdapter(list[JobRequest], config=STRICT)
_RUNNING = TypeAdapter(list[RunningJob], config=STRICT)
_MEMORIES = TypeAdapter(list[Memory], config=STRICT)
_GUARDS = TypeAdapter(list[GuardMemory], config=STRICT)
_RULES = TypeAdapter(list[GuardRules], config=STRICT)
_ACTIONS: dict[str, TypeAdapter[Any]] = {
    "start": TypeAdapter(list[Start], config=STRICT),
    "stop": TypeAdapter(list[Stop], config=STRICT),
    "repartition": TypeAdapter(list[Repartition], config=STRICT),
}
_NAMES = {Start: "start", Stop: "stop", Repartition: "repartition"}

MOST = 1_000_000
"""GPUs of a node or of a job: more is a slip of the pen."""
MOST_S = 1e12
"""Likewise for times."""
ENDLESS = {"limit_s", "deadline_s", "run_s", "from_s", "to_s"}
"""What may be infinite."""


def state_schema() -> dict[str, Any]:
    """JSON schema of a cluster's state."""
    whole = _STATES.json_schema()
    definition: dict[str, Any] = {**whole["$defs"].pop("ClusterState"), "$defs": whole["$defs"]}
    return definition


def _dump(adapter: TypeAdapter[Any], value: Any) -> Any:
    return _dump_all(adapter, [value])[0]


def _dump_all(adapter: TypeAdapter[Any], values: list[Any]) -> list[Any]:
    # Through text: only there infinity and nan become strings.
    made: list[Any] = json.loads(adapter.dump_json(values, exclude_defaults=True))
    return made


def _load(adapter: TypeAdapter[Any], data: Any, where: str) -> Any:
    try:
        return adapter.validate_python([data])[0]
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"][1:])
        raise InputError(f"{where}: {at or 'this'}: {first['msg']}, got {str(first['input'])[:60]!r}") from None


def state_to_json(state: ClusterState) -> dict[str, Any]:
    made: dict[str, Any] = _dump(_STATES, state)
    return made


def recorded_state(data: Any, where: str) -> ClusterState:
    """A state that `state_to_json` wrote."""
    state: ClusterState = _load(_STATES, data, where)
    return state


def state_from_json(data: Any, where: str = "state") -> ClusterState:
    """Raises `InputError` for what is no state, or one that contradicts itself."""
    state = recorded_state(data, where)
    _check_values(state, "", where)
    _check(state, where)
    return state


def _check_values(value: Any, name: str, where: str) -> None:
    """Numbers are such as there are, and text can be written down."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{where}: {name}: {value[:60]!r} is not text that UTF-8 can hold") from None
    elif isinstance(value, int):
        if abs(value) > MOST:
            raise InputError(f"{where}: {name} must be at most {MOST}, got {value:.6g}")
    elif isinstance(value, float):
        if not (abs(value) <= MOST_S or (value == math.inf and name in ENDLESS)):
            raise InputError(f"{where}: {name} must be a number of at most {MOST_S:g}, got {value:g}")
    elif is_dataclass(value):
        for field in fields(value):
            _check_values(getattr(value, field.name), field.name, where)
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", (name,) * len(value))
        for part, one in zip(names, value, strict=True):
            _check_values(one, part, where)


def _check(state: ClusterState, where: str) -> None:
    nodes = {node.name: node for node in state.nodes}
    if len(nodes) < len(state.nodes):
        raise InputError(f"{where}: nodes: two nodes have the same name")
    for node in state.nodes:
        _check_node(node, f"{where}: node '{node.name}'")
    requests = [*state.queued, *(job.request for job in state.running)]
    if len({request.key for request in requests}) < len(requests):
        raise InputError(f"{where}: two jobs have the same id and time of submission")
    for request in state.queued:
        _check_request(request, f"{where}: job '{request.key.job_id}'")
    for job in state.running:
        if job.request.n_gpus or job.request.run_s:  # of what runs on slices the run times need not be known
            _check_request(job.request, f"{where}: job '{job.request.key.job_id}'")
        _check_shares(job, nodes, f"{where}: job '{job.request.key.job_id}'")


def _check_node(node: NodeInfo, where: str) -> None:
    if not 0 <= node.n_free <= node.n_gpus or not node.speed > 0:
        raise InputError(f"{where}: n_free must lie in 0..n_gpus and speed above 0")
    for gpu, card in enumerate(node.gpus):
        layout = tuple(Placement(one.start, one.profile) for one in card.instances)
        check_layout(gpu_model(card.model), layout, f"{where}: gpus.{gpu}")
        strangers = set(card.busy_by_others) - {one.start for one in card.instances}
        if strangers:
            raise InputError(f"{where}: gpus.{gpu}: busy_by_others: no instance begins at {min(strangers)}")


def _check_request(request: JobRequest, where: str) -> None:
    if request.n_gpus < 0 or (request.n_gpus == 0 and len(request.run_s) != 5):
        raise InputError(f"{where} needs n_gpus of at least 1, or n_gpus 0 and five run_s (MIG)")
    if not request.limit_s > 0 or any(not run_s > 0 for run_s in request.run_s):
        raise InputError(f"{where}: times must be above 0")
    if request.predicted_s < 0 or request.memory_gb < 0:
        raise InputError(f"{where}: predicted_s and memory_gb must be at least 0")
    if request.n_nodes < 0 or (request.n_nodes and request.n_gpus % request.n_nodes):
        raise InputError(
            f"{where}: n_nodes must divide n_gpus, so that every node gives the same number, "
            f"got n_gpus {request.n_gpus} and n_nodes {request.n_nodes}"
        )


def _check_shares(job: RunningJob, nodes: Mapping[str, NodeInfo], where: str) -> None:
    for share in job.shares:
        node = nodes.get(share.node)
        if node is None:
            raise InputError(f"{where} runs on node '{share.node}', which is not in nodes")
        if share.n_gpus:
            if not 0 < share.n_gpus <= node.n_gpus:
                raise InputError(f"{where} holds {share.n_gpus} GPUs of node '{share.node}', which has {node.n_gpus}")
            continue
        cards = dict(enumerate(node.gpus))
        if share.gpu not in cards or share.start not in {one.start for one in cards[share.gpu].instances}:
            raise InputError(
                f"{where}: there is no instance at memory slice {share.start} of card {share.gpu} of '{share.node}'"
            )


def rules_to_json(rules: GuardRules) -> dict[str, Any]:
    """All of them: what a later version takes for granted may be another."""
    made: dict[str, Any] = json.loads(_RULES.dump_json([rules]))[0]
    return made


def rules_from_json(data: Any, where: str) -> GuardRules:
    rules: GuardRules = _load(_RULES, data, where)
    return rules


def action_to_json(action: Action) -> dict[str, Any]:
    name = _NAMES[type(action)]
    return {name: _dump(_ACTIONS[name], action)}


def action_from_json(data: Any, where: str = "plan") -> Action:
    if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in _ACTIONS:
        raise InputError(f"{where}: an action is a mapping with one key of {', '.join(_ACTIONS)}")
    ((name, body),) = data.items()
    action: Action = _load(_ACTIONS[name], body, where)
    return action


def plan_to_json(plan: Plan) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for kind, actions in groupby(plan, type):  # all of a kind at once: a plan may have hundreds
        name = _NAMES[kind]
        made += [{name: body} for body in _dump_all(_ACTIONS[name], list(actions))]
    return made


def plan_from_json(data: Any, where: str = "plan") -> Plan:
    return tuple(action_from_json(one, where) for one in data)


def outcomes_to_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    actions = plan_to_json(tuple(outcome.action for outcome in outcomes))
    return [
        {"action": action, "done": outcome.done, "why": outcome.why, "took_s": outcome.took_s}
        for action, outcome in zip(actions, outcomes, strict=True)
    ]


def memory_to_json(memory: Memory) -> dict[str, Any]:
    made = _dump(_MEMORIES, replace(memory, seen=frozenset(), held={}, promises={}))
    made["seen"] = [list(key) for key in sorted(memory.seen)]
    made["held"] = [[list(key), list(value)] for key, value in memory.held.items()]
    made["promises"] = [[list(key), promise.begin_s, list(promise.parts)] for key, promise in memory.promises.items()]
    return dict(made)


def memory_from_json(data: dict[str, Any]) -> Memory:
    rest = {name: value for name, value in data.items() if name not in ("seen", "held", "promises")}
    tables = {
        "seen": data.get("seen", []),
        "held": {JobKey(*key): tuple(value) for key, value in data.get("held", [])},
        "promises": {JobKey(*key): (begin_s, parts) for key, begin_s, parts in data.get("promises", [])},
    }
    memory: Memory = _load(_MEMORIES, {**rest, **tables}, "memory")
    return memory


def guard_memory_to_json(memory: GuardMemory) -> dict[str, Any]:
    made = _dump(_GUARDS, replace(memory, attempts={}))
    made["attempts"] = [[list(key), list(times)] for key, times in memory.attempts.items()]
    return dict(made)


def guard_memory_from_json(data: dict[str, Any]) -> GuardMemory:
    attempts = {JobKey(*key): tuple(times) for key, times in data.get("attempts", [])}
    memory: GuardMemory = _load(_GUARDS, {**data, "attempts": attempts}, "memory of the guard")
    return memory


def difference(before: ClusterState, after: ClusterState) -> dict[str, Any] | None:
    """What changed, as JSON; None when it cannot be told shorter than the whole."""
    if before.reservations != after.reservations or before.limits != after.limits:
        return None
    if [node.name for node in before.nodes] != [node.name for node in after.nodes]:
        return None
    queued = _changes({one.key: one for one in before.queued}, {one.key: one for one in after.queued})
    running = _changes(
        {one.request.key: one for one in before.running}, {one.request.key: one for one in after.running}
    )
    if queued is None or running is None:
        return None
    nodes = [new for old, new in zip(before.nodes, after.nodes, strict=True) if new is not old and new != old]
    made: dict[str, Any] = {"time_s": after.time_s}
    if nodes:
        made["nodes"] = state_to_json(ClusterState(0.0, tuple(nodes)))["nodes"]
    for name, adapter, changes in (("queued", _REQUESTS, queued), ("running", _RUNNING, running)):
        gone, come = changes
        if gone:
            made[f"{name}_gone"] = [list(key) for key in gone]
        if come:
            made[name] = _dump_all(adapter, come)
    return made


def _changes(before: Mapping[JobKey, Any], after: Mapping[JobKey, Any]) -> tuple[list[JobKey], list[Any]] | None:
    """Who went, and who came at the end; None when the rest is not as it was."""
    gone = [key for key in before if key not in after]
    kept = [key for key in before if key in after]
    keys = list(after)
    if keys[: len(kept)] != kept:
        return None
    changed = [key for key in kept if after[key] is not before[key] and after[key] != before[key]]
    if changed:
        return None
    return gone, [after[key] for key in keys[len(kept) :]]


def changed_state(before: ClusterState, data: dict[str, Any]) -> ClusterState:
    """The state that `difference` was told about."""
    nodes = {node.name: node for node in before.nodes}
    if "nodes" in data:
        fresh: ClusterState = _load(_STATES, {"time_s": 0.0, "nodes": data["nodes"]}, "journal")
        nodes |= {node.name: node for node in fresh.nodes}
    queue_gone = {JobKey(*key) for key in data.get("queued_gone", ())}
    run_gone = {JobKey(*key) for key in data.get("running_gone", ())}
    return replace(
        before,
        time_s=float(data["time_s"]),
        nodes=tuple(nodes.values()),
        queued=(
            *(one for one in before.queued if one.key not in queue_gone),
            *_REQUESTS.validate_python(data.get("queued", [])),
        ),
        running=(
            *(one for one in before.running if one.request.key not in run_gone),
            *_RUNNING.validate_python(data.get("running", [])),
        ),
    )
