"""A file as lines: its bytes, where its lines and their separators are, and which lines cannot be read.

The first half of reading a table (`workload/table.py`), with whole-array operations only.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smartmig.errors import InputError
from smartmig.types import Ints

Bytes = NDArray[np.uint8]

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_START_BYTES = 65536
LONGEST_CELL = 256
LONGEST_CELL_BYTES = 4 * LONGEST_CELL
_NEWLINE, _TAB, _BLANK, QUOTE = b'\n\t "'


def read_bytes(path: Path) -> bytes:
    """The whole file with `\\n` as line end; gzip is recognised by its content, `-` is standard input."""
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error
    if raw.startswith(_GZIP_MAGIC):
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: damaged gzip file: {error}") from error
    raw = raw.removeprefix(_BOM)
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return raw


def read_start(path: Path) -> str:
    """The first lines, without reading the rest."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP_MAGIC
            stream.seek(0)
            source = gzip.GzipFile(fileobj=stream) if packed else stream
            start = source.read(_START_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot read: {error}") from error
    return start.decode("utf-8-sig", errors="replace").lstrip("\r\n")


class Lines(NamedTuple):
    """The lines of a file that are neither empty nor comments, and where their separators are."""

    data: Bytes
    number: Ints
    """(n,) counted from 1"""
    start: Ints
    stop: Ints
    separators: Ints
    """of all lines, one after the other"""
    n_separators: Ints
    """(n,)"""
    faults: dict[str, Ints]
    """reason -> numbers of lines that cannot be cut into cells"""
    comments: tuple[str, ...]

    def first(self, path: Path) -> str:
        for reason, numbers in self.faults.items():
            if self.number[0] in numbers:
                raise InputError(f"{path}:{self.number[0]}: {reason}")
        return self.data[self.start[0] : self.stop[0]].tobytes().decode()

    def rest(self) -> Lines:
        return self._replace(
            number=self.number[1:],
            start=self.start[1:],
            stop=self.stop[1:],
            separators=self.separators[self.n_separators[0] :],
            n_separators=self.n_separators[1:],
        )


def lines_of(raw: bytes, separator: str, comment: str = "") -> Lines:
    if not raw.endswith(b"\n"):
        raw += b"\n"
    data = np.frombuffer(raw + bytes(LONGEST_CELL_BYTES), np.uint8)
    stop = np.flatnonzero(data == _NEWLINE)
    faults = _unreadable(raw)
    if separator == " ":
        start, separators, n_separators = _between_blanks(data[: len(raw)], stop)
    else:
        start = np.concatenate((np.zeros(1, dtype=np.int64), stop[:-1] + 1))
        is_separator = data == ord(separator)
        if separator == "," and b'"' in raw:
            inside, stray = _quotes(data, is_separator, start, stop)
            is_separator &= ~inside
            faults["not a CSV: a quote is not closed, or stands inside a cell"] = stray
        separators = np.flatnonzero(is_separator)
        n_separators = np.diff(np.searchsorted(separators, stop), prepend=0)
    filled = stop > start
    comments: tuple[str, ...] = ()
    if comment:
        is_comment = filled & (data[start] == ord(comment))
        filled &= ~is_comment
        comments = tuple(
            raw[start[at] : stop[at]].decode(errors="replace") for at in np.flatnonzero(is_comment).tolist()
        )
    if not filled.all():
        separators = separators[np.repeat(filled, n_separators)]
    number = np.flatnonzero(filled) + 1
    return Lines(data, number, start[filled], stop[filled], separators, n_separators[filled], faults, comments)


def _unreadable(raw: bytes) -> dict[str, Ints]:
    """reason -> numbers of the lines that are no text."""
    try:
        raw.decode()
        if b"\0" not in raw:
            return {}
    except UnicodeDecodeError:
        pass
    found: dict[str, list[int]] = {}
    for number, line in enumerate(raw.split(b"\n"), start=1):
        try:
            line.decode()
            if b"\0" in line:
                found.setdefault("holds a NUL character; a table is plain text", []).append(number)
        except UnicodeDecodeError as error:
            found.setdefault(f"not UTF-8 text (byte 0x{line[error.start]:02x})", []).append(number)
    return {reason: np.array(numbers) for reason, numbers in found.items()}


def _quotes(data: Bytes, is_separator: np.ndarray, start: Ints, stop: Ints) -> tuple[np.ndarray, Ints]:
    """Which bytes stand inside quotes, and the numbers of the lines whose quotes are in disorder.

    A cell in quotes begins and ends with one, and holds others doubled; a line begins outside of quotes.
    """
    is_quote = data == QUOTE
    n_quotes = np.cumsum(is_quote, dtype=np.uint8)  # may wrap around: only odd or even counts
    before = np.where(start > 0, n_quotes[start - 1], 0)
    inside = np.zeros(data.size, dtype=bool)
    inside[: stop[-1] + 1] = (n_quotes[: stop[-1] + 1] - np.repeat(before, stop - start + 1)) & 1
    at = np.flatnonzero(is_quote)
    previous, following = np.maximum(at - 1, 0), at + 1
    opens = inside[at]
    at_edge = np.where(
        opens,
        is_separator[previous] | (data[previous] == _NEWLINE) | (at == 0),
        is_separator[following] | (data[following] == _NEWLINE),
    )
    doubled = np.where(opens, is_quote[previous] & (at > 0), is_quote[following])
    stray = np.searchsorted(stop, at[~(at_edge | doubled)]) + 1
    return inside, np.union1d(stray, np.flatnonzero(inside[stop]) + 1)


def _between_blanks(data: Bytes, stop: Ints) -> tuple[Ints, Ints, Ints]:
    """For cells between blanks: the starts of the lines, the byte before each further cell, and how many of these."""
    is_letter = (data != _NEWLINE) & (data != _BLANK) & (data != _TAB)
    begins = is_letter.copy()
    begins[1:] &= ~is_letter[:-1]
    cells = np.flatnonzero(begins)
    n_before = np.searchsorted(cells, stop)
    n_cells = np.diff(n_before, prepend=0)
    first = (n_before - n_cells)[n_cells > 0]
    start = stop.copy()
    start[n_cells > 0] = cells[first]
    return start, np.delete(cells, first) - 1, np.maximum(n_cells - 1, 0)
