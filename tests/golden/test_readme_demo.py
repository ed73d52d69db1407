"""README shows what `make demo` really prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_readme__shows_the_demos_table(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("smartmig")), "demo", "--report", str(tmp_path / "demo.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=900)
    table = "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
