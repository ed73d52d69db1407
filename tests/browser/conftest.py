"""One server and its tokens for each file, one browser for all; a page of its own for each test."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import WAIT_MS
from served import Daemon
from smartmig.control.store import open_store
from smartmig.control.tokens import Role, add_token


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def tokens(home: Path) -> dict[str, str]:
    engine = open_store(str(home / "journal.db"))
    made = {name: add_token(engine, name, role) for name, role in (("ann", Role.operator), ("bob", Role.viewer))}
    engine.dispose()
    return made


@pytest.fixture(scope="module")
def serve(home: Path, tokens: dict[str, str]) -> Iterator[Callable[[str], Daemon]]:  # noqa: ARG001
    """Starts a server on a simulated cluster; always on the same port, so that pages find a second one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made: list[Daemon] = []

    def start(adapter: str) -> Daemon:
        made.append(Daemon(home, "--port", str(port), "--mode", "act", "--adapter", adapter))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.stop()


@pytest.fixture
def page(browser: Any, daemon: Daemon) -> Iterator[Any]:
    """A page of its own, at 1440 px, not signed in; whatever it writes to the console fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MS)
    made = context.new_page()
    said: list[str] = []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.expected = []  # refused and failed requests are written there by the browser itself
    made.goto(daemon.url)
    yield made
    context.close()
    assert [line for line in said if not any(part in line for part in made.expected)] == []
