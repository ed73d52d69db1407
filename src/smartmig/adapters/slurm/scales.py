"""Slurm's words for numbers, sizes and times."""

from __future__ import annotations

import re
from datetime import datetime

_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


def count(value: str) -> int:
    """`N/A` for what Slurm does not know any more."""
    return int(value) if value.isdigit() else 0


def text(value: str) -> str:
    """What stands in a column of single bytes."""
    return "" if value in ("(null)", "N/A") else value.encode("latin-1", "replace").decode(errors="replace")


def seconds(value: str) -> int:
    try:
        return int(datetime.fromisoformat(f"{value}+00:00").timestamp())
    except ValueError:
        return 0


def minutes(value: str) -> int | None:
    """`2-03:04:05`, `10:00`, `UNLIMITED`."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", value)
    if found is None:
        return None
    days, hours, rest, odd = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + rest + (odd > 0)


def megabytes(value: str) -> int:
    found = re.fullmatch(r"([0-9.]+)([KMGT]?)", value)
    return int(float(found[1]) * _MEGABYTES[found[2] or "M"]) if found else 0
