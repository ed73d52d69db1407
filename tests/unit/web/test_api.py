"""The application itself, asked without a network: what it refuses, and how."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from live_cluster import GANG_NAMES, gang_loop
from smartmig.cli.live_policy import FALLBACK
from smartmig.control.books import Finished
from smartmig.control.decide import Decider
from smartmig.control.effect import Effect
from smartmig.control.tokens import Role, add_token, revoke_token, still_holds
from smartmig.policy.selection.fcfs import Fcfs
from smartmig.types import JobKey, JobRequest
from smartmig.web.app import MOST_SEARCHES, Server, create_app
from smartmig.web.guarding import MOST_BODY_BYTES, RateLimit
from smartmig.web.passes import MOST_EACH, Passes
from smartmig.web.playground.runs import Playground
from strategies import make_gangs


class Site:
    """The application on a small cluster, and a token for each role."""

    def __init__(self, folder: Path) -> None:
        self.loop, _ = gang_loop(folder, make_gangs((0, 4, 30, 40), (0, 3, 20, 60), (0, 8, 20, 60)))
        self.tokens = {role: add_token(self.loop.journal.engine, role.value, role) for role in Role}
        worlds = ("gang",)
        self.server = Server(self.loop, GANG_NAMES.policy(worlds), FALLBACK.policy(worlds))
        self.playground = Playground(folder / "playground", self.server.hub.tell)
        self.ending = False
        self.app = create_app(self.server, self.playground, RateLimit(1e9, 1e9), ends=lambda: self.ending)

    def ask(self, path: str, role: Role | None = Role.operator, app: Any = None, **request: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role is not None else {}
        headers |= request.pop("headers", {})

        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(app or self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
                return await client.request(request.pop("method", "GET"), path, headers=headers, **request)

        return asyncio.run(run())

    def send(self, path: str, text: str | bytes, role: Role | None = Role.operator) -> httpx.Response:
        return self.ask(path, role, method="POST", content=text, headers={"Content-Type": "application/json"})

    def close(self) -> None:
        self.playground.close()
        self.loop.journal.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


RUNS = "/api/v1/playground/runs"


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        (RUNS, '{"world": "mig", "multiplier": NaN, "policies": [{}]}', "multiplier"),
        (RUNS, '{"world": "mig", "multiplier": Infinity, "policies": [{}]}', "multiplier"),
        (RUNS, '{"world": "mig", "days": 1e999, "policies": [{}]}', "days"),
        (RUNS, '{"world": "mig", "gpus": "\\ud800", "policies": [{}]}', "gpus"),
        (RUNS, '{"world": "\\ud800"}', "body"),
        (RUNS, '{"world": "mig", "policies": [{}], "\\ud800": 1}', "unicode"),
        ("/api/v1/mode", '{"mode": "\\ud800"}', "mode"),
        ("/api/v1/mode", '{"mode": NaN}', "mode"),
        ("/api/v1/kill", '{"why": "\\ud800"}', "why"),
    ],
)
def test_wishes__that_json_cannot_say_again_are_refused_by_name(site: Site, path: str, body: str, where: str) -> None:
    answer = site.send(path, body)
    assert answer.status_code == 422, answer.text
    assert where in answer.text
    assert all(set(one) == {"type", "loc", "msg"} for one in answer.json()["detail"])


def test_bodies__are_read_only_of_those_with_a_token_and_only_a_little(site: Site) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 100 * MOST_BODY_BYTES:
            read += 1024
            yield b" " * 1024

    for path in (RUNS, "/api/v1/mode", "/api/v1/kill", "/nowhere"):
        assert site.ask(path, None, method="POST", content=endless()).status_code == 401
    assert read == 0
    answer = site.ask("/api/v1/mode", method="POST", content=endless(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (413, {"detail": "the body is too large: allowed are 65,536 bytes"})
    assert read <= MOST_BODY_BYTES + 2048
    assert site.send("/api/v1/mode", b'{"mode": "act"}' + b" " * (MOST_BODY_BYTES - 15)).status_code == 200


def test_kill__needs_a_reason_and_leaves_everything_alone_without_one(site: Site) -> None:
    for body in (b"", b"{}", b'{"why": ""}', b"null"):
        assert site.send("/api/v1/kill", body).status_code == 422
    assert not site.loop.killed


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/events?only=plans", "playground"),
        ("/api/v1/journal?kind=plans", "audit"),
        ("/api/v1/journal?text=%00", "text"),
    ],
)
def test_queries__that_nothing_can_answer_are_refused(site: Site, path: str, allowed: str) -> None:
    answer = site.ask(path)
    assert answer.status_code == 422
    assert allowed in answer.text


class Broken(Fcfs):
    """A plugged-in selection that meets what it was not made for."""

    def keys(self, *_: Any) -> Any:
        raise ValueError("a plugged-in rule fails")


def test_board__goes_on_when_a_rule_fails_and_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path)
    server, loop = site.server, site.loop
    assert server.policy.gang is not None
    server.policy = replace(server.policy, gang=replace(server.policy.gang, selection=Broken()))
    loop.pilot.decider = Decider(server.policy)
    loop.books.finished.append(Finished(JobRequest(JobKey("1", 0.0), 4, 40.0), 0.0, 30.0))
    loop.source.wait(1e9)
    server.eventful = loop.step()
    plan = site.ask("/api/v1/board").json()["plan"]
    assert "a plugged-in rule fails" in plan["fallback"]
    assert plan["alternatives"] == {"queue": [], "slices": [], "cuts": []}
    assert site.ask("/api/v1/plans/last").json()["alternatives"] == plan["alternatives"]
    effect = site.ask("/api/v1/effect").json()
    assert (effect["policy"], effect["baseline"]["n_jobs"], effect["measured"]["n_jobs"]) == (None, 1, 1)
    assert effect["why"] == "the policy cannot be simulated: ValueError: a plugged-in rule fails"
    site.close()


def test_board__waits_for_no_estimate(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(*_: Any) -> Effect:
        began.set()
        assert go_on.wait(60)
        return Effect(1, 0.0, 0.0, 0.0)

    site.loop.step()
    monkeypatch.setattr(site.server, "eventful", site.loop.turn)
    monkeypatch.setattr(site.server, "_effect", None)
    monkeypatch.setattr("smartmig.web.app.estimated", slow)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(site.ask, "/api/v1/effect")
        try:
            assert began.wait(60)
            assert site.ask("/api/v1/board").status_code == 200
        finally:
            go_on.set()
        assert asked.result(60).json()["policy"]["n_jobs"] == 1


def test_events__end_when_the_token_is_revoked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartmig.web.events.ASK_EVERY_S", 0.0)
    token = add_token(site.loop.journal.engine, "guest", Role.viewer)

    async def heard() -> list[str]:
        stream = site.server.hub.listen(lambda: False, may=partial(still_holds, site.loop.journal.engine, "guest"))
        said = [await anext(stream)]
        site.server.hub.tell("audit", {})
        said.append(await anext(stream))
        revoke_token(site.loop.journal.engine, "guest")
        said += [one async for one in stream]
        return said

    assert asyncio.run(asyncio.wait_for(heard(), 30)) == [": smartmig events\n\n", "id: 1\nevent: audit\ndata: {}\n\n"]
    assert site.ask("/api/v1/who", None, headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_events__one_holder_has_only_so_many_streams(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartmig.web.events.MOST_STREAMS", 3)
    streams = site.server.hub.streams
    headers = [{"Authorization": f"Bearer {site.tokens[role]}"} for role in (Role.viewer, Role.operator)]

    async def asked() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(site.app), base_url="http://testserver") as client:
            held = [asyncio.create_task(client.get("/events", headers=headers[0])) for _ in range(3)]
            while streams["viewer"] < 3:
                await asyncio.sleep(0.01)
            fourth = await client.get("/events", headers=headers[0])
            assert "'viewer' has 3" in fourth.text
            other = asyncio.create_task(client.get("/events", headers=headers[1]))
            while streams["operator"] < 1:
                await asyncio.sleep(0.01)
            site.ending = True
            return [fourth.status_code, *[(await one).status_code for one in (*held, other)]]

    try:
        assert asyncio.run(asyncio.wait_for(asked(), 60)) == [429, 200, 200, 200, 200]
    finally:
        site.ending = False
    assert not streams


def test_playground__starting_and_cancelling_a_run_are_audited(site: Site) -> None:
    wish = '{"world": "mig", "gpus": "1xa100-40gb", "days": 20, "policies": [{}]}'
    run = site.send(RUNS, wish, Role.viewer).json()["id"]
    assert site.send(f"{RUNS}/{run}/cancel", "").status_code == 200
    assert site.send(f"{RUNS}/{run}/cancel", "").status_code == 200
    site.loop.journal.sync(30)
    records = site.ask("/api/v1/journal?kind=audit&text=playground").json()
    assert [(one["body"]["who"], one["body"]["what"], one["body"]["run"]) for one in records] == [
        ("viewer", "playground run", run),
        ("operator", "playground cancel", run),
    ]


def report_of(site: Site) -> str:
    """The address of a report that is there."""
    run = site.send(RUNS, '{"world": "mig", "gpus": "1xa100-40gb", "days": 20, "policies": [{}]}').json()["id"]
    site.send(f"{RUNS}/{run}/cancel", "")
    site.playground._runs[run] = site.playground._runs[run].model_copy(update={"status": "done"})
    (site.playground.folder / run / "report.html").write_text("<!DOCTYPE html>")
    return f"/playground/{run}/report"


def test_login__gives_a_pass_to_reports_and_to_nothing_else(site: Site) -> None:
    report = report_of(site)
    told = site.send("/api/v1/login", "").headers["set-cookie"]
    assert site.tokens[Role.operator].partition(".")[2] not in told
    assert {"HttpOnly", "Path=/playground", "SameSite=strict"} <= set(told.split("; "))
    cookie = {"Cookie": told.partition(";")[0]}
    assert site.ask(report, None).status_code == 401
    assert site.ask(report, None, headers=cookie).text == "<!DOCTYPE html>"
    assert site.ask(report, None, headers={**cookie, "Authorization": "Bearer ann.wrong"}).status_code == 401
    for path in ("/api/v1/state", "/api/v1/who", "/events", RUNS, "/metrics"):
        assert site.ask(path, None, headers=cookie).status_code == 401
    for path in ("/api/v1/pause", "/api/v1/login", "/api/v1/logout"):
        assert site.ask(path, None, method="POST", headers=cookie).status_code == 401
    assert "Max-Age=0" in site.send("/api/v1/logout", "").headers["set-cookie"]
    assert site.ask(report, None, headers=cookie).status_code == 401


def test_login__a_pass_ends_with_its_token(site: Site) -> None:
    report = report_of(site)
    engine = site.loop.journal.engine
    bearer = {"Authorization": f"Bearer {add_token(engine, 'leaver', Role.viewer)}"}
    told = site.ask("/api/v1/login", None, method="POST", headers=bearer).headers["set-cookie"]
    cookie = {"Cookie": told.partition(";")[0]}
    assert site.ask(report, None, headers=cookie).status_code == 200
    revoke_token(engine, "leaver")
    assert site.ask(report, None, headers=cookie).status_code == 401


def test_passes__are_few_and_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Passes()
    bob = given.give("bob")
    first, second, *_, last = [given.give("ann") for _ in range(MOST_EACH + 1)]
    assert [given.holder(one) for one in (first, second, last, bob)] == [None, "ann", "ann", "bob"]
    monkeypatch.setattr("smartmig.web.passes.AGE_S", -1.0)
    assert given.holder(given.give("ann")) is None
    assert len(given.held["ann"]) == MOST_EACH
    assert given.holder("") is None


def test_journal__is_searched_by_a_few_at_a_time(site: Site) -> None:
    for _ in range(MOST_SEARCHES):
        assert site.server.searching.acquire(blocking=False)
    refused = site.ask("/api/v1/journal?text=x")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert site.ask("/api/v1/journal").status_code == 200
    site.server.searching.release()
    for _ in range(5):
        assert site.ask("/api/v1/journal?text=x").status_code == 200
