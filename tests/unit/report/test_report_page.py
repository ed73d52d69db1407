"""The page: one file, no network, strict JSON, written whole or not at all."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from smartmig.errors import InputError
from smartmig.report.page import Section, comparison_page, write_page
from toy_report import toy_comparison, toy_day


class Tags(HTMLParser):
    """Every start tag, and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def read_tags(path: Path) -> Tags:
    parser = Tags()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    comparison_page(path, toy_comparison(bound=True), [toy_day("second")])
    return path


def test_page__needs_no_network(page: Path) -> None:
    tags = read_tags(page).tags
    for tag, attributes in tags:
        assert tag not in ("link", "iframe", "img", "object")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_page__offers_no_upload_button(page: Path) -> None:
    ours = read_tags(page).scripts[-1]
    assert 'plotlyServerURL: ""' in ours
    assert "sendChartToCloud" in ours


def test_page__holds_plotly_once(page: Path) -> None:
    assert page.read_text(encoding="utf-8").count(get_plotlyjs()[:200]) == 1
    assert page.stat().st_size < 5_200_000


def test_page__contains_the_numbers_and_sections(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("41.00", "1.600", "16.7", "3 seeds, 95 % intervals, paired seeds", "The day under second", "Notes"):
        assert part in text
    assert "Toys &amp; &lt;others&gt;" in text
    assert "<b>tags</b>" not in text
    tags = read_tags(page).tags
    assert [tag for tag, _ in tags].count("h1") == 1
    assert ("th", {"scope": "row"}) in tags
    assert [tag for tag, _ in tags].count("caption") == [tag for tag, _ in tags].count("table")


def test_page__figures_are_strict_json(page: Path) -> None:
    found = [script for script in read_tags(page).scripts if script.startswith('{"')]
    assert len(found) == 8, "seven figures and the themes"
    for script in found:
        json.loads(script, parse_constant=lambda name: pytest.fail(f"{name} in a figure"))


def test_page__leaves_no_temporary_file(page: Path) -> None:
    assert [entry.name for entry in page.parent.iterdir()] == ["report.html"]


def test_page__keeps_the_old_one_when_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_page(tmp_path / "missing" / "page.html", "t", "", [])
    assert list(tmp_path.iterdir()) == []


def test_page__without_figures_has_no_plotly(tmp_path: Path) -> None:
    write_page(tmp_path / "p.html", "t", "Hello.\n\nTwice.", [Section("s", "- one\n- two", table_rows=[["a"], ["b"]])])
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert len(text) < 10_000
    assert "<li>one</li><li>two</li>" in text
    assert text.count("<p>") == 2
    assert "<script" not in text
