"""How the command line behaves in a real shell and on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smartmig.hardware.model import gpu_model_ids
from smartmig.registry import PLACEMENTS

SMARTMIG = str(Path(sys.executable).with_name("smartmig"))
COLOUR = re.compile(r"\x1b\[[0-9;]*?(3[0-8]|4[0-8]|9[0-7])[0-9;]*m")


def completed(line: str) -> list[str]:
    """What bash is told after TAB at the end of the line."""
    asked = {"_SMARTMIG_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run([SMARTMIG], env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("smartmig simu", ["simulate"]),
        ("smartmig compare --placement ", list(PLACEMENTS)),
        ("smartmig simulate --gpus 4xa100-40gb,2xh2", ["4xa100-40gb,2xh200-141gb"]),
        ("smartmig simulate --requests menu-15", ["menu-15min"]),
        ("smartmig layouts ", list(gpu_model_ids())),
    ],
)
def test_completion__offers_names(line: str, offered: list[str]) -> None:
    assert sorted(completed(line)) == sorted(offered)


def test_completion__is_a_script_that_bash_takes(tmp_path: Path) -> None:
    asked = {**os.environ, "_SMARTMIG_COMPLETE": "source_bash"}
    told = subprocess.run([SMARTMIG], env=asked, capture_output=True, text=True, check=False).stdout
    script = tmp_path / "smartmig.bash"
    script.write_text(told, encoding="utf-8")
    bash = shutil.which("bash")
    assert bash is not None
    checked = subprocess.run([bash, "-c", f"source {script} && complete -p smartmig"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "smartmig" in checked.stdout


def on_terminal(command: list[str], **environment: str) -> str:
    """What a command writes to a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    shown, terminal = pty.openpty()
    own = {**kept, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(command, env=own, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    said = b""
    while True:
        try:
            more = os.read(shown, 65536)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not more:
            break
        said += more
    os.close(shown)
    assert process.wait() in (0, 2)
    return said.decode("utf-8")


def test_colours__are_for_terminals_and_no_color_turns_them_off() -> None:
    wrong = [SMARTMIG, "simulate", "--jobs"]
    assert COLOUR.search(on_terminal(wrong))
    assert not COLOUR.search(on_terminal(wrong, NO_COLOR="1"))
    piped = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert "\x1b" not in piped.stdout + piped.stderr


def test_table__has_no_escapes_in_a_pipe_and_no_colour_where_unwanted() -> None:
    listed = [SMARTMIG, "reproduce"]
    assert "\x1b" not in subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    assert not COLOUR.search(on_terminal(listed, NO_COLOR="1"))
