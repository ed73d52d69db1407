"""The playground in a real Chromium: a run from the form to its report, and every way it can end otherwise."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browsing import AWAY, WAIT_MS, says, serious, sign_in
from served import Daemon

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'smartmig[dev]')")

Serve = Callable[[str], Daemon]

COMPILE_MS = 300_000
"""The first run of a fresh checkout compiles each rule, at low priority, beside other tests."""


@pytest.fixture(scope="module")
def daemon(serve: Serve, browser: Any) -> Daemon:  # noqa: ARG001
    return serve("simulated:nodes=1x4")


@pytest.fixture
def form(page: Any, daemon: Daemon, tokens: dict[str, str]) -> Any:
    """The playground's page, as bob, with a small wish in the form."""
    page.goto(f"{daemon.url}/playground")
    sign_in(page, tokens["bob"], ".policy")
    return page


def small(page: Any, days: int = 2) -> None:
    page.get_by_label("GPUs", exact=True).fill("1")
    page.get_by_label("Load (multiplier)").fill("1")
    page.get_by_label("Days").fill(str(days))
    page.get_by_label("Remove policy 3").click()


def run(page: Any) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("progressbar", name="Progress of the run").wait_for()


def sign_out(page: Any) -> None:
    with page.expect_response("**/api/v1/logout"):
        page.get_by_role("button", name="Sign out").click()
    page.locator("#sign-in").wait_for()


def test_playground__runs_a_wish_shows_it_and_links_it(form: Any, daemon: Daemon, tokens: dict[str, str]) -> None:
    says(form, "#status", "Nothing has been run yet")
    small(form)
    run(form)
    says(form, "#progress-text", " of 7", COMPILE_MS)
    assert serious(form) == []
    says(form, "#status", "It took", COMPILE_MS)
    numbers = form.locator(".numbers tbody tr")
    playwright.expect(numbers).to_have_count(2)
    assert "shortest-work, slice-count" in numbers.nth(1).inner_text()
    assert "±" in numbers.nth(1).inner_text()
    titles = form.locator("#parts h2").all_inner_texts()
    assert "Energy against tardiness" in titles
    assert [title for title in titles if title.startswith("The day under")] == [
        "The day under categorical-edf, static",
        "The day under shortest-work, slice-count",
    ]
    for plot in form.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()
    for width, scheme in ((1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")):
        form.set_viewport_size({"width": width, "height": 900})
        form.emulate_media(color_scheme=scheme)
        assert serious(form) == []
        assert form.evaluate("document.documentElement.scrollWidth") <= width
    form.set_viewport_size({"width": 1440, "height": 900})

    with form.context.expect_page() as opened:
        form.get_by_role("link", name="Open the full report").click()
    report = opened.value
    report.locator(".plot .main-svg").first.wait_for()
    assert "jobs on 1xa100-40gb" in report.title()
    assert report.evaluate("origin") == "null", "a report's scripts must not reach the token"
    report.close()

    address = form.url
    sign_out(form)
    form.goto(address)
    sign_in(form, tokens["ann"], ".numbers")
    assert form.get_by_label("Load (multiplier)").input_value() == "1", "the form holds the run's wish"
    assert form.request.get(f"{daemon.url}/playground/{address[-10:]}/report").status == 200
    sign_out(form)
    assert form.request.get(f"{daemon.url}/playground/{address[-10:]}/report").status == 401


def test_playground__whole_gpus_by_keyboard(form: Any) -> None:
    form.get_by_label("MIG slices").focus()
    form.keyboard.press("ArrowRight")
    form.get_by_label("Nodes and GPUs of each").fill("2")
    form.get_by_label("GPUs of each node", exact=True).fill("4")
    form.get_by_label("Seeds").fill("1")
    for _ in range(2):
        form.get_by_label("Remove policy 1").press("Enter")
    form.get_by_label("Selection of policy 1").select_option("fcfs")
    assert form.evaluate("document.activeElement.dataset.name") == "selection", "removing leaves the focus in the list"
    form.get_by_role("button", name="Add a policy").press("Enter")
    assert form.evaluate("document.activeElement.getAttribute('aria-label')") == "Selection of policy 2"
    form.get_by_role("button", name="Run", exact=True).press("Enter")
    form.locator(".numbers tbody tr").first.wait_for(timeout=COMPILE_MS)
    assert form.locator("#parts h2", has_text="Waiting over time").count() == 1
    assert serious(form) == []


def test_playground__refuses_in_a_sentence_and_keeps_the_form(form: Any) -> None:
    form.expected.append("status of 422")
    form.get_by_label("GPUs", exact=True).fill("65")
    form.get_by_role("button", name="Run", exact=True).click()
    says(form, "#wish-error", "got 65 GPUs, allowed here are 64")
    assert form.get_by_label("GPUs", exact=True).input_value() == "65"
    form.get_by_label("GPUs", exact=True).fill("8")
    form.get_by_label("Placement of policy 2").select_option("categorical-edf")
    form.get_by_label("Repartition of policy 2").select_option("static")
    form.get_by_role("button", name="Run", exact=True).press("Enter")
    says(form, "#wish-error", "two are the same: categorical-edf, static")
    assert serious(form) == []


def test_playground__says_why_a_run_failed(form: Any) -> None:
    small(form, days=20)
    run(form)
    run_id = form.url[-10:]
    os.kill(worker_of(run_id), signal.SIGKILL)  # as the kernel does when memory runs out
    says(form, "#status", "The run failed.")
    says(form, "#status", "The worker ended with code -9")
    assert serious(form) == []


def worker_of(run_id: str) -> int:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = place.read_bytes()
            if b"smartmig.web.playground.worker" in command and run_id.encode() in command:
                return int(place.parent.name)
    raise AssertionError(f"no worker of {run_id}")


def test_playground__can_be_cancelled_and_says_so(form: Any, daemon: Daemon) -> None:
    small(form, days=20)
    run(form)
    assert form.get_by_role("button", name="A run is in progress").is_disabled()
    form.get_by_role("button", name="Cancel the run").press("Enter")
    says(form, "#status", "The run was cancelled.")
    says(form, "#status", "Cancelled by bob")
    assert serious(form) == []
    form.get_by_role("button", name="Put it back into the form").press("Enter")
    assert form.get_by_label("Days").input_value() == "20"
    form.goto(f"{daemon.url}/playground/0123456789")
    says(form, "#status", "There is no such run")


def test_playground__a_restarted_server_says_interrupted(form: Any, serve: Serve, daemon: Daemon) -> None:
    form.expected.extend(AWAY)
    small(form, days=20)
    run(form)
    assert daemon.stop() == 0
    says(form, "#banner", "Stale: the server does not answer")
    assert serious(form) == []
    # Links to reports are good again: the new server knows nothing of the old one's cookies.
    with form.expect_response("**/api/v1/login", timeout=WAIT_MS) as answered:
        serve("simulated:nodes=1x4")
    assert answered.value.status == 204
    says(form, "#status", "The run was interrupted.")
    playwright.expect(form.locator("#banner")).to_be_empty(timeout=WAIT_MS)
    assert form.get_by_role("button", name="Run", exact=True).is_enabled()
    assert serious(form) == []
