"""`smartmig export`: layouts for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smartmig.atomic import atomic_write
from smartmig.cli.console import log, prepare_place
from smartmig.cli.options import Gpus, Layouts
from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.hardware.layouts import configurations
from smartmig.hardware.mig_parted import config_text


def export(
    gpus: Gpus = "8xa100-40gb",
    layouts: Layouts = None,
    state: Annotated[str, typer.Option(help="A state as JSON instead (docs/live.md): one config per node.")] = "",
    name: Annotated[str, typer.Option(help="Of the config.")] = "smartmig",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="YAML to write. Default: standard output.")] = None,
) -> None:
    """Write layouts as a config file for nvidia-mig-parted (version v1)."""
    if state:
        from smartmig.cli.plan import read_json
        from smartmig.control.wire import state_from_json
        from smartmig.hardware.model import gpu_model
        from smartmig.types import Placement

        seen = state_from_json(read_json(state, state), state)
        configs = {
            node.name: [
                (gpu_model(card.model), tuple(Placement(one.start, one.profile) for one in card.instances))
                for card in node.gpus
            ]
            for node in seen.nodes
            if node.gpus
        }
        if not configs:
            raise InputError(f"{state}: no node has MIG cards")
    else:
        models = parse_gpus(gpus)
        cuts = parse_layouts(layouts, models) if layouts else tuple(configurations(one)[0] for one in models)
        configs = {name: list(zip(models, cuts, strict=True))}
    text = config_text(configs)
    if out is None:
        print(text, end="")
        return
    prepare_place(out)
    with atomic_write(out) as file:
        file.write(text)
    log(f"{len(configs)} configs written to {out}")
