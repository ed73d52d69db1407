"""One GPU model: its profiles, power curve, speed and re-cut times, read from its data file.

First stage of the flow: everything else asks `gpu_model("a100-40gb")` and gets a frozen value back. A card is data
only, one TOML file under `data/`; `docs/hardware.md` lists its fields.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from smartmig.errors import UnknownName
from smartmig.types import SLICE_SIZES

ALIASES: Mapping[str, str] = {"a30": "a30-24gb", "gh200": "gh200-96gb", "b200": "b200-180gb"}
"""Short names of the cards that need no memory size to be told apart, or have a usual one."""


@dataclass(frozen=True)
class Profile:
    """One kind of MIG instance a card offers."""

    name: str
    """NVIDIA's name, e.g. `3g.20gb`"""
    compute: int
    """compute slices"""
    memory_slices: int
    """memory slices it covers, counted from its start"""
    memory_gb: float
    """memory as the name counts it"""
    max_count: int
    """most instances of this profile on one card"""
    starts: tuple[int, ...]
    """memory slices it may begin at"""
    sm_count: int | None
    """streaming multiprocessors; None when no listing was found"""
    media: bool
    """has the media engines (`+me`); a card gives them to one instance at most"""
    key: str = ""
    """short name on its card: `3g`, `1g+me`, or the full name for the double-memory `1g.10gb`"""


@dataclass(frozen=True)
class PowerCurve:
    """Watts of the whole card by busy compute slices."""

    name: str
    """`s3`, `s1`: papers; `measured`: a real card; `scaled`: shape of another card between idle and TDP"""
    watts: tuple[float, ...]
    """(n_compute + 1,) at 0..n busy slices; never falls, and steps shrink (but see `s3` in docs/hardware.md)"""
    source: str
    estimated: bool


@dataclass(frozen=True)
class GpuModel:
    """A card. Two models are equal when they have the same id, profiles and power curve."""

    id: str
    title: str
    """NVIDIA's name"""
    memory_gb: float
    n_compute: int
    """compute slices"""
    n_memory: int
    """memory slices"""
    profiles: tuple[Profile, ...]
    power: PowerCurve
    """the selected curve"""
    speed: tuple[float, ...] = field(compare=False)
    """speed of an instance of each of SLICE_SIZES against an A100-40GB's of that size; nan = no such size"""
    create_s: Mapping[int, float] = field(compare=False)
    """seconds to create an instance, by compute slices"""
    destroy_s: Mapping[int, float] = field(compare=False)
    """seconds to destroy one"""
    sources: tuple[str, ...] = field(compare=False)
    """where each group of numbers comes from, one sentence each"""

    def profile(self, name: str) -> Profile:
        """The profile with this full name or key, in any letter case; `UnknownName` lists the card's own."""
        wanted = name.strip().lower()
        for profile in self.profiles:
            if wanted == profile.name or wanted == profile.key:
                return profile
        raise UnknownName("MIG profile", name, _both_names(self.profiles), self.id)


@cache
def gpu_model_ids() -> tuple[str, ...]:
    """Ids of every card with a data file, sorted."""
    files = resources.files("smartmig.hardware").joinpath("data").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def gpu_model(model_id: str, where: str = "") -> GpuModel:
    """The card `a100-40gb`, or `a100-40gb@s1` with another of its power curves; letter case does not matter.

    Raises `UnknownName` for an unknown card or curve. The same id gives the same object.
    """
    card, at, curve = model_id.strip().lower().partition("@")
    card = ALIASES.get(card, card)
    if card not in gpu_model_ids():
        raise UnknownName("GPU", model_id, gpu_model_ids(), where)
    curves = tuple(entry["name"] for entry in read_card(card)["power"]["curves"])
    if at and curve not in curves:
        raise UnknownName(f"power curve of {card}", curve, curves, where)
    return _build(card, curve or read_card(card)["power"]["default"])


@cache
def read_card(card: str) -> dict[str, Any]:
    """The data file of a card as TOML tables; treat as read-only."""
    text = resources.files("smartmig.hardware").joinpath("data", f"{card}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _build(card: str, curve: str) -> GpuModel:
    raw = read_card(card)
    chosen = next(entry for entry in raw["power"]["curves"] if entry["name"] == curve)
    speed = {int(size): float(value) for size, value in raw["speed"]["values"].items()}
    groups = {name: raw[name] for name in ("profiles", "board", "speed", "times")} | {"power": chosen}
    return GpuModel(
        id=raw["id"],
        title=raw["title"],
        memory_gb=float(raw["memory_gb"]),
        n_compute=raw["n_compute"],
        n_memory=raw["n_memory"],
        profiles=_profiles(raw["profiles"]["list"]),
        power=PowerCurve(curve, tuple(float(w) for w in chosen["watts"]), chosen["source"], chosen["estimated"]),
        speed=tuple(speed.get(size, math.nan) for size in SLICE_SIZES),
        create_s={int(size): float(value) for size, value in raw["times"]["create_s"].items()},
        destroy_s={int(size): float(value) for size, value in raw["times"]["destroy_s"].items()},
        sources=tuple(
            f"{name}{' (estimated)' if group['estimated'] else ''}: {group['source']}" for name, group in groups.items()
        ),
    )


def _profiles(rows: Sequence[Mapping[str, Any]]) -> tuple[Profile, ...]:
    # The plain key belongs to the smallest profile of that compute size, so "1g" never means the double-memory one.
    least: dict[tuple[int, bool], int] = {}
    for row in rows:
        kind = (row["compute"], row.get("media", False))
        least[kind] = min(least.get(kind, row["memory_slices"]), row["memory_slices"])
    profiles = []
    for row in rows:
        media = row.get("media", False)
        plain = row["memory_slices"] == least[row["compute"], media]
        name = row["name"]
        profiles.append(
            Profile(
                name=name,
                compute=row["compute"],
                memory_slices=row["memory_slices"],
                memory_gb=float(_gigabytes(name)),
                max_count=row["max_count"],
                starts=tuple(row["starts"]),
                sm_count=row.get("sm_count"),
                media=media,
                key=f"{row['compute']}g{'+me' if media else ''}" if plain else name,
            )
        )
    return tuple(profiles)


def _gigabytes(name: str) -> int:
    match = re.fullmatch(r"\d+g\.(\d+)gb(\+me)?", name)
    if match is None:
        raise ValueError(f"'{name}' is not a MIG profile name like 3g.20gb")
    return int(match[1])


def _both_names(profiles: Sequence[Profile]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for profile in profiles for name in (profile.key, profile.name)))
