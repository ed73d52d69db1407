"""The dashboard in a real Chromium, on a real `smartmig serve` with a simulated cluster: every control, once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from browsing import AWAY, WAIT_MS, says, serious, sign_in
from served import Daemon

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'smartmig[dev]')")

Serve = Callable[[str], Daemon]


@pytest.fixture(scope="module")
def daemon(serve: Serve, browser: Any) -> Daemon:  # noqa: ARG001
    return serve("simulated:load=2")


def test_sign_in__refuses_a_wrong_token_and_keeps_a_right_one_for_the_tab(page: Any, tokens: dict[str, str]) -> None:
    page.expected.append("status of 401")
    page.get_by_label("Token").fill("ann.wrong")
    page.get_by_label("Token").press("Enter")
    says(page, "#token-error", "not valid")
    assert serious(page) == []
    sign_in(page, tokens["ann"])
    says(page, "#who", "ann, operator")
    assert page.evaluate("scrollY") == 0
    page.reload()
    page.locator(".card").first.wait_for()
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.locator("#board").is_hidden()


def test_sign_in__leaves_the_focus_where_it_was_put_while_slow_panels_load(page: Any, tokens: dict[str, str]) -> None:
    waiting: list[Any] = []
    page.route("**/api/v1/effect", lambda route: waiting.append(route))
    sign_in(page, tokens["ann"])
    playwright.expect(page.locator("#main")).to_be_focused()
    page.get_by_role("button", name="Pause").focus()
    page.wait_for_timeout(100)
    page.unroute("**/api/v1/effect")
    assert waiting
    for route in waiting:
        with contextlib.suppress(playwright.Error):  # the page has given this one up, and asks again
            route.continue_()
    says(page, "#effect", "job")
    playwright.expect(page.get_by_role("button", name="Pause")).to_be_focused()


def test_page__first_paint_comes_within_a_second(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["bob"])
    paints = []
    for _ in range(3):
        page.reload()
        page.locator(".card").first.wait_for()
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    assert min(paints) < 1000, paints


def test_board__shows_slots_queue_decision_and_why(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["bob"])
    assert page.locator(".card").count() == 8
    page.locator(".slot.busy").first.wait_for()
    says(page, "#decision", "Start ")
    says(page, "#decision", "Why these slices")
    says(page, "#decision", "pass")
    says(page, "#queue", "job")
    says(page, "#guard", "refused")
    page.get_by_text("Running jobs as a table").click()
    page.locator("#running tbody tr").first.wait_for()
    before = page.locator("#tiles dd").first.inner_text()
    playwright.expect(page.locator("#tiles dd").first).not_to_have_text(before, timeout=WAIT_MS)


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_board__has_no_serious_violation_and_fits(page: Any, tokens: dict[str, str], width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    sign_in(page, tokens["ann"])
    page.locator("#found tbody tr").first.wait_for()
    says(page, "#decision", "Start ")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_control__viewers_only_look(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["bob"])
    says(page, "#control-note", "Your token may look")
    for name in ("Pause", "Kill switch"):
        assert page.get_by_role("button", name=name).is_disabled()
    assert page.get_by_role("radio", name="shadow").is_disabled()


def test_control__mode_pause_and_kill_switch_by_keyboard(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["ann"])
    page.locator("#modes input[value=act]:checked").wait_for(state="attached")
    page.locator("#modes input[value=act]").focus()
    page.keyboard.press("ArrowLeft")
    says(page, "#summary", "Mode shadow: the cluster schedules by itself")
    page.keyboard.press("ArrowRight")
    says(page, "#sure", "Switch to act?")
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#modes input[value=shadow]")).to_be_checked()
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Switch to act").press("Enter")
    says(page, "#summary", "Mode act: smartmig schedules")

    page.get_by_role("button", name="Pause").press("Enter")
    says(page, "#summary", "paused")
    page.get_by_role("button", name="Resume").press("Enter")
    says(page, "#pause", "Pause")

    page.get_by_role("button", name="Kill switch").press("Enter")
    assert serious(page) == []
    page.get_by_role("button", name="Cancel").press("Enter")
    playwright.expect(page.locator("#banner")).to_be_empty(timeout=WAIT_MS)
    page.get_by_role("button", name="Kill switch").press("Enter")
    page.get_by_label("Reason, for the journal").fill("trying it out")
    page.get_by_role("button", name="Throw the kill switch").press("Enter")
    says(page, "#banner", "The kill switch is on")
    page.get_by_role("button", name="Take the kill switch back").press("Enter")
    page.get_by_role("button", name="Take it back").press("Enter")
    playwright.expect(page.locator("#banner")).to_be_empty(timeout=WAIT_MS)

    page.get_by_label("Kind").select_option("audit")
    page.get_by_label("Holds the text").fill("trying it out")
    page.get_by_label("Holds the text").press("Enter")
    says(page, "#found", "ann: kill (why trying it out)")


def test_control__waits_for_the_first_state(page: Any, tokens: dict[str, str]) -> None:
    waiting: list[Any] = []
    page.route("**/api/v1/board", lambda route: waiting.append(route))
    sign_in(page, tokens["ann"], "#who:not(:empty)")
    buttons = [page.get_by_role("button", name=name) for name in ("Pause", "Kill switch")]
    for one in (*buttons, *page.locator("#modes input").all()):
        playwright.expect(one).to_be_disabled()
    waiting[0].continue_()
    page.unroute("**/api/v1/board")
    for one in (*buttons, *page.locator("#modes input").all()):
        playwright.expect(one).to_be_enabled()


def test_control__an_enter_too_many_throws_no_kill_switch(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["ann"])
    changes: list[str] = []
    page.on("request", lambda request: request.method == "POST" and changes.append(request.url))
    page.get_by_role("button", name="Kill switch").press("Enter")
    playwright.expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#sure")).to_be_hidden()
    page.get_by_role("button", name="Kill switch").press("Enter")
    page.get_by_label("Reason, for the journal").fill("a reason")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("button", name="Throw the kill switch")).to_be_focused()
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#sure")).to_be_hidden()
    assert changes == []


def test_control__a_refused_mode_leaves_the_focus_on_the_one_that_holds(page: Any, tokens: dict[str, str]) -> None:
    page.expected.append("status of 503")
    refused = {"status": 503, "content_type": "application/json", "body": '{"detail": "the store is away"}'}
    page.route("**/api/v1/mode", lambda route: route.fulfill(**refused))
    sign_in(page, tokens["ann"])
    page.locator("#modes input:checked").wait_for(state="attached")
    held = page.locator("#modes input:checked").get_attribute("value")
    page.locator("#modes input[value=act]").focus()
    page.keyboard.press("ArrowLeft")
    says(page, "#alert", "Not done: the store is away")
    playwright.expect(page.locator(f"#modes input[value={held}]")).to_be_checked()
    playwright.expect(page.locator(f"#modes input[value={held}]")).to_be_focused()


def one_mode(page: Any, mode: str) -> None:
    """Checked, and the one that arrows go on from."""
    for state in ("checked", "focused"):
        getattr(playwright.expect(page.locator(f"#modes input[value={mode}]")), f"to_be_{state}")(timeout=WAIT_MS)


def set_mode(page: Any, daemon: Daemon, token: str, mode: str) -> None:
    """By somebody else."""
    headers = {"Authorization": f"Bearer {token}"}
    assert page.request.post(f"{daemon.url}/api/v1/mode", headers=headers, data={"mode": mode}).ok


def test_control__a_change_whose_answer_is_lost_parts_no_focus_and_mode(
    page: Any, tokens: dict[str, str], daemon: Daemon
) -> None:
    page.expected.append("ERR_FAILED")
    set_mode(page, daemon, tokens["ann"], "act")
    sign_in(page, tokens["ann"])

    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route("**/api/v1/mode", lose)
    page.locator("#modes input[value=act]").focus()
    page.keyboard.press("ArrowLeft")
    says(page, "#summary", "Mode shadow: the cluster schedules by itself")
    one_mode(page, "shadow")
    page.unroute("**/api/v1/mode")
    page.keyboard.press("ArrowRight")
    says(page, "#sure", "Switch to act?")
    page.keyboard.press("Escape")
    one_mode(page, "shadow")
    set_mode(page, daemon, tokens["ann"], "act")


def test_control__a_change_that_is_slow_parts_no_focus_and_mode(
    page: Any, tokens: dict[str, str], daemon: Daemon
) -> None:
    set_mode(page, daemon, tokens["ann"], "act")
    sign_in(page, tokens["ann"])
    done: list[Any] = []
    page.route("**/api/v1/mode", lambda route: done.append((route, route.fetch())))
    page.locator("#modes input[value=act]").focus()
    page.keyboard.press("ArrowLeft")
    says(page, "#summary", "Mode shadow: the cluster schedules by itself")
    page.keyboard.press("ArrowRight")
    says(page, "#sure", "Switch to act?")
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#sure")).to_be_hidden()
    route, answer = done.pop()
    route.fulfill(response=answer)
    one_mode(page, "shadow")
    page.unroute("**/api/v1/mode")
    set_mode(page, daemon, tokens["ann"], "act")


def test_control__a_change_by_somebody_else_takes_the_focus_along(
    page: Any, tokens: dict[str, str], daemon: Daemon
) -> None:
    set_mode(page, daemon, tokens["ann"], "act")
    sign_in(page, tokens["ann"])
    page.locator("#modes input[value=act]").focus()
    one_mode(page, "act")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    there = page.evaluate("scrollY")
    set_mode(page, daemon, tokens["ann"], "observe")
    one_mode(page, "observe")
    assert page.evaluate("scrollY") > there / 2, "nobody asked to be taken there"
    set_mode(page, daemon, tokens["ann"], "act")
    one_mode(page, "act")


def test_sign_in__a_late_refusal_of_one_token_leaves_the_next_one(page: Any, tokens: dict[str, str]) -> None:
    page.expected.append("status of 401")
    late: list[Any] = []
    page.route(
        "**/api/v1/who",
        lambda route: late.append(route) if "wrong" in route.request.headers["authorization"] else route.continue_(),
    )
    page.get_by_label("Token").fill("ann.wrong")
    with page.expect_request("**/api/v1/who"):
        page.get_by_label("Token").press("Enter")
    sign_in(page, tokens["ann"])
    with page.expect_response("**/api/v1/who"):
        late[0].continue_()
    page.wait_for_timeout(200)
    playwright.expect(page.locator("#board")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 1


def test_session__signing_out_ends_the_look_at_the_past(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["ann"])
    page.get_by_role("button", name="Earlier recorded state").click()
    says(page, "#banner", "You look at the past")
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, tokens["ann"])
    playwright.expect(page.locator("#moment-text")).to_have_text("now")
    playwright.expect(page.locator("#now")).to_be_hidden()
    playwright.expect(page.locator("#cluster-title")).to_have_text("Cluster")


def test_journal__a_slow_search_does_not_replace_a_newer_one(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["bob"])
    late: list[Any] = []
    page.route("**/api/v1/journal?*text=slow*", lambda route: late.append(route))
    page.get_by_label("Holds the text").fill("slow")
    with page.expect_request("**/api/v1/journal?*text=slow*"):
        page.get_by_label("Holds the text").press("Enter")
    page.get_by_label("Holds the text").fill("quick, and nowhere")
    page.get_by_label("Holds the text").press("Enter")
    says(page, "#found", "No record holds “quick, and nowhere”")
    with page.expect_response("**/api/v1/journal?*text=slow*"):
        late[0].fulfill(json=[{"seq": 1, "time_s": 0, "session": "s", "kind": "error", "body": {"what": "late"}}])
    page.wait_for_timeout(200)
    says(page, "#found", "No record holds “quick, and nowhere”")


def test_session__comes_back_once_when_the_server_was_away(page: Any, tokens: dict[str, str]) -> None:
    page.expected.append("status of 503")
    sign_in(page, tokens["ann"])
    waiting: list[Any] = []
    refused = {"status": 503, "content_type": "application/json", "body": '{"detail": "away"}'}
    page.route("**/api/v1/who", lambda route: waiting.append(route) if waiting else route.fulfill(**refused))
    streams: list[str] = []
    page.on("request", lambda request: request.url.endswith("/events") and streams.append(request.url))
    with page.expect_response("**/api/v1/who"):
        page.reload()
    waiting.append(None)
    page.wait_for_timeout(7000)
    assert len(waiting) == 2, "one question at a time"
    waiting[1].continue_()
    says(page, "#who", "ann, operator")
    page.wait_for_timeout(500)
    assert len(streams) == 1

    page.unroute("**/api/v1/who")
    page.route("**/api/v1/who", lambda route: route.fulfill(**refused))
    with page.expect_response("**/api/v1/who"):
        page.reload()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_timeout(3000)
    assert page.locator("#sign-in").is_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_journal__search_and_travel_to_what_was(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["bob"])
    page.get_by_label("Holds the text").fill("no such thing anywhere")
    page.get_by_role("button", name="Search").click()
    says(page, "#found", "No record holds")
    page.get_by_label("Holds the text").fill("")
    page.get_by_label("Kind").select_option("decision")
    page.get_by_role("button", name="Search").click()
    row = page.locator("#found tbody tr").nth(3)
    row.locator("summary").click()
    assert '"mode"' in row.locator("pre").inner_text()
    row.get_by_role("button").click()
    says(page, "#banner", "You look at the past")
    then = page.locator("#tiles dd").first.inner_text()
    page.wait_for_timeout(2500)
    assert page.locator("#tiles dd").first.inner_text() == then, "the past does not move on"
    moment = page.locator("#moment-text")
    there = moment.inner_text()
    page.get_by_role("button", name="Earlier recorded state").click()
    playwright.expect(moment).not_to_have_text(there, timeout=WAIT_MS)
    page.get_by_role("button", name="Later recorded state").click()
    playwright.expect(moment).to_have_text(there, timeout=WAIT_MS)
    page.get_by_label("Moment").focus()
    page.keyboard.press("Home")
    says(page, "#moment-text", "no state was recorded before this")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    says(page, "#moment-text", "record")
    assert serious(page) == []
    page.get_by_role("button", name="Back to now").click()
    playwright.expect(page.locator("#banner")).to_be_empty(timeout=WAIT_MS)


def test_board__a_part_that_fails_leaves_the_rest(page: Any, tokens: dict[str, str]) -> None:
    page.expected.append("status of 503")
    refused = {"status": 503, "content_type": "application/json", "body": '{"detail": "the store is away"}'}
    page.route("**/api/v1/guard", lambda route: route.fulfill(**refused))
    sign_in(page, tokens["bob"])
    says(page, "#banner", "Part of the page could not be loaded: the store is away")
    assert page.locator(".card").count() == 8
    says(page, "#decision", "Decision ")


def test_board__says_why_there_is_no_comparison(page: Any, tokens: dict[str, str]) -> None:
    why = "the policy cannot be simulated: ValueError: a plugged-in rule fails"

    def fail(route: Any) -> None:
        route.fulfill(json={**route.fetch().json(), "policy": None, "why": why})

    page.route("**/api/v1/effect", fail)
    sign_in(page, tokens["bob"])
    says(page, "#effect", f"There is no comparison: {why}")


def test_page__holds_no_script_of_its_own_and_no_stranger_s(page: Any, daemon: Daemon) -> None:
    answer = page.request.get(daemon.url)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    assert asked
    assert all(url.startswith((daemon.url, "data:")) for url in asked), asked
    assert page.request.get(f"{daemon.url}/static/..%2fapp.py").status == 404


def test_page__says_stale_and_comes_back_with_the_server(
    page: Any, tokens: dict[str, str], serve: Serve, daemon: Daemon
) -> None:
    sign_in(page, tokens["bob"])
    page.expected.extend(AWAY)
    assert daemon.stop() == 0
    says(page, "#banner", "Stale: the server has not answered")
    assert serious(page) == []
    serve("simulated:nodes=2x4,load=3,speedup=600")
    playwright.expect(page.locator("#banner")).not_to_contain_text("Stale", timeout=WAIT_MS)
    page.locator(".whole .slot.busy").first.wait_for()
    assert page.locator(".card").count() == 2
    says(page, "#decision", "Why these jobs and nodes")
    assert serious(page) == []
