"""`smartmig replay`: a journal decided again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from smartmig.cli import complete
from smartmig.cli.console import Json, print_json
from smartmig.cli.live_places import JournalArgument, needs
from smartmig.cli.options import rule_spec
from smartmig.errors import InputError, SmartmigError
from smartmig.sim.gang.world import Backfill


def replay(
    journal: JournalArgument,
    selection: Annotated[
        str, typer.Option(help="Another rule in place of the recorded one.", autocompletion=complete.selections)
    ] = "",
    allocation: Annotated[str, typer.Option(help="Likewise.", autocompletion=complete.allocations)] = "",
    backfill: Annotated[Backfill | None, typer.Option(help="Likewise.")] = None,
    placement: Annotated[str, typer.Option(help="Likewise.", autocompletion=complete.placements)] = "",
    repartition: Annotated[str, typer.Option(help="Likewise.", autocompletion=complete.repartitions)] = "",
    json_output: Json = False,
) -> None:
    """Decide about every recorded state again. The recorded policy must give the recorded plans: exit code 1 if not.

    With a rule of one's own, count where it would have decided otherwise.
    """
    needs("smartmig replay", "sqlalchemy", "alembic")
    from smartmig.cli.recorded import recorded_pilot
    from smartmig.control.journal import open_journal
    from smartmig.control.memory import Memory
    from smartmig.control.pilot import Pilot
    from smartmig.control.replay import replay as run

    changed: dict[str, Any] = {
        name: rule_spec(text, f"--{name}")
        for name, text in (
            ("selection", selection),
            ("allocation", allocation),
            ("placement", placement),
            ("repartition", repartition),
        )
        if text
    }
    if backfill is not None:
        changed["backfill"] = backfill.value

    def make_pilot(boot: dict[str, Any], memory: Memory) -> Pilot:
        return recorded_pilot(journal, boot, memory, changed)

    report = run(open_journal(journal).records(), make_pilot)
    if report.n_sessions == 0:
        raise InputError(f"{journal}: holds no session of a controller")
    if json_output:
        print_json(
            {**asdict(report), "n_different": report.n_different, "policy": "changed" if changed else "recorded"}
        )
    else:
        print(
            f"{report.n_decisions} decisions in {report.n_sessions} sessions: {report.n_same} the same, "
            f"{report.n_different} different; starts recorded {report.n_starts_recorded}, now {report.n_starts_now}"
        )
    if report.n_different and not changed:
        at = report.first_difference["record"] if report.first_difference else "?"
        raise SmartmigError(f"{journal}: the recorded policy gives other plans, first at record {at}")
