"""The examples run as they are and print exactly what stands beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def test_examples__there_are_some() -> None:
    assert len(NAMES) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_example__prints_what_stands_beside_it(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = (EXAMPLES / f"{name}.out").read_text(encoding="utf-8")
    assert done.stdout == expected, f"if this is meant: python examples/{name}.py > examples/{name}.out"
    assert list(tmp_path.iterdir()) == []
