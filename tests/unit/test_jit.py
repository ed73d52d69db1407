"""What a cached kernel depends on."""

from __future__ import annotations

from pathlib import Path

import smartmig
from smartmig.jit import imported_files, source_fingerprint
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


def test_fingerprint__changes_with_the_file_and_with_what_it_imports(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("LIMIT = 1\n")
    two.write_text("LIMIT = 2\n")
    assert source_fingerprint(frozenset({one})) != source_fingerprint(frozenset({two}))
    two.write_text("LIMIT = 1\n")
    copy = tmp_path / "three.py"
    copy.write_text("LIMIT = 1\n")
    assert source_fingerprint(frozenset({one})) == source_fingerprint(frozenset({copy}))
    importing = tmp_path / "four.py"
    importing.write_text("from smartmig.policy.view import SLOTS\nLIMIT = 1\n")
    assert "types.py" in {path.name for path in imported_files(PACKAGE / "policy" / "view.py")}
    assert source_fingerprint(frozenset({importing})) != source_fingerprint(frozenset({one}))


def test_engine__is_named_after_the_files_of_its_rules_and_no_others() -> None:
    files = compiled(gang_policy("wfp", "best-fit", Backfill.easy)).py_func.__dict__["bound_files"]
    assert {Path(wfp.__file__), Path(best_fit.__file__)} <= files
    assert Path(unicep.__file__) not in files
