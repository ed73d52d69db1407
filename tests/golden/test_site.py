"""The documentation's site: builds without a warning, asks no network, and its reference has everything there is."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from smartmig import registry
from smartmig.cli.app import app
from smartmig.hardware.model import gpu_model_ids

pytest.importorskip("material", reason="needs mkdocs-material (pip install 'smartmig[docs]')")
ROOT = Path(__file__).resolve().parents[2]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stderr
    return folder


def words(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


class Loaded(HTMLParser):
    """What a page makes the browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        fetched = given.get("rel") not in ("canonical", "next", "prev")
        if tag in LOADS and fetched and (address := given.get(LOADS[tag])):
            self.addresses.append(address)


def test_site__asks_no_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        found = Loaded()
        found.feed(page.read_text(encoding="utf-8"))
        assert found.addresses
        assert [address for address in found.addresses if address.startswith(("http", "//"))] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_site__has_every_page_in_its_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{address}"' in home or address == "index.html", f"{address} is not in mkdocs.yml"


def flags_of(command: Any, path: str) -> list[tuple[str, str]]:
    if hasattr(command, "commands"):
        return [pair for name, one in command.commands.items() for pair in flags_of(one, f"{path} {name}")]
    return [(path, flag) for parameter in command.params for flag in parameter.opts if flag.startswith("--")]


def test_reference__has_every_verb_and_flag(site: Path) -> None:
    text = words(site / "reference" / "cli.html")
    sections = dict(re.findall(r"^(smartmig [\w -]+?)¶?$(.*?)(?=^smartmig [\w -]+?¶?$|\Z)", text, re.M | re.S))
    pairs = flags_of(get_command(app), "smartmig")
    assert len(pairs) > 200
    missing = [(verb, flag) for verb, flag in pairs if flag != "--help" and flag not in sections.get(verb, "")]
    assert missing == []


def test_reference__has_every_route(site: Path) -> None:
    text = words(site / "reference" / "api.html")
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/smartmig/web").rglob("*.py"))
    routes = re.findall(r'@app\.(get|post|put|delete)\(\s*"(/api/[^"]+|/health|/metrics|/events)"', source)
    assert len(routes) > 10
    assert [path for method, path in routes if f"{method.upper()} {path}" not in text] == []


def test_reference__has_every_registered_name(site: Path) -> None:
    text = words(site / "reference" / "registries.html")
    tables = [value for name, value in vars(registry).items() if name.isupper()]
    names = {name for table in tables for name in table} | set(gpu_model_ids())
    assert len(names) > 60
    assert sorted(name for name in names if name not in text) == []
