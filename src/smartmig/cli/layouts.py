"""`smartmig layouts MODEL`: how a card can be cut, drawn over its memory slices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from smartmig.cli import complete
from smartmig.hardware.layouts import (
    configurations,
    layout_text,
    maximal_sets,
    multiset,
    multisets,
    placement_sets,
    sizes,
)
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.types import Layout

_SLOT = 8
"""Characters between two walls: 8 slots and the numbers stay under 80 columns, and `1g.18gb` fits one slot."""

_COLOURS = {1: "cyan", 2: "green", 3: "yellow", 4: "magenta", 7: "blue"}

# Wall pieces by which of (up, down, left, right) a line leaves them; left and right always agree except at the ends.
_PIECES = {
    (False, False, True, True): "─",
    (False, True, True, True): "┬",
    (True, False, True, True): "┴",
    (True, True, True, True): "┼",
    (False, True, False, True): "┌",
    (True, False, False, True): "└",
    (True, True, False, True): "├",
    (False, True, True, False): "┐",
    (True, False, True, False): "┘",
    (True, True, True, False): "┤",
}


def layouts(
    model: Annotated[
        str,
        typer.Argument(
            help="GPU model, e.g. a100-40gb; `smartmig gpus` lists them.", autocompletion=complete.gpu_models
        ),
    ],
    show_all: Annotated[bool, typer.Option("--all", help="Draw every maximal placement set.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of a drawing.")] = False,
) -> None:
    """Draw the configurations of a GPU model, numbered as `--layouts` takes them."""
    card = gpu_model(model, "MODEL")
    if json_output:
        print(json.dumps(_as_json(card, show_all), indent=2))
        return
    console = Console(highlight=False)
    console.print(f"{card.title} ({card.id}): {card.n_compute} compute slices, {card.n_memory} memory slices")
    numbers = {multiset(card, layout): str(i) for i, layout in enumerate(configurations(card), start=1)}
    rows = maximal_sets(card) if show_all else configurations(card)
    for line in draw(card, [(numbers.get(multiset(card, layout), "-"), layout) for layout in rows]):
        # Plain walls where the output cannot hold the drawn ones.
        console.print(_ascii(line) if console.options.ascii_only else line, no_wrap=True, overflow="crop")
    if show_all:
        console.print("#: the configuration with the same instances; -: contained in a larger one")
    counts = _counts(card)
    console.print(
        f"{counts['valid']} valid placement sets, {counts['maximal']} maximal, {counts['multisets']} multisets, "
        f"{counts['configurations']} configurations",
        soft_wrap=True,
    )


def draw(model: GpuModel, rows: Sequence[tuple[str, Layout]]) -> list[Text]:
    """A table of memory slices with one box per instance; each row is (label, layout)."""
    header = Text("  #  ")
    header.append("".join(f"{slot:^{_SLOT + 1}d}" for slot in range(model.n_memory)).rstrip(), style="bold")
    lines = [header]
    above: set[int] = set()
    for label, layout in rows:
        walls = _walls(model, layout)
        lines.append(Text("    " + _rule(model.n_memory, above, walls)))
        lines.append(_boxes(model, label, layout))
        above = walls
    lines.append(Text("    " + _rule(model.n_memory, above, set())))
    return lines


def _walls(model: GpuModel, layout: Layout) -> set[int]:
    walls = {0, model.n_memory}
    for placement in layout:
        walls |= {placement.start, placement.start + model.profile(placement.profile).memory_slices}
    return walls


def _rule(n_memory: int, above: set[int], below: set[int]) -> str:
    def piece(slot: int) -> str:
        return _PIECES[slot in above, slot in below, slot > 0, slot < n_memory]

    return ("─" * _SLOT).join(piece(slot) for slot in range(n_memory + 1))


def _boxes(model: GpuModel, label: str, layout: Layout) -> Text:
    line = Text(f"{label:>3} │")
    slot = 0
    for placement in sorted(layout):
        profile = model.profile(placement.profile)
        if placement.start > slot:
            line.append(f"{'':{(placement.start - slot) * (_SLOT + 1) - 1}}│")
        width = profile.memory_slices * (_SLOT + 1) - 1
        line.append(f"{profile.name:^{width}}", style=_COLOURS[profile.compute])
        line.append("│")
        slot = placement.start + profile.memory_slices
    if slot < model.n_memory:
        line.append(f"{'':{(model.n_memory - slot) * (_SLOT + 1) - 1}}│")
    return line


def _ascii(line: Text) -> str:
    return line.plain.translate(str.maketrans("─│┌┬┐├┼┤└┴┘", "-|+++++++++"))


def _counts(model: GpuModel) -> dict[str, int]:
    return {
        "valid": len(placement_sets(model)),
        "maximal": len(maximal_sets(model)),
        "multisets": len(multisets(model)),
        "configurations": len(configurations(model)),
    }


def _as_json(model: GpuModel, show_all: bool) -> dict[str, object]:
    answer: dict[str, object] = {
        "model": model.id,
        "title": model.title,
        "counts": _counts(model),
        "configurations": [
            {"number": number, **_layout_json(model, layout)}
            for number, layout in enumerate(configurations(model), start=1)
        ],
        "power_curve": model.power.name,
        "power_w": list(model.power.watts),
        "power_source": model.power.source,
        "estimated": model.power.estimated,
    }
    if show_all:
        answer["maximal"] = [_layout_json(model, layout) for layout in maximal_sets(model)]
    return answer


def _layout_json(model: GpuModel, layout: Layout) -> dict[str, object]:
    return {
        "cut": layout_text(model, layout),
        "sizes": list(sizes(model, layout)),
        "placements": [
            {"start": start, "size": model.profile(name).memory_slices, "profile": name} for start, name in layout
        ],
    }
