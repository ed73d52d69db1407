"""Shared fixtures: where the public traces lie, when they do."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# Compiled kernels make the first example slow; the machines are noisy, and so is the share of worlds drawn in vain.
# CI asks whether a change broke something, so it draws the same examples every time; new ones are looked for elsewhere.
hypothesis.settings.register_profile(
    "smartmig",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much],
)
hypothesis.settings.load_profile("smartmig")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> None:
    """A suite started in the background ignores Ctrl-C, and so would every program it starts; some tests press it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Ends with its file: while Playwright runs, nobody else in the process may use asyncio."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    tools = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'smartmig[dev]')")
    pytest.importorskip("axe_playwright_python", reason="needs axe (pip install 'smartmig[dev]')")
    with tools.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=BROWSER_FLAGS)
        yield opened
        opened.close()
