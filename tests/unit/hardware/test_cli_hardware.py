"""`gpus` and `layouts` print what the data says."""

from __future__ import annotations

import json

import pytest
from rich.text import Text

from smartmig.cli.gpus import gpus
from smartmig.cli.layouts import draw, layouts
from smartmig.errors import UnknownName
from smartmig.hardware.layouts import check_layout, maximal_sets
from smartmig.hardware.model import gpu_model, gpu_model_ids
from smartmig.types import Placement


def test_gpus__json_lists_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    gpus(json_output=True)
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert tuple(rows) == gpu_model_ids()
    assert [rows[name]["power_label"] for name in ("a100-40gb", "h200-141gb", "a30-24gb")] == [
        "published",
        "measured",
        "estimated",
    ]


def test_gpus__table_is_plain_and_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    gpus()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert any("h200-141gb" in line and "690.2" in line and "measured" in line for line in lines)
    assert not any("…" in line for line in lines)


def test_layouts__drawing_of_the_a30(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    layouts("a30")
    assert capsys.readouterr().out.splitlines() == [
        "NVIDIA A30 24GB (a30-24gb): 4 compute slices, 4 memory slices",
        "  #      0        1        2        3",
        "    ┌───────────────────────────────────┐",
        "  1 │              4g.24gb              │",
        "    ├─────────────────┬─────────────────┤",
        "  2 │     2g.12gb     │     2g.12gb     │",
        "    ├─────────────────┼────────┬────────┤",
        "  3 │     2g.12gb     │ 1g.6gb │ 1g.6gb │",
        "    ├────────┬────────┼────────┼────────┤",
        "  4 │ 1g.6gb │ 1g.6gb │ 1g.6gb │ 1g.6gb │",
        "    └────────┴────────┴────────┴────────┘",
        "26 valid placement sets, 5 maximal, 4 multisets, 4 configurations",
    ]


def test_layouts__all_draws_the_maximal_sets_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    layouts("a100-40gb", show_all=True)
    out = capsys.readouterr().out
    assert "298 valid placement sets, 19 maximal, 14 multisets, 12 configurations" in out
    assert sum("│" in line for line in out.splitlines()) == 19
    assert max(map(len, out.splitlines())) <= 80


def test_layouts__json_holds_legal_placements(capsys: pytest.CaptureFixture[str]) -> None:
    layouts("a100-40gb", show_all=True, json_output=True)
    answer = json.loads(capsys.readouterr().out)
    model = gpu_model("a100-40gb")
    assert answer["counts"] == {"valid": 298, "maximal": 19, "multisets": 14, "configurations": 12}
    assert answer["configurations"][2] == {
        "number": 3,
        "cut": "4g+2g+1g",
        "sizes": [4, 2, 1],
        "placements": [
            {"start": 0, "size": 4, "profile": "4g.20gb"},
            {"start": 4, "size": 2, "profile": "2g.10gb"},
            {"start": 6, "size": 1, "profile": "1g.5gb"},
        ],
    }
    assert answer["power_w"][0] == 40
    assert answer["estimated"] is False
    assert len(answer["maximal"]) == 19
    for row in answer["maximal"]:
        check_layout(model, tuple(Placement(part["start"], part["profile"]) for part in row["placements"]))


def test_layouts__unknown_model_is_refused() -> None:
    with pytest.raises(UnknownName, match="MODEL: no GPU 'a10'"):
        layouts("a10")


def test_draw__every_line_is_equally_wide() -> None:
    model = gpu_model("h200-141gb")
    lines: list[Text] = draw(model, [("x", layout) for layout in maximal_sets(model)])
    assert {len(line.plain) for line in lines[1:]} == {4 + 8 * 9 + 1}
