"""States, plans and memories as JSON: what the journal keeps, what the API answers, what `smartmig plan` reads.

Fields are those of the nouns in `types.py`, unknown ones are refused, what has its default may be left out. A key is
`[job_id, submit_s]`, infinity is the text "Infinity", an action says what it is: `{"start": {...}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from smartmig.control.guard import GuardMemory
from smartmig.control.memory import Memory
from smartmig.errors import InputError
from smartmig.types import (
    Action,
    ClusterState,
    JobKey,
    JobRequest,
    Outcome,
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
_ACTIONS: dict[str, TypeAdapter[Any]] = {
    "start": TypeAdapter(list[Start], config=STRICT),
    "stop": TypeAdapter(list[Stop], config=STRICT),
    "repartition": TypeAdapter(list[Repartition], config=STRICT),
}
_NAMES = {Start: "start", Stop: "stop", Repartition: "repartition"}


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


def state_from_json(data: Any, where: str = "state") -> ClusterState:
    """Raises `InputError` for what is no state, or one that contradicts itself."""
    state: ClusterState = _load(_STATES, data, where)
    _check(state, where)
    return state


def _check(state: ClusterState, where: str) -> None:
    names = [node.name for node in state.nodes]
    if len(set(names)) < len(names):
        raise InputError(f"{where}: nodes: two nodes have the same name")
    keys = [request.key for request in state.queued] + [job.request.key for job in state.running]
    if len(set(keys)) < len(keys):
        raise InputError(f"{where}: two jobs have the same id and time of submission")
    for request in state.queued:
        if request.n_gpus < 0 or (request.n_gpus == 0 and len(request.run_s) != 5):
            raise InputError(
                f"{where}: job '{request.key.job_id}' needs n_gpus of at least 1, or n_gpus 0 and five run_s (MIG)"
            )
        if not request.limit_s > 0 or any(not run_s > 0 for run_s in request.run_s):
            raise InputError(f"{where}: job '{request.key.job_id}': times must be above 0")
    for node in state.nodes:
        if not 0 <= node.n_free <= node.n_gpus or not node.speed > 0:
            raise InputError(f"{where}: node '{node.name}': n_free must lie in 0..n_gpus and speed above 0")


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
