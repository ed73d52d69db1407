"""`smartmig kill` and `smartmig resume`: the kill switch."""

from __future__ import annotations

from typing import Annotated

import typer

from smartmig.cli.console import Json, print_json
from smartmig.cli.live_places import KillFile, kill_place
from smartmig.control.switch import is_thrown, throw_switch
from smartmig.errors import SmartmigError


def kill(
    kill_file: KillFile = "",
    adapter: Annotated[str, typer.Option(help="Also let go directly, e.g. slurm:partition=gpu.")] = "",
    why: Annotated[str, typer.Option(help="Written into the kill file.")] = "smartmig kill",
    json_output: Json = False,
) -> None:
    """Give the cluster back to its own scheduling at once; a running controller lets go of every job it holds.

    With --adapter this also works when no controller runs.
    """
    place = kill_place(kill_file)
    try:
        throw_switch(place, why)
        released = None
    finally:
        # Letting go comes first: it must not hang on a folder that cannot be written.
        if adapter:
            from smartmig.cli.serve import open_adapter

            connection = open_adapter(adapter)
            released = connection.actuator.let_go(30.0)
            connection.source.close()
            connection.actuator.close()
    if json_output:
        print_json({"kill_file": str(place), "released": released})
        return
    print(f"kill switch is on: {place}" + (f"; {released} jobs released" if released is not None else ""))


def resume(kill_file: KillFile = "", json_output: Json = False) -> None:
    """Take the kill switch back; a running controller in mode act takes over again."""
    place = kill_place(kill_file)
    was_on = is_thrown(place)
    try:
        place.unlink(missing_ok=True)
    except OSError as error:
        raise SmartmigError(f"{place}: cannot remove: {error.strerror}") from None
    if json_output:
        print_json({"kill_file": str(place), "was_on": was_on})
        return
    print(f"kill switch is off: {place}" if was_on else f"the kill switch was not on: {place}")
