"""What a cached kernel depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

import smartmig
from smartmig import jit
from smartmig.jit import called_kernel, imported_files, kernel
from smartmig.policy.allocation import best_fit
from smartmig.policy.selection import unicep, wfp
from smartmig.sim.gang.run import compiled
from smartmig.sim.gang.world import Backfill
from strategies import gang_policy

PACKAGE = Path(smartmig.__file__).parent


def names(path: str | Path) -> set[str]:
    return {str(found.relative_to(PACKAGE)) for found in imported_files(Path(path))}


def test_imported_files__are_modules_whether_named_whole_or_by_what_is_in_them(tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text(
        "import numpy\nimport smartmig.errors\nfrom smartmig.policy import view as seen, plain\n"
        "from smartmig.jit import (\n    kernel,\n    lowest_bit,\n)\n"
    )
    assert names(file) == {"errors.py", "policy/__init__.py", "policy/view.py", "policy/plain.py", "jit.py"}


@pytest.mark.parametrize(("changed", "matters"), [("rule.py", True), ("types.py", True), ("gang_view.py", False)])
def test_fingerprint__changes_with_the_file_and_with_what_it_imports_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, matters: bool
) -> None:
    """`types.py` is imported by what the rule imports."""
    files = frozenset({tmp_path / "rule.py"})
    (tmp_path / "rule.py").write_text("from smartmig.policy.view import SLOTS\n")
    fingerprint, digest = jit.source_fingerprint.__wrapped__, jit._digest
    before = fingerprint(files)
    monkeypatch.setattr(jit, "_digest", lambda path: b"other" if path.name == changed else digest(path))
    assert (fingerprint(files) != before) == matters


def test_engine__is_named_after_the_files_of_its_rules_and_no_others() -> None:
    files = compiled(gang_policy("wfp", "best-fit", Backfill.easy)).py_func.__dict__["bound_files"]
    assert {Path(wfp.__file__), Path(best_fit.__file__)} <= files
    assert Path(unicep.__file__) not in files


@kernel
def twice(number: int) -> int:
    return 2 * number


@called_kernel
def four_times(number: int) -> int:
    return twice(twice(number))


def test_kernel__is_called_by_kernels_and_by_python_alike() -> None:
    """numba ends the process with a crash where Python calls what was compiled for kernels only."""
    assert (twice(3), four_times(3), four_times(1.5)) == (6, 12, 6.0)
    assert four_times.py_func(3) == 12
