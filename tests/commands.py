"""The command as a user calls it: in a process of its own, or in this one where only its words matter."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from smartmig.cli import main

SMARTMIG = Path(sys.executable).with_name("smartmig")
COMPILE_S = 400
"""A fresh checkout compiles each rule on its first use, and the machines are slow."""


def smartmig(folder: Path, *args: object) -> subprocess.CompletedProcess[str]:
    command = [str(SMARTMIG), *map(str, args)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S, check=False)


def called_here(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, standard output and error of a command that ends by itself."""
    monkeypatch.setattr(sys, "argv", ["smartmig", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    shown = capsys.readouterr()
    return caught.value.code, shown.out, shown.err


def assert_self_contained(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.rstrip().endswith("</html>")
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=[\"']?https?:", text)
    assert not re.search(r"<link[^>]*\shref=[\"']?https?:", text)
    leftovers = [path.name for path in page.parent.iterdir() if path.name.endswith(".tmp")]
    assert leftovers == []
