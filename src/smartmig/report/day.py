"""The arithmetic behind the pictures of one day: stretches, power, queue, and the timeline as pixels."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smartmig.report.comparison import SampleDay
from smartmig.types import Floats, Segments

MERGE_GAP_S = 1.0
"""A job that leaves its slice for less than this is drawn as if it had stayed."""

MAX_POINTS = 288
"""Of a line over time: a day at one point in five minutes. Finer steps only show noise between neighbours."""

SHADES = 10
"""Steps of opacity in the pixel timeline; more would only make the file larger."""


def segments_of(sample: SampleDay) -> Segments:
    if sample.run.segments is None:
        raise ValueError(f"{sample.policy}: no segments recorded")
    return sample.run.segments


def merge_segments(segments: Segments, gap_s: float = MERGE_GAP_S) -> Segments:
    """Join neighbours of one job on one instance that are less than `gap_s` apart; sorted by GPU, start and time."""
    order = np.lexsort((segments.from_s, segments.start, segments.gpu))
    if order.size == 0:
        return segments
    job, gpu, start, size, span = (
        column[order] for column in (segments.job, segments.gpu, segments.start, segments.size, segments.span)
    )
    from_s, to_s = segments.from_s[order], segments.to_s[order]
    joined = np.zeros(order.size, dtype=bool)
    joined[1:] = from_s[1:] - to_s[:-1] < gap_s
    for column in (job, gpu, start, size, span):
        joined[1:] &= column[1:] == column[:-1]
    first = np.flatnonzero(~joined)
    return Segments(
        job=job[first],
        gpu=gpu[first],
        start=start[first],
        size=size[first],
        span=span[first],
        from_s=from_s[first],
        to_s=np.maximum.reduceat(to_s, first),
    )


def time_grid(end_s: float, max_points: int = MAX_POINTS) -> Floats:
    """Edges of at most `max_points` equal bins from 0 to `end_s`, none shorter than a second."""
    n_bins = max(1, min(max_points, int(np.ceil(end_s))))
    return np.linspace(0.0, max(end_s, 1e-9), n_bins + 1)


def mean_power_w(sample: SampleDay, edges_s: Floats) -> Floats:
    """(n_bins,) mean power of all GPUs in each bin: its sum over bins times their length is the energy."""
    segments = segments_of(sample)
    total = np.zeros(edges_s.size - 1)
    for gpu, curve in enumerate(sample.watts):
        here = segments.gpu == gpu
        size = segments.size[here]
        at_s, busy = _steps(segments.from_s[here], size, segments.to_s[here], size, edges_s[0])
        # Between two changes at the same instant the count may leave the curve; that stretch has no length.
        total += _bin_means(at_s, np.asarray(curve)[np.clip(busy, 0, len(curve) - 1)], edges_s)
    return total


def mean_waiting(sample: SampleDay, edges_s: Floats) -> Floats:
    """(n_bins,) mean number of jobs that have arrived, are not done and hold no slice."""
    segments = segments_of(sample)
    one = np.ones(segments.job.size, dtype=np.int64)
    each = np.ones(len(sample.jobs), dtype=np.int64)
    present = _bin_means(*_steps(sample.jobs.arrive_s, each, sample.run.finish_s, each, edges_s[0]), edges_s)
    running = _bin_means(*_steps(segments.from_s, one, segments.to_s, one, edges_s[0]), edges_s)
    return np.maximum(present - running, 0.0)


def _steps(
    up_s: Floats, up: NDArray[np.int64], down_s: Floats, down: NDArray[np.int64], begin_s: float
) -> tuple[Floats, NDArray[np.int64]]:
    """When a count changes, and to what."""
    at_s = np.concatenate([[begin_s], up_s, down_s])
    change = np.concatenate([[0], up, -down])
    order = np.argsort(at_s, kind="stable")
    return at_s[order], np.cumsum(change[order])


def _bin_means(at_s: Floats, value: NDArray[np.int64] | Floats, edges_s: Floats) -> Floats:
    """Means of a step function that takes `value[i]` from `at_s[i]` on, exact over each bin."""
    until_s = np.append(at_s[1:], max(at_s[-1], edges_s[-1]))
    area = np.concatenate([[0.0], np.cumsum(value * (until_s - at_s))])
    means: Floats = np.diff(np.interp(edges_s, np.append(at_s, until_s[-1]), area)) / np.diff(edges_s)
    return means


def paint(
    segments: Segments,
    late: NDArray[np.bool_],
    memory_slices: Sequence[int],
    edges_s: Floats,
    colours: tuple[str, str],
    rows_per_slice: int,
) -> str:
    """The timeline as a PNG data address, for days with more stretches than a browser draws in time.

    One column per bin, `rows_per_slice` rows per memory slice and one slice of air below each GPU. A pixel takes the
    colour (on time, late) of most of its bin and is as opaque as the bin is busy, so shrinking it stays honest.
    `late` is per segment.
    """
    width = edges_s.size - 1
    image = np.zeros(((sum(memory_slices) + len(memory_slices)) * rows_per_slice, width), dtype=np.uint8)
    top = 0
    for gpu, n_slices in enumerate(memory_slices):
        on_gpu = segments.gpu == gpu
        for row in range(n_slices):
            covers = on_gpu & (segments.start <= row) & (segments.start + segments.span > row)
            goes_on = covers & (segments.start + segments.span > row + 1)
            low = (top + row + 1) * rows_per_slice - 1
            image[(top + row) * rows_per_slice : low] = _shade(segments, late, covers, edges_s)
            # The last pixel row of an instance stays empty: the line between two slices.
            image[low] = _shade(segments, late, goes_on, edges_s)
        top += n_slices + 1
    return f"data:image/png;base64,{base64.b64encode(_png(image, colours)).decode('ascii')}"


def _shade(segments: Segments, late: NDArray[np.bool_], mask: NDArray[np.bool_], edges_s: Floats) -> NDArray[np.uint8]:
    """(width,) palette indices: 0 empty, 1..SHADES on time, SHADES+1..2*SHADES late."""
    covered = []
    for chosen in (mask & ~late, mask & late):
        order = np.argsort(segments.from_s[chosen], kind="stable")
        from_s, to_s = segments.from_s[chosen][order], segments.to_s[chosen][order]
        if order.size == 0:
            covered.append(np.zeros(edges_s.size - 1))
            continue
        busy_s = np.concatenate([[0.0], np.repeat(np.cumsum(to_s - from_s), 2)[:-1]])
        at_s = np.column_stack([from_s, to_s]).ravel()
        covered.append(np.diff(np.interp(edges_s, at_s, busy_s)) / np.diff(edges_s))
    on_time, late_share = covered
    level = np.ceil(np.clip(on_time + late_share, 0.0, 1.0) * SHADES - 1e-6).astype(np.uint8)
    shades: NDArray[np.uint8] = np.where((late_share > on_time) & (level > 0), level + SHADES, level).astype(np.uint8)
    return shades


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
