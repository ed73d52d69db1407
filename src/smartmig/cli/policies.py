"""`smartmig policies`: the rules there are, with their knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rich.table import Table

from smartmig.cli.console import Json, output, print_json
from smartmig.registry import ALLOCATIONS, PLACEMENTS, REPARTITIONS, SELECTIONS, load


def policies(json_output: Json = False) -> None:
    """List the rules of both worlds, what they do and which knobs they have."""
    tables = {"placement": PLACEMENTS, "repartition": REPARTITIONS}
    tables |= {"selection": SELECTIONS, "allocation": ALLOCATIONS}
    kinds = {kind: _rules(table, kind) for kind, table in tables.items()}
    if json_output:
        print_json(kinds)
        return
    for kind, rules in kinds.items():
        table = Table(title=f"{kind} rules", title_justify="left", box=None, pad_edge=False)
        for column in ("id", "what it does", "knobs"):
            table.add_column(column, overflow="fold")
        for rule in rules:
            knobs = ", ".join(f"{name}={value}" for name, value in rule["knobs"].items())
            table.add_row(rule["id"], rule["about"], knobs)
        output().print(table, "")


def _rules(table: Mapping[str, str], what: str) -> list[dict[str, Any]]:
    rules = []
    for name in table:
        rule = load(table, what, name)
        about = (rule.__doc__ or "").strip().splitlines()[0]
        rules.append({"id": name, "about": about, "knobs": {f.name: f.default for f in fields(rule)}})
    return rules
