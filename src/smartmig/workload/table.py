"""CSV files read as columns, fast, with every mistake as one sentence that names file and line.

The rows go through the csv module once and whole columns are converted at once; only when that fails is the file
looked through again for the line to blame.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smartmig.errors import InputError, UnknownName
from smartmig.types import Floats

_GZIP_MAGIC = b"\x1f\x8b"
_LINE_BREAK = re.compile(r"[\r\n]")
_LONGEST_CELL = 256
_LARGEST = 1e15
"""Beyond any time or memory; keeps sums and products of the columns finite."""
_CHUNK_ROWS = 4096
_HEADER_BYTES = 65536


def read_text(path: Path) -> str:
    """The whole file as text; gzip is recognised by its content, `-` is standard input."""
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
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text (byte 0x{raw[error.start]:02x})") from error
    nul = text.find("\0")
    if nul >= 0:
        line = text.count("\n", 0, nul) + 1
        raise InputError(f"{path}:{line}: holds a NUL character; a CSV is plain text")
    return text


def read_header(path: Path) -> list[str]:
    """The column names of the first line, without reading the rest; empty for an empty file."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP_MAGIC
            stream.seek(0)
            source = gzip.GzipFile(fileobj=stream) if packed else stream
            start = source.read(_HEADER_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot read: {error}") from error
    first = start.decode("utf-8-sig", errors="replace").lstrip("\r\n").splitlines()[:1]
    return [name.strip() for name in next(csv.reader(first), [])]


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of text; `row` counts data rows from 0."""

    path: Path
    columns: dict[str, Sequence[str]]
    n_rows: int
    _text: str

    @staticmethod
    def read(path: Path, required: Sequence[str], optional: Sequence[str] | None = ()) -> Table:
        """Read a CSV that has the `required` columns, in any order.

        Other columns are refused unless `optional` names them; `optional=None` allows any. Raises `InputError` for
        a missing file, text that is no CSV, missing, unknown or repeated columns, ragged rows, and no rows.
        """
        text = read_text(path)
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            header = [name.strip() for name in next((row for row in reader if row), [])]
            if not header:
                raise InputError(f"{path}:1: empty file; expected a header with {', '.join(required)}")
            _check_header(path, header, required, optional)
            columns: list[list[str]] = [[] for _ in header]
            # Rows live only for one chunk: half a million small lists at once would keep the garbage collector busy.
            while rows := list(itertools.islice(reader, _CHUNK_ROWS)):
                _add_rows(path, text, columns, rows)
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: not a CSV: {error}") from error
        if not columns[0]:
            raise InputError(f"{path}: no rows below the header")
        return Table(path, dict(zip(header, columns, strict=True)), len(columns[0]), text)

    def error(self, row: int, message: str) -> InputError:
        """An error that names the file and the line on which data row `row` stands."""
        return InputError(f"{self.path}:{_line_of(self._text, row)}: {message}")

    def texts(self, column: str, *, allow_empty: bool = True) -> Sequence[str]:
        """The column as it stands in the file.

        Line breaks are refused, and so are very long cells: in an array every cell costs as much as the longest.
        """
        cells = self.columns[column]
        if not allow_empty and not all(cells):
            raise self.error(next(i for i, cell in enumerate(cells) if not cell), f"{column} is empty")
        if any(map(_LINE_BREAK.search, cells)):
            row = next(i for i, cell in enumerate(cells) if _LINE_BREAK.search(cell))
            raise self.error(row, f"{column} holds a line break")
        if max(map(len, cells)) > _LONGEST_CELL:
            row = next(i for i, cell in enumerate(cells) if len(cell) > _LONGEST_CELL)
            raise self.error(row, f"{column} has {len(cells[row])} characters; at most {_LONGEST_CELL} are allowed")
        return cells

    def numbers(self, column: str, *, empty: float | None = None) -> Floats:
        """The column as numbers of sensible size; an empty cell is `empty`, or a mistake when that is None."""
        cells = self.columns[column]
        values: Floats | None
        try:
            try:
                values = np.array(list(map(float, cells)))
            except ValueError:
                if empty is None:
                    raise
                values = np.array([float(cell) if cell and not cell.isspace() else empty for cell in cells])
        except ValueError:
            values = None
        # Python reads "1_000" as a number; no other program that reads the file would.
        if values is not None and "_" not in "".join(cells):
            strange = np.flatnonzero(~(np.abs(values) <= _LARGEST)).tolist()
            if all(not cells[row].strip() for row in strange):
                return values
        for row, cell in enumerate(cells):
            if not cell.strip():
                if empty is None:
                    raise self.error(row, f"{column} is empty")
            elif not _is_number(cell):
                raise self.error(row, f"{column} is {cell.strip()[:40]!r}, not a number up to {_LARGEST:g}")
        raise AssertionError("a bad column without a bad cell")

    def refuse_where(self, bad: np.ndarray, message: Callable[[int], str]) -> None:
        """Raise for the first data row where `bad` holds, with `message(row)`."""
        if bad.any():
            row = int(bad.argmax())
            raise self.error(row, message(row))


def _add_rows(path: Path, text: str, columns: list[list[str]], rows: list[list[str]]) -> None:
    n_fields = len(columns)
    if set(map(len, rows)) != {n_fields}:
        # A blank line is no row.
        rows = [row for row in rows if row]
        for offset, row in enumerate(rows):
            if len(row) != n_fields:
                line = _line_of(text, len(columns[0]) + offset)
                raise InputError(f"{path}:{line}: {len(row)} fields, but the header has {n_fields}")
    for column, cells in zip(columns, zip(*rows, strict=True), strict=False):
        column.extend(cells)


def _is_number(cell: str) -> bool:
    try:
        return "_" not in cell and abs(float(cell)) <= _LARGEST
    except ValueError:
        return False


def _check_header(path: Path, header: list[str], required: Sequence[str], optional: Sequence[str] | None) -> None:
    where = f"{path}:1"
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise InputError(f"{where}: column '{name}' stands twice in the header")
        seen.add(name)
    if optional is not None:
        known = (*required, *optional)
        for name in header:
            if name not in known:
                raise UnknownName("column", name, known, where)
    missing = [name for name in required if name not in seen]
    if missing:
        raise InputError(f"{where}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}")


def _line_of(text: str, row: int) -> int:
    """The line on which data row `row` starts (quoted cells may span lines)."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    data_row = -2
    while True:
        line = reader.line_num + 1
        if next(reader):
            data_row += 1
        if data_row == row:
            return line
