"""A cluster written on the command line: which GPUs there are and how each is cut."""

from __future__ import annotations

import re
from collections.abc import Sequence

from smartmig.errors import InputError, UnknownName
from smartmig.hardware.layouts import configurations, solve_cut, split_cut
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.types import Layout

MAX_GPUS = 100_000
"""Beyond any real cluster: a larger number is a slip of the keyboard, not a wish."""

_REPEAT = re.compile(r"([+-]?[0-9]+)\s*[x*]\s*(.+)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def parse_gpus(text: str, where: str = "--gpus") -> tuple[GpuModel, ...]:
    """`4xa100-40gb,4xh200-141gb` -> eight models in that order; `@s1` picks a power curve.

    Raises `InputError` for an empty list, counts below 1, or more than MAX_GPUS; `UnknownName` for a card.
    """
    gpus: list[GpuModel] = []
    for position, entry in enumerate(_entries(text, "'8xa100-40gb'", where), start=1):
        at = f"{where}: entry {position} '{_short(entry)}'"
        count, name = _repeat(entry, at)
        if len(gpus) + count > MAX_GPUS:
            raise InputError(f"{at}: more than {MAX_GPUS} GPUs in all; the limit is {MAX_GPUS}.")
        gpus.extend([gpu_model(name, where)] * count)
    return tuple(gpus)


def parse_layouts(text: str, gpus: Sequence[GpuModel], where: str = "--layouts") -> tuple[Layout, ...]:
    """`1,2x3,4g+2g+1g` -> the layout of each GPU in order.

    An entry is a configuration number of that GPU's model (from 1), a cut of profile keys or names joined by `+`, or
    `empty`; `3x10` stands for `10,10,10`. Raises `InputError` with the entry's position.
    """
    layouts: list[Layout] = []
    for position, entry in enumerate(_entries(text, "'1,2,4g+2g+1g'", where), start=1):
        at = f"{where}: entry {position} '{_short(entry)}'"
        count, cut = _repeat(entry, at)
        if len(layouts) + count > len(gpus):
            raise InputError(f"{at}: layouts for more GPUs than the {len(gpus)} given; write one per GPU.")
        for model in gpus[len(layouts) : len(layouts) + count]:
            layouts.append(parse_layout(model, cut, at))
    if len(layouts) != len(gpus):
        raise InputError(
            f"{where}: {len(layouts)} layouts for {len(gpus)} GPUs; write one per GPU ('{len(gpus)}x1' repeats one)."
        )
    return tuple(layouts)


def parse_layout(model: GpuModel, cut: str, at: str) -> Layout:
    if _NUMBER.fullmatch(cut):
        known = configurations(model)
        # Compared as text first: Python refuses to convert numbers of thousands of digits.
        if not re.fullmatch(r"0*[1-9][0-9]{0,3}", cut) or int(cut) > len(known):
            raise InputError(f"{at}: no configuration {_short(cut)} on {model.id}; allowed: 1 to {len(known)}.")
        return known[int(cut) - 1]
    try:
        return solve_cut(model, split_cut(cut), at)
    except UnknownName as error:
        raise InputError(f"{at}: {error}") from None


def _entries(text: str, example: str, where: str) -> list[str]:
    entries = [entry.strip() for entry in text.split(",")]
    if entries == [""]:
        raise InputError(f"{where}: empty list; write for example {example}.")
    for position, entry in enumerate(entries, start=1):
        if not entry:
            raise InputError(f"{where}: entry {position} is empty; write for example {example}.")
    return entries


def _repeat(entry: str, at: str) -> tuple[int, str]:
    match = _REPEAT.fullmatch(entry)
    if match is None:
        return 1, entry
    digits, rest = match[1], match[2].strip()
    if not re.fullmatch(r"\+?0*[1-9][0-9]*", digits):
        raise InputError(f"{at}: a count of {_short(digits)}; it must be at least 1.")
    # Anything this long is past every limit; int() itself refuses thousands of digits.
    significant = digits.lstrip("+0")
    return (int(significant) if len(significant) <= 9 else 10**9), rest


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
