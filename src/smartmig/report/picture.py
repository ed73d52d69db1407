"""The slice timeline as pixels: what a reader sees before zooming in, however many jobs the day has."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from smartmig.types import Floats, Segments

SHADES = 10
"""Steps of opacity; more would only make the file larger."""


def paint_slices(
    segments: Segments,
    late: NDArray[np.bool_],
    memory_slices: Sequence[int],
    edges_s: Floats,
    colours: tuple[str, str],
    rows_per_slice: int,
) -> str:
    """Every slice of every GPU as a PNG data address.

    One column per bin, `rows_per_slice` rows per memory slice and one slice of air below each GPU. A pixel takes the
    colour (on time, late) of most of its bin and is as opaque as the bin is busy, so shrinking it stays honest.
    `segments` are sorted by GPU, `late` is per segment.
    """
    width = edges_s.size - 1
    image = np.zeros(((sum(memory_slices) + len(memory_slices)) * rows_per_slice, width), dtype=np.uint8)
    for top, n_slices, here in _bands(segments, memory_slices):
        mine, my_late = _rows(segments, here), late[here]
        for row in range(n_slices):
            covers = (mine.start <= row) & (mine.start + mine.span > row)
            goes_on = covers & (mine.start + mine.span > row + 1)
            low = (top + row + 1) * rows_per_slice - 1
            image[(top + row) * rows_per_slice : low] = _levels(*_covered(mine, my_late, covers, edges_s))
            # The last pixel row of an instance stays empty: the line between two slices.
            image[low] = _levels(*_covered(mine, my_late, goes_on, edges_s))
    return _address(image, colours)


def paint_gpus(
    segments: Segments,
    late: NDArray[np.bool_],
    memory_slices: Sequence[int],
    n_compute: Sequence[int],
    edges_s: Floats,
    colours: tuple[str, str],
) -> str:
    """The same with one shade for a whole GPU, its busy share, where single slices would be less than a pixel."""
    image = np.zeros((sum(memory_slices) + len(memory_slices), edges_s.size - 1), dtype=np.uint8)
    for gpu, (top, n_slices, here) in enumerate(_bands(segments, memory_slices)):
        mine, my_late = _rows(segments, here), late[here]
        busy = [np.zeros(edges_s.size - 1) for _ in range(2)]
        for size in np.unique(mine.size).tolist():
            for start in np.unique(mine.start[mine.size == size]).tolist():
                chosen = (mine.size == size) & (mine.start == start)
                for total, share in zip(busy, _covered(mine, my_late, chosen, edges_s), strict=True):
                    total += share * size / n_compute[gpu]
        image[top : top + n_slices] = _levels(*busy)
    return _address(image, colours)


def _bands(segments: Segments, memory_slices: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """(first row, memory slices, which segments) of each GPU."""
    first = np.searchsorted(segments.gpu, np.arange(len(memory_slices) + 1))
    top = 0
    for gpu, n_slices in enumerate(memory_slices):
        yield top, n_slices, slice(int(first[gpu]), int(first[gpu + 1]))
        top += n_slices + 1


def _rows(segments: Segments, here: slice) -> Segments:
    return Segments(**{name: column[here] for name, column in vars(segments).items()})


def _covered(
    segments: Segments, late: NDArray[np.bool_], mask: NDArray[np.bool_], edges_s: Floats
) -> tuple[Floats, Floats]:
    """(width,) share of each bin with a job that ends on time, and with a late one. Chosen stretches do not overlap."""
    shares: list[Floats] = []
    for chosen in (mask & ~late, mask & late):
        order = np.argsort(segments.from_s[chosen], kind="stable")
        from_s, to_s = segments.from_s[chosen][order], segments.to_s[chosen][order]
        if order.size == 0:
            shares.append(np.zeros(edges_s.size - 1))
            continue
        busy_s = np.concatenate([[0.0], np.repeat(np.cumsum(to_s - from_s), 2)[:-1]])
        at_s = np.column_stack([from_s, to_s]).ravel()
        shares.append(np.diff(np.interp(edges_s, at_s, busy_s)) / np.diff(edges_s))
    return shares[0], shares[1]


def _levels(on_time: Floats, late: Floats) -> NDArray[np.uint8]:
    """(width,) palette indices: 0 empty, 1..SHADES on time, SHADES+1..2*SHADES late."""
    level = np.ceil(np.clip(on_time + late, 0.0, 1.0) * SHADES - 1e-6).astype(np.uint8)
    shades: NDArray[np.uint8] = np.where((late > on_time) & (level > 0), level + SHADES, level).astype(np.uint8)
    return shades


def _address(image: NDArray[np.uint8], colours: tuple[str, str]) -> str:
    return f"data:image/png;base64,{base64.b64encode(_png(image, colours)).decode('ascii')}"


def _png(image: NDArray[np.uint8], colours: tuple[str, str]) -> bytes:
    height, width = image.shape
    rgb = bytes(3) + b"".join(bytes.fromhex(colour.lstrip("#")) * SHADES for colour in colours)
    alpha = bytes([0] + [round(255 * (level + 1) / SHADES) for level in range(SHADES)] * 2)
    # Each row as its difference to the one above (filter 2): most rows repeat, and zeros cost nothing.
    rows = np.empty((height, width + 1), dtype=np.uint8)
    rows[:, 0] = 2
    rows[:, 1:] = image
    rows[1:, 1:] -= image[:-1]
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", rgb), (b"tRNS", alpha), (b"IDAT", zlib.compress(rows.tobytes(), 9)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in (*chunks, (b"IEND", b"")))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
