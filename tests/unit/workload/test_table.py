"""Tables that are not strict: what is wrong with a row is remembered with its line, and the rest is read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.workload.lines import read_start
from smartmig.workload.table import Table, header_of


def table(tmp_path: Path, text: str | bytes, *, strict: bool = False, separator: str = ",") -> Table:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return Table.read(path, ("a", "b"), None, strict=strict, separator=separator)


def test_broken_rows__are_remembered_by_reason_and_line(tmp_path: Path) -> None:
    found = table(tmp_path, b'a,b\n1,x\n2\n\n3,"y"\n4,"z\nfour,u\n,v\n5,\xff\n6,\0\n1e99,w\n7,"k""l,m"\n8,n\n')
    a, b = found.numbers("a"), found.texts("b")
    keep = found.rows.keep
    assert a[keep].tolist() == [1, 3, 7, 8]
    assert b[keep].tolist() == ["x", "y", 'k"l,m', "n"]
    report = found.report({})
    assert (report.rows, report.used, report.skipped) == (11, 4, {})
    assert report.broken == {
        "not UTF-8 text (byte 0xff)": (9,),
        "holds a NUL character; a table is plain text": (10,),
        "not a CSV: a quote is not closed, or stands inside a cell": (6,),
        "other than 2 fields": (3,),
        "a is empty": (8,),
        "a is not a number up to 1e+15": (7, 11),
    }
    assert "  broken 2: a is not a number up to 1e+15 (lines 7, 11)" in report.lines()


def test_broken_rows__are_told_in_short(tmp_path: Path) -> None:
    found = table(tmp_path, "a,b\n" + "x,\n" * 20 + "1,\n")
    found.numbers("a")
    assert found.report({}).lines()[1].endswith("(lines 2, 3, 4, 5, 6, 7, 8, 9 and 12 more)")


def test_checks__look_only_at_rows_that_are_in(tmp_path: Path) -> None:
    found = table(tmp_path, f"a,b\nx,skip\n1,\n2,{'long' * 999}\n", strict=True)
    found.rows.drop(found.line == 2, "a step")
    found.rows.drop(found.line == 4, "too long for anyone")
    assert found.numbers("a")[1] == 1
    assert found.texts("b").dtype.itemsize < 100
    assert found.report({}).skipped == {"a step": 1, "too long for anyone": 1}


def test_ragged_rows__at_the_end_of_a_wide_file_are_harmless(tmp_path: Path) -> None:
    names = ["a", "b", *(f"c{at}" for at in range(2000))]
    wide = ",".join(["é" * 256, *names[1:]])
    found = table(tmp_path, f'{",".join(names)}\n{wide}\n"x"')
    assert found.texts("a")[0] == "é" * 256
    assert found.texts("c1999")[found.rows.keep].tolist() == ["c1999"]
    assert found.rows.broken == {"other than 2002 fields": (3,)}


def test_numbers__whole_and_from_a_limit_up(tmp_path: Path) -> None:
    found = table(tmp_path, "a,b\n 1 ,1\n-1,1\n1.5,1\n  ,1\n0,1\n")
    values = found.numbers("a", at_least=0, whole=True, empty=math.inf)
    assert values[found.rows.keep].tolist() == [1, math.inf, 0]
    assert found.rows.broken == {"a is not a whole number from 0 to 1e+15": (3, 4)}
    with pytest.raises(InputError, match=r"t\.csv:3: a is '-1', not a whole number from 0 to 1e\+15"):
        table(tmp_path, "a,b\n 1 ,1\n-1,1\n", strict=True).numbers("a", at_least=0, whole=True)


@pytest.mark.parametrize("text", ["0.1", "1e-7", "123456789.123456789", "2.2250738585072014e-308", "1e15", "-3.25"])
def test_numbers__are_those_of_python(tmp_path: Path, text: str) -> None:
    assert table(tmp_path, f"a,b\n{text},1\n").numbers("a").tolist() == [float(text)]


def test_times__are_seconds_since_1970(tmp_path: Path) -> None:
    stamps = ["1970-01-01 00:00:01", "2020-02-29T23:59:59", " 1969-12-31 00:00:00 ", "2100-03-01 00:00:00"]
    found = table(tmp_path, "a,b\n" + "".join(f"{stamp},1\n" for stamp in stamps))
    expected = [np.datetime64(stamp.strip(), "s").astype(np.int64) for stamp in stamps]
    assert found.times("a").tolist() == expected


@pytest.mark.parametrize(
    "bad",
    ["2021-02-29 00:00:00", "2020-13-01 00:00:00", "2020-00-01 00:00:00", "2020-01-00 00:00:00", "2020-01-01 24:00:00",
     "2020-01-01 00:60:00", "2020-01-01 00:00:60", "2020-01-01", "2020-01-01 00:00:00Z", "2020/01/01 00:00:00", "",
     "2020-01-01x00:00:00", "now", "2020-1-1 0:00:00"],
)  # fmt: skip
def test_times__refuse_what_is_none(tmp_path: Path, bad: str) -> None:
    found = table(tmp_path, f"a,b\n2020-01-01 00:00:00,1\n{bad},1\nUnknown,1\n")
    found.times("a", unknown=("Unknown",))
    assert found.rows.broken == {"a is not a time like 2020-04-01 12:00:00": (3,)}


def test_other_separators__leave_quotes_alone(tmp_path: Path) -> None:
    found = table(tmp_path, 'a|b|\n1|x,"y|\n2|z|\n', separator="|")
    assert found.texts("b").tolist() == ['x,"y', "z"]


def test_plain__takes_any_blanks_and_keeps_comments(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("; Note: one\n  1\t 2  \n\n ;x\n3 4\n5 6 7")
    found = Table.read_plain(path, ("a", "b"), ";", strict=False)
    assert found.comments == ("; Note: one", ";x")
    assert found.numbers("b")[found.rows.keep].tolist() == [2, 4]
    assert found.rows.broken == {"other than 2 fields": (6,)}
    path.write_text("; nothing\n")
    with pytest.raises(InputError, match=r"t\.txt: no rows; expected lines of 2 fields"):
        Table.read_plain(path, ("a", "b"), ";")


def test_nothing_left__says_why(tmp_path: Path) -> None:
    found = table(tmp_path, "a,b\nx,1\n2,1\n")
    found.rows.drop(found.numbers("a") == 2, "is a two")
    with pytest.raises(
        InputError, match=r"no row is left to become a job: 1 is a two; 1 broken, a is not .* \(line 2\)"
    ):
        found.rows.require_some("t.csv")


def test_start__is_enough_for_the_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a, b",c\n' + "x" * 100_000)
    assert header_of(read_start(tmp_path / "t.csv")) == ["a, b", "c"]
    assert header_of("JobID|State\n1|2\n", "|") == ["JobID", "State"]
