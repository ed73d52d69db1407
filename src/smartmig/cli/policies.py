"""`smartmig policies`: the rules there are, with their knobs."""

from __future__ import annotations

from rich.table import Table

from smartmig.cli.console import Json, output, print_json
from smartmig.registry import ALLOCATIONS, PLACEMENTS, REPARTITIONS, SELECTIONS, described


def policies(json_output: Json = False) -> None:
    """List the rules of both worlds, what they do and which knobs they have."""
    tables = {"placement": PLACEMENTS, "repartition": REPARTITIONS}
    tables |= {"selection": SELECTIONS, "allocation": ALLOCATIONS}
    kinds = {kind: described(table, kind) for kind, table in tables.items()}
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
