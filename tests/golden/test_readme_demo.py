"""README shows what `make demo` really prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import assert_self_contained, smartmig

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_readme__shows_the_demos_table(tmp_path: Path) -> None:
    done = smartmig(tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    assert_self_contained(tmp_path / "out" / "demo.html")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    table = "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
