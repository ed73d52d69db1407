"""GPUs in Slurm's strings of trackable resources, such as `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1`."""

from __future__ import annotations

import math

_GPU = "gres/gpu"


def gpu_count(tres: str) -> float:
    """The GPUs of a string, of all types together; nan when a count is no whole number."""
    counts = _counts(tres)
    if not all(count.isascii() and count.isdecimal() for count in counts.values()):
        return math.nan
    # Typed counts stand beside their sum, or alone where a site tracks only them.
    total = counts.pop("", None)
    return float(total) if total is not None else float(sum(map(int, counts.values())))


def gpu_models(tres: str) -> str:
    """The GPU types of a string, joined by `|`; empty when none is named."""
    return "|".join(sorted(model for model in _counts(tres) if model))


def _counts(tres: str) -> dict[str, str]:
    """GPU type (empty for all together) -> count."""
    counts = {}
    for part in tres.split(","):
        name, _, count = part.strip().partition("=")
        if name == _GPU or name.startswith(f"{_GPU}:"):
            counts[name.removeprefix(_GPU).removeprefix(":")] = count
    return counts
