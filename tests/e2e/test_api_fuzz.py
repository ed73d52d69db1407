"""Schemathesis asks the API everything its description allows, and more: never a 5xx."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from live_cluster import GANG_NAMES, MIG_NAMES, gang_loop, mig_loop
from smartmig.cli.live_policy import FALLBACK
from smartmig.control.tokens import Role, add_token
from smartmig.web.app import Server, create_app
from smartmig.web.guarding import RateLimit
from smartmig.web.playground.runs import Playground
from smartmig.workload.diurnal import DiurnalDay
from strategies import make_gangs

JOBS = make_gangs((0, 4, 30, 40), (0, 3, 20, 60), (1, 8, 10, 20), (2, 1, 5, 10), (3, 2, 50, 60), user="uvuvu")


@pytest.fixture(scope="module", params=["gang", "mig"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("fuzz")
    worlds = (request.param,)
    if request.param == "gang":
        loop, _ = gang_loop(folder, JOBS)
    else:
        loop, _ = mig_loop(folder, DiurnalDay().jobs(1))
    for _ in range(3):
        loop.source.wait(1e9)
        loop.step()
    token = add_token(loop.journal.engine, "op", Role.operator)
    names = GANG_NAMES if request.param == "gang" else MIG_NAMES
    server = Server(loop, names.policy(worlds), FALLBACK.policy(worlds))
    playground = Playground(folder / "playground", server.hub.tell)
    app = create_app(server, playground, RateLimit(1e9, 1e9), ends=lambda: True)
    yield app, token
    playground.close()
    loop.journal.close()


@pytest.fixture(scope="module")
def description(made: Any) -> Any:
    app, token = made
    raw = send(app, method="GET", url="/openapi.json", headers={"Authorization": f"Bearer {token}"}).json()
    return schemathesis.openapi.from_dict(raw)


def send(app: Any, **request: Any) -> httpx.Response:
    """To the application itself: an exception inside it fails the test. `NotSent` for what no client can say."""

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            try:
                made = client.build_request(**request)
            except (httpx.InvalidURL, UnicodeError, TypeError, ValueError) as error:
                raise NotSent from error
            return await client.send(made)

    return asyncio.run(run())


class NotSent(Exception):
    pass


@pytest.mark.parametrize("wanted", list(GenerationMode))
def test_api__no_5xx_whatever_is_asked(made: Any, description: Any, wanted: GenerationMode) -> None:
    app, token = made
    n_cases = n_refused = 0
    for result in description.get_all_operations():
        operation = result.ok()

        @hypothesis.given(case=operation.as_strategy(wanted))
        @hypothesis.settings(
            max_examples=12, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), database=None
        )
        def ask(case: Any) -> None:
            nonlocal n_cases, n_refused
            sent = case.as_transport_kwargs(base_url="http://testserver")
            sent["headers"] = {**dict(sent.get("headers") or {}), "Authorization": f"Bearer {token}"}
            if isinstance(sent.get("data"), bytes):
                sent["content"] = sent.pop("data")
            try:
                answer = send(app, **{name: one for name, one in sent.items() if name not in ("timeout", "cookies")})
            except NotSent:
                return
            n_cases += 1
            n_refused += 400 <= answer.status_code < 500
            assert answer.status_code < 500, (sent, answer.text)
            if answer.status_code == 200 and "json" in answer.headers.get("content-type", ""):
                answer.json()

        with contextlib.suppress(Unsatisfiable):  # of a route without parameters nothing can be wrong
            ask()
    assert n_cases > 40
    assert n_refused > 20 or wanted is GenerationMode.POSITIVE
