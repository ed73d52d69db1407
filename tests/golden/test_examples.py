"""The examples run as they are and print exactly what stands beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ARGUMENTS = {"place_with_maskable_ppo": ["4096"]}
"""Of those that take long as they are."""
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def test_examples__there_are_some() -> None:
    assert len(NAMES) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_example__prints_what_stands_beside_it(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *ARGUMENTS.get(name, [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = (EXAMPLES / f"{name}.out").read_text(encoding="utf-8")
    assert done.stdout == expected, f"if this is meant: python examples/{name}.py > examples/{name}.out"
    assert list(tmp_path.iterdir()) == []


def test_own_rule__a_changed_kernel_is_compiled_anew(tmp_path: Path) -> None:
    """Otherwise whoever edits a rule of their own sees the numbers of the old one."""
    text = (EXAMPLES / "own_rule.py").read_text(encoding="utf-8")
    kernel, begin, rest = text.partition("@dataclass(frozen=True)")
    changed = kernel.replace("if cost < best:", "if -cost < best:")
    assert changed != kernel
    script = tmp_path / "own_rule.py"
    script.write_text(changed + begin + rest, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=True)
    # The plain half still says the old rule, so the two halves must now differ.
    assert "compiled and plain agree: False" in done.stdout
