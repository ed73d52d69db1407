"""Arrays in a page: small in the file, fast to unpack in the browser (`static/page.js` has the other half)."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np


def pack_integers(values: Any) -> str:
    """Whole numbers from 0 to 2**32 - 1: differences, their low bytes first, then the next ones; deflated, base64.

    Neighbours in our tables differ little, so all but the low bytes are runs of one value.
    """
    numbers = np.asarray(values, dtype=np.int64)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= 1 << 32):
        raise ValueError(f"packed numbers are 0 to 2**32 - 1, got {numbers.min()} to {numbers.max()}")
    differences = np.diff(numbers, prepend=0).astype(np.uint32).astype("<u4")
    planes = differences.view(np.uint8).reshape(-1, 4).T
    return _deflated(np.ascontiguousarray(planes).tobytes())


def pack_texts(texts: Any) -> str:
    """Lines of text; a line break inside one becomes a space."""
    return _deflated("\n".join(str(text).replace("\n", " ") for text in texts).encode("utf-8"))


def _deflated(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 7)).decode("ascii")
