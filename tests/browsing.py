"""What tests in a real Chromium share: how a page is signed in, waited for and looked at."""

from __future__ import annotations

from typing import Any

WAIT_MS = 60_000
"""The first decision of a fresh checkout compiles the rules, and the machines are slow."""

AWAY = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
"""What the browser itself writes while a server is away."""


def sign_in(page: Any, token: str, then: str = ".card") -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.locator(then).first.wait_for()


def says(page: Any, selector: str, text: str, timeout_ms: int = WAIT_MS) -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_contain_text(text, timeout=timeout_ms)


def serious(page: Any) -> list[tuple[str, str]]:
    """What axe-core finds serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
