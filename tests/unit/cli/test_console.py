"""What verbs print is what they were told to print."""

from __future__ import annotations

import pytest
from rich.table import Table

from smartmig.cli.console import log, output, progress_bar

WORDS = "pip install 'smartmig[live]' [/red] :warning: 1:eyes:"


def test_output_and_log__print_brackets_and_colons_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(WORDS, box=None)
    table.add_row(WORDS)
    output().print(table)
    output().print(WORDS)
    log(WORDS)
    with progress_bar() as tell:
        tell(WORDS, 1, 1)
    shown = capsys.readouterr()
    assert shown.out.count(WORDS) == 3
    assert shown.err.count(WORDS) == 2
