"""A tutorial is played from top to bottom, in one folder: every fence of it counts.

- `console`: each `$ ` line is run by the shell; what stands below it is its standard output, to the letter.
- with `title="name"`: the fence is that file, and lies there for what follows. Under `src/smartmig/` it goes into a
  copy of the package, which all later commands use.
- `diff` with a title: lines with `+` are put into that file, behind the lines before them.
- `python` without a title: run as a script.
- `console skip`: needs something a test has not (a cluster, an hour); its verbs and flags are looked at elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fences import fences, tidy

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
TITLE = re.compile(r'(\w+) title="([^"]+)"')


@dataclass(frozen=True)
class Played:
    """The folder a tutorial is played in."""

    folder: Path

    def environment(self) -> dict[str, str]:
        place = Path(sys.executable).parent
        own = {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"}
        own |= {"LC_ALL": "C.UTF-8"}
        if (self.folder / "src").exists():
            own["PYTHONPATH"] = str(self.folder / "src")
        return {**os.environ, **own}

    def file(self, name: str) -> Path:
        """Where a fence with a title goes; the package is copied for the first one of its own."""
        package = self.folder / "src" / "smartmig"
        if name.startswith("src/smartmig/") and not package.exists():
            shutil.copytree(ROOT / "src" / "smartmig", package)  # with what is compiled already, which is still good
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def run(self, command: str | list[str], where: str) -> str:
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
        return done.stdout

    def console(self, lines: list[str], where: str) -> None:
        at = 0
        while at < len(lines):
            assert lines[at].startswith("$ "), f"{where}: a console fence begins with a command, got {lines[at]!r}"
            command, at = lines[at][2:], at + 1
            while command.endswith("\\"):
                command, at = command[:-1] + lines[at].strip(), at + 1
            printed = []
            while at < len(lines) and not lines[at].startswith("$ "):
                printed.append(lines[at])
                at += 1
            output = self.run(command, f"{where}: $ {command}")
            if tidy("\n".join(printed)):
                assert tidy(output) == tidy("\n".join(printed)), f"{where}: $ {command}"

    def patch(self, name: str, lines: list[str], where: str) -> None:
        path = self.file(name)
        before = [line[1:] for line in lines if not line.startswith("+")]
        after = [line[1:] for line in lines]
        text = path.read_text(encoding="utf-8")
        old = "\n".join(before) + "\n"
        assert text.count(old) == 1, f"{where}: these lines are not in {name} once: {before}"
        path.write_text(text.replace(old, "\n".join(after) + "\n"), encoding="utf-8")


def play(document: Path, folder: Path) -> int:
    """Play all fences; how many counted."""
    played, count = Played(folder), 0
    for line, mark, lines in fences(document.read_text(encoding="utf-8")):
        where = f"{document.name}:{line}"
        titled = TITLE.fullmatch(mark)
        if titled and titled[1] == "diff":
            played.patch(titled[2], lines, where)
        elif titled:
            played.file(titled[2]).write_text("\n".join(lines) + "\n", encoding="utf-8")
        elif mark == "console":
            played.console(lines, where)
        elif mark == "python":
            played.run([sys.executable, "-c", "\n".join(lines)], where)
        else:
            assert mark in ("console skip", "text"), f"{where}: a fence marked '{mark}' is not run by anybody"
            continue
        count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("document", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial__works_as_written(document: Path, tmp_path: Path) -> None:
    n_played = play(document, tmp_path)
    assert n_played or document.stem in ("index", "slurm")


def test_play__writes_files_patches_and_compares(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = """
```yaml title="a.yaml"
one: 1
two: 2
```
```diff title="a.yaml"
 one: 1
+more: 3
```
```console
$ cat a.yaml
one: 1
more: 3
two: 2
```
```python
assert open("a.yaml").read().count("more") == 1
```
"""
    page.write_text(text, encoding="utf-8")
    assert play(page, tmp_path) == 4
    page.write_text(text.replace("more: 3\ntwo", "more: 4\ntwo"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"cat a\.yaml"):
        play(page, tmp_path)
    page.write_text("```python\nraise SystemExit(3)\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:2"):
        play(page, tmp_path)
    page.write_text("```bash\nls\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="not run by anybody"):
        play(page, tmp_path)
