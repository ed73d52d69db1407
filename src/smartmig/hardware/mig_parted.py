"""Layouts as NVIDIA's mig-parted writes them, and back.

    version: v1
    mig-configs:
      NAME:
        - devices: [0, 1]          # or "all"
          mig-enabled: true
          mig-devices: {"1g.5gb": 7}

(github.com/NVIDIA/mig-parted, api/spec/v1.) The format counts instances and cannot say where they lie: keep positions
in a state of your own, or let `solve_cut` find some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from smartmig.errors import InputError
from smartmig.hardware.layouts import check_layout, multiset, solve_cut
from smartmig.hardware.model import GpuModel
from smartmig.types import Layout

Cards = Sequence[tuple[GpuModel, Layout]]
"""cards of one machine by index, each with its cut"""


def config_text(configs: Mapping[str, Cards]) -> str:
    """The YAML of these machines. Raises `InputError` for a layout that its card does not allow."""
    tree = {"version": "v1", "mig-configs": {name: _devices(name, cards) for name, cards in configs.items()}}
    return yaml.safe_dump(tree, sort_keys=False, default_flow_style=False)


def _devices(name: str, cards: Cards) -> list[dict[str, Any]]:
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, (model, layout) in enumerate(cards):
        check_layout(model, layout, f"{name}: GPU {index}")
        groups.setdefault(tuple(Counter(multiset(model, layout)).items()), []).append(index)
    return [
        {"devices": devices, "mig-enabled": True, "mig-devices": dict(counts)} for counts, devices in groups.items()
    ]


def read_config(text: str, models: Sequence[GpuModel], name: str) -> tuple[Layout, ...]:
    """The layouts of a config for these cards, positions solved. Raises `InputError` for what is not that format."""
    tree = yaml.safe_load(text)
    if not isinstance(tree, dict) or tree.get("version") != "v1" or not isinstance(tree.get("mig-configs"), dict):
        raise InputError("not a mig-parted file: it begins with 'version: v1' and has 'mig-configs'")
    if set(tree) != {"version", "mig-configs"} or name not in tree["mig-configs"]:
        raise InputError(
            f"mig-parted file: no config '{name}' or unknown keys; it has {', '.join(tree['mig-configs'])}"
        )
    layouts: list[Layout] = [()] * len(models)
    for entry in tree["mig-configs"][name]:
        if not set(entry) <= {"devices", "device-filter", "mig-enabled", "mig-devices"}:
            raise InputError(f"mig-parted config '{name}': unknown keys in {sorted(entry)}")
        devices = range(len(models)) if entry["devices"] == "all" else entry["devices"]
        for index in devices:
            if not 0 <= index < len(models):
                raise InputError(f"mig-parted config '{name}': no device {index}; there are {len(models)}")
            names = [profile for profile, count in entry.get("mig-devices", {}).items() for _ in range(count)]
            layouts[index] = solve_cut(models[index], names, f"{name}: GPU {index}") if entry["mig-enabled"] else ()
    return tuple(layouts)
