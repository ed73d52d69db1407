"""`smartmig gpus`: the GPU models there is data for."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import GpuModel, PowerCurve, gpu_model, gpu_model_ids


def gpus(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the GPU models: slices, configurations, power and where the power numbers come from."""
    models = [gpu_model(model_id) for model_id in gpu_model_ids()]
    if json_output:
        print(json.dumps([_as_json(model) for model in models], indent=2))
        return
    table = Table(caption="slices: compute/memory; SMs: of the whole-card instance", caption_justify="left")
    table.add_column("id", no_wrap=True)
    table.add_column("GB", justify="right")
    table.add_column("slices", justify="right")
    table.add_column("SMs", justify="right")
    table.add_column("configs", justify="right")
    table.add_column("idle W", justify="right")
    table.add_column("full W", justify="right")
    table.add_column("power")
    for model in models:
        n_sms = _n_sms(model)
        table.add_row(
            model.id,
            f"{model.memory_gb:g}",
            f"{model.n_compute}/{model.n_memory}",
            "?" if n_sms is None else str(n_sms),
            str(len(configurations(model))),
            f"{model.power.watts[0]:.4g}",
            f"{model.power.watts[-1]:.4g}",
            power_label(model.power),
        )
    Console().print(table)


def power_label(power: PowerCurve) -> str:
    """One word for how far to trust a curve."""
    if power.estimated:
        return "estimated"
    return "measured" if power.name == "measured" else "published"


def _n_sms(model: GpuModel) -> int | None:
    return max(model.profiles, key=lambda profile: profile.compute).sm_count


def _as_json(model: GpuModel) -> dict[str, object]:
    return {
        "id": model.id,
        "title": model.title,
        "memory_gb": model.memory_gb,
        "compute_slices": model.n_compute,
        "memory_slices": model.n_memory,
        "sms": _n_sms(model),
        "n_configurations": len(configurations(model)),
        "profiles": [profile.name for profile in model.profiles],
        "power_curve": model.power.name,
        "power_w": list(model.power.watts),
        "power_label": power_label(model.power),
        "estimated": model.power.estimated,
        "sources": list(model.sources),
    }
