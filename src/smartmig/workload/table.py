"""CSV files, and files like them, read as columns: fast, and with file and line for every mistake.

The bytes are cut into cells with whole-array operations, and a column becomes numbers, times or text only when it is
asked for. A row is a line: a quoted cell may hold separators, not line breaks.

A strict table refuses the file at the first mistake. One that is not strict takes the row out of `rows`, with its line
and the reason, and goes on. Either looks only at rows that are still in.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from smartmig.atomic import atomic_write
from smartmig.errors import InputError, UnknownName
from smartmig.types import Floats, Ints
from smartmig.workload.lines import LONGEST_CELL, LONGEST_CELL_BYTES, QUOTE, Bytes, Lines, lines_of, read_bytes
from smartmig.workload.trace_report import RowFilter, TraceReport

Texts = NDArray[np.str_]

_LONGEST_NUMBER = 64
LARGEST = 1e15
"""Beyond any time or memory; keeps sums and products of the columns finite."""

_STAMP = np.frombuffer(b"0000-00-00 00:00:00", np.uint8)
_MARK_AT = np.array([4, 7, 13, 16])
_DIGIT_AT = np.setdiff1d(np.arange(19), (*_MARK_AT, 10))


def header_of(start: str, separator: str = ",") -> list[str]:
    """The column names in the first line of a file that begins with `start`; empty for an empty file."""
    return _split_header(next(iter(start.splitlines()), ""), separator)


def write_table(path: Path, columns: dict[str, Iterable[str]], texts: dict[str, Texts]) -> None:
    """Write columns as a CSV; on a file the change is all or nothing, `.gz` is packed, `-` is standard output.

    `texts` are those of the columns that may hold anything. Raises `InputError` for a line break in them, which no
    row can hold, and for a place that cannot be written.
    """
    for name, cells in texts.items():
        for text in cells[(np.strings.find(cells, "\n") >= 0) | (np.strings.find(cells, "\r") >= 0)][:1]:
            raise InputError(f"{path}: cannot write {name} {str(text)!r}: it holds a line break")
    with ExitStack() as stack:
        stream: IO[str]
        if str(path) == "-":
            stream = sys.stdout
        elif path.suffix == ".gz":
            raw = stack.enter_context(atomic_write(path, "wb"))
            # No name and no clock in the header: the same rows give the same bytes.
            packed = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0))
            stream = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline="\n"))
        else:
            stream = stack.enter_context(atomic_write(path))
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of text; `row` counts data rows from 0."""

    path: Path
    columns: tuple[str, ...]
    comments: tuple[str, ...]
    """lines that begin with the comment mark, in order"""
    line: Ints
    """(n_rows,) the line on which each row stands"""
    rows: RowFilter
    """which rows are still in"""
    strict: bool
    _bytes: Bytes
    """the file, and some zeros so that the window of a long cell ends inside"""
    _edges: Ints
    """(n_columns + 1, n_rows) the byte before each cell and the one after the last"""
    _quoted: bool
    """may cells stand in quotes"""
    _seen: dict[str, tuple[list[str], Ints]] = field(default_factory=dict)
    """what `_distinct` found"""

    @staticmethod
    def read(
        path: Path,
        required: Sequence[str],
        optional: Sequence[str] | None = (),
        *,
        separator: str = ",",
        strict: bool = True,
    ) -> Table:
        """Read a file with a header that has the `required` columns, in any order.

        Other columns are refused unless `optional` names them; `optional=None` allows any. Quotes count only where the
        separator is a comma. Raises `InputError` for a missing file, missing, unknown or repeated columns, and no rows;
        a strict table also for bytes that are no text, stray quotes and ragged rows.
        """
        lines = lines_of(read_bytes(path), separator)
        if lines.number.size == 0:
            raise InputError(f"{path}:1: empty file; expected a header with {', '.join(required)}")
        header = _split_header(lines.first(path), separator)
        if separator == "|" and header[-1] == "":
            header[-1] = " "  # `sacct --parsable` ends every line with one more separator
        _check_header(path, header, required, optional)
        if lines.number.size == 1:
            raise InputError(f"{path}: no rows below the header")
        return _cut(path, lines.rest(), tuple(header), "the header has", strict, quoted=separator == ",")

    @staticmethod
    def read_plain(path: Path, columns: Sequence[str], comment: str, *, strict: bool = True) -> Table:
        """Read a file without a header whose cells stand between blanks; lines with the `comment` mark are no rows.

        Texts come with the blanks around them.
        """
        lines = lines_of(read_bytes(path), " ", comment)
        if lines.number.size == 0:
            raise InputError(f"{path}: no rows; expected lines of {len(columns)} fields")
        return _cut(path, lines, tuple(columns), "a row has", strict, quoted=False)

    @property
    def n_rows(self) -> int:
        return int(self.line.size)

    def report(self, assumptions: dict[str, str]) -> TraceReport:
        """What happened to the rows up to now."""
        used = int(self.rows.keep.sum())
        return TraceReport(self.n_rows, used, self.rows.skipped, assumptions, self.rows.broken)

    def error(self, row: int, message: str) -> InputError:
        """An error that names the file and the line on which data row `row` stands."""
        return InputError(f"{self.path}:{self.line[row]}: {message}")

    def refuse_where(self, bad: np.ndarray, message: str | Callable[[int], str], reason: str = "") -> None:
        """Rows where `bad` holds are a mistake: `message` says so of one row, `reason` of them all."""
        found = bad & self.rows.keep
        if not found.any():
            return
        if self.strict:
            row = int(found.argmax())
            raise self.error(row, message if isinstance(message, str) else message(row))
        self.rows.drop_broken(found, reason or str(message), self.line)

    def refuse_cells(self, column: str, bad: np.ndarray, allowed: str) -> None:
        """Rows where the cell is not `allowed` are a mistake."""
        self.refuse_where(
            bad,
            lambda row: f"{column} is {self._cell(column, row).strip()[:40]!r}, not {allowed}",
            f"{column} is not {allowed}",
        )

    def refuse_repeated(self, names: Texts, what: str) -> None:
        """Rows that have the name of an earlier row are a mistake."""
        kept = np.flatnonzero(self.rows.keep)
        ids = names[kept].tolist()
        if len(set(ids)) == len(ids):
            return
        seen: set[str] = set()
        repeated = np.zeros(self.n_rows, dtype=bool)
        for row, name in zip(kept.tolist(), ids, strict=True):
            repeated[row] = name in seen
            seen.add(name)
        self.refuse_where(repeated, lambda row: f"{what} '{names[row]}' stands twice", f"{what} stands twice")

    def texts(self, column: str, *, allow_empty: bool = True) -> Texts:
        """The column as it stands in the file; a very long cell is a mistake, as each costs as much as the longest."""
        start, stop = self._span(column)
        if not allow_empty:
            self.refuse_where(stop == start, f"{column} is empty")
        n_letters = stop - start
        for row in np.flatnonzero(self.rows.keep & (n_letters > LONGEST_CELL)).tolist():
            n_letters[row] = len(self._bytes[start[row] : stop[row]].tobytes().decode())
        self.refuse_where(
            n_letters > LONGEST_CELL,
            lambda row: f"{column} has {n_letters[row]} characters; at most {LONGEST_CELL} are allowed",
            f"{column} has more than {LONGEST_CELL} characters",
        )
        cells = self._cells(column, LONGEST_CELL_BYTES)
        # numpy copies ASCII at once and decodes anything else cell by cell.
        is_ascii = bool((cells.view(np.uint8) < 128).all())
        return cells.astype(np.str_) if is_ascii else np.strings.decode(cells, "utf-8")

    def numbers(
        self, column: str, *, empty: float | None = None, at_least: float = -LARGEST, whole: bool = False
    ) -> Floats:
        """The column as numbers of sensible size; an empty cell is `empty`, or a mistake when that is None."""
        start, stop = self._span(column)
        cells = self._cells(column, _LONGEST_NUMBER)
        values = _floats(cells)
        blank = stop == start
        if np.isnan(values[~blank]).any():
            blank = np.strings.str_len(np.strings.strip(cells)) == 0
        if empty is None:
            self.refuse_where(blank, f"{column} is empty")
        bad = ~((values >= at_least) & (values <= LARGEST)) | (stop - start > _LONGEST_NUMBER)
        if whole:
            with np.errstate(invalid="ignore"):
                bad |= values % 1 != 0
        limits = f"up to {LARGEST:g}" if at_least == -LARGEST else f"from {at_least:g} to {LARGEST:g}"
        self.refuse_cells(column, bad & ~blank, f"a {'whole ' * whole}number {limits}")
        values[bad] = math.nan
        values[blank] = math.nan if empty is None else empty
        return values

    def times(self, column: str, *, unknown: Sequence[str] = ()) -> Floats:
        """Seconds since 1970 of cells like `2020-04-01 12:00:00` (or with a `T`); nan for one of the `unknown` words.

        The clock of the file is taken for UTC.
        """
        cells = np.strings.strip(self._cells(column, _LONGEST_NUMBER))
        values = _seconds_since_1970(cells)
        strange = np.isnan(values)
        if unknown and strange.any():
            strange &= ~np.isin(cells, np.array([word.encode() for word in unknown]))
        self.refuse_cells(column, strange, "a time like 2020-04-01 12:00:00")
        return values

    def mapped(self, column: str, meaning: Callable[[str], float], allowed: str) -> Floats:
        """What each cell means, for columns that repeat their cells; a meaning of nan is a mistake."""
        cells, which = self._distinct(column)
        values = np.array([meaning(cell) for cell in cells])[which]
        self.refuse_cells(column, np.isnan(values), allowed)
        return values

    def translated(self, column: str, meaning: Callable[[str], str]) -> Texts:
        """The same for a meaning in words."""
        cells, which = self._distinct(column)
        return np.array([meaning(cell) for cell in cells], dtype=np.str_)[which]

    def _distinct(self, column: str) -> tuple[list[str], Ints]:
        """The different cells of a column, and which of them each row has."""
        if column not in self._seen:
            start, stop = self._span(column)
            most = LONGEST_CELL_BYTES
            self.refuse_where(stop - start > most, f"{column} has more than {most} bytes")
            cells = self._cells(column, most).tolist()
            place = {cell: at for at, cell in enumerate(dict.fromkeys(cells))}
            which = np.fromiter(map(place.__getitem__, cells), np.int64, len(cells))
            self._seen[column] = [cell.decode(errors="replace") for cell in place], which
        return self._seen[column]

    def _span(self, column: str) -> tuple[Ints, Ints]:
        """Where the cells of a column start and stop, inside their quotes."""
        at = self.columns.index(column)
        start, stop = self._edges[at] + 1, self._edges[at + 1]
        if self._quoted:
            quoted = (stop - start >= 2) & (self._bytes[start] == QUOTE)
            start, stop = start + quoted, stop - quoted
        return start, stop

    def _cell(self, column: str, row: int) -> str:
        start, stop = self._span(column)
        return self._bytes[start[row] : stop[row]].tobytes().decode(errors="replace")

    def _cells(self, column: str, longest: int) -> NDArray[np.bytes_]:
        """(n_rows,) the cells, cut off at `longest` bytes; empty in rows that are out."""
        start, stop = self._span(column)
        length = np.where(self.rows.keep, np.minimum(stop - start, longest), 0)
        width = max(1, int(length.max()))
        letters = np.lib.stride_tricks.sliding_window_view(self._bytes, width)[start]
        letters[np.arange(width) >= length[:, None]] = 0
        cells: NDArray[np.bytes_] = letters.view(f"S{width}")[:, 0]
        if self._quoted and (np.strings.find(cells, b'""') >= 0).any():
            return np.strings.replace(cells, b'""', b'"')
        return cells


def _cut(path: Path, lines: Lines, columns: tuple[str, ...], whose: str, strict: bool, quoted: bool) -> Table:
    """The lines as rows; one that cannot be cut into the columns is a mistake."""
    n_columns = len(columns)
    fits = lines.n_separators == n_columns - 1
    if fits.all():
        inner = lines.separators.reshape(-1, n_columns - 1).T
    else:
        inner = np.tile(np.arange(n_columns - 1)[:, None], fits.size)
        inner[:, fits] = lines.separators[np.repeat(fits, lines.n_separators)].reshape(-1, n_columns - 1).T
    # A row that does not fit gets empty cells, somewhere at the start of the file.
    before, behind = np.where(fits, lines.start - 1, -1), np.where(fits, lines.stop, n_columns - 1)
    edges = np.concatenate((before[None], inner, behind[None]))
    rows = RowFilter(np.ones(fits.size, dtype=bool))
    quoted = quoted and bool((lines.data == QUOTE).any())
    table = Table(path, columns, lines.comments, lines.number, rows, strict, lines.data, edges, quoted)
    for reason, numbers in lines.faults.items():
        table.refuse_where(np.isin(lines.number, numbers), reason)
    table.refuse_where(
        ~fits,
        lambda row: f"{lines.n_separators[row] + 1} fields, but {whose} {n_columns}",
        f"other than {n_columns} fields",
    )
    return table


def _floats(cells: NDArray[np.bytes_]) -> Floats:
    """nan where a cell is no number."""
    # Python reads "1_000" as a number; no other program that reads the file would.
    if not (cells.view(np.uint8) == ord("_")).any():
        try:
            is_empty = cells == b""
            return (np.where(is_empty, b"nan", cells) if is_empty.any() else cells).astype(np.float64)
        except ValueError:
            pass
    return np.array([_float(cell) for cell in cells.tolist()])


def _float(cell: bytes) -> float:
    try:
        return math.nan if b"_" in cell else float(cell)
    except ValueError:
        return math.nan


def _seconds_since_1970(cells: NDArray[np.bytes_]) -> Floats:
    """nan where a cell is no time; the days of months and leap years are numpy's."""
    letters = np.ascontiguousarray(cells.astype(f"S{_STAMP.size}")).view(np.uint8).reshape(-1, _STAMP.size)
    digits = letters[:, _DIGIT_AT] - np.uint8(ord("0"))
    fits = (digits < 10).all(axis=1) & (letters[:, _MARK_AT] == _STAMP[_MARK_AT]).all(axis=1)
    fits &= np.isin(letters[:, 10], (ord(" "), ord("T"))) & (np.strings.str_len(cells) == _STAMP.size)
    pairs = (digits[:, ::2] * 10 + digits[:, 1::2]).astype(np.int64)
    century, year, month, day, hour, minute, second = pairs.T
    first = (100 * century + year - 1970).astype("M8[Y]").astype("M8[M]") + (month - 1)
    date = first.astype("M8[D]") + (day - 1)
    fits &= (month >= 1) & (month <= 12) & (date.astype("M8[M]") == first)
    fits &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = date.astype(np.int64) * 86400 + hour * 3600 + minute * 60 + second
    return np.where(fits, seconds, math.nan)


def _split_header(line: str, separator: str) -> list[str]:
    names = next(csv.reader([line]), []) if separator == "," else line.split(separator)
    return [name.strip() for name in names]


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
