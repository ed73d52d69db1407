"""`smartmig plan`: one decision for a state given as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from smartmig.cli.console import print_json
from smartmig.cli.live_policy import (
    FALLBACK,
    Allocation,
    BackfillKind,
    Placement,
    PolicyNames,
    Repartition,
    Seed,
    Selection,
    worlds_of,
)
from smartmig.cli.policy_files import trained_ranges
from smartmig.errors import InputError
from smartmig.sim.gang.world import Backfill

StateFile = Annotated[str, typer.Argument(help="State as JSON (docs/live.md); - is standard input.")]


def plan(
    state_file: StateFile = "-",
    selection: Selection = "fcfs",
    allocation: Allocation = "best-fit",
    backfill: BackfillKind = Backfill.easy,
    placement: Placement = "shortest-work",
    repartition: Repartition = "static",
    seed: Seed = 0,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a state and stop.")] = False,
) -> None:
    """Say what a policy would do about a cluster now: starts and cuts, checked by the guard. Prints JSON."""
    from smartmig.control.guard import GuardRules
    from smartmig.control.pilot import Pilot, decision_body
    from smartmig.control.switch import Mode
    from smartmig.control.wire import state_from_json, state_schema

    if schema:
        print_json(state_schema())
        return
    names = PolicyNames.parse(selection, allocation, backfill, placement, repartition)
    where = "standard input" if state_file == "-" else state_file
    state = state_from_json(read_json(state_file, where), where)
    worlds = worlds_of(state)
    policy = names.policy(worlds)
    pilot = Pilot(policy, FALLBACK.policy(worlds), GuardRules(), seed, ranges=trained_ranges(policy))
    body = decision_body(pilot.decide(state), Mode.shadow, 1, 0.0, False)
    answer = {"time_s": state.time_s, "plan": body["plan"], "refused": body["refused"]}
    if "fallback" in body:
        answer["fallback"] = body["fallback"]
    print_json(answer)


def read_json(place: str, where: str) -> object:
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except (OSError, ValueError) as error:  # of values: not UTF-8, or a name with a zero byte
        raise InputError(f"{where}: cannot be read as UTF-8 text ({error})") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON ({str(error)[:100]})") from None
