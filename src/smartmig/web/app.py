"""The API: shows what the loop sees and does, and passes on what operators ask for. It never decides.

Every route but `/health` asks for a token; those that change something ask for an operator's and leave an audit record.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Query, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from smartmig import __version__
from smartmig.control.books import Finished
from smartmig.control.decide import Decider, LivePolicy
from smartmig.control.effect import Effect, estimated, measured
from smartmig.control.explain import explain
from smartmig.control.journal import KINDS
from smartmig.control.loop import Loop, Turn
from smartmig.control.pilot import FAILURES
from smartmig.control.tokens import Holder, Role, still_holds
from smartmig.control.wire import action_to_json, plan_to_json
from smartmig.errors import SimulationError, SmartmigError
from smartmig.types import ClusterState, NodeInfo, Start
from smartmig.web.answers import (
    Board,
    Changed,
    EffectAnswer,
    EffectOf,
    GuardAnswer,
    Health,
    KillWish,
    ModeWish,
    PlanAnswer,
    QueueAnswer,
    RecordAnswer,
    RecordedAnswer,
    Span,
    StateAnswer,
    WhoAnswer,
)
from smartmig.web.events import Hub, Stream
from smartmig.web.guarding import COOKIE, COOKIE_PATH, BodyGate, Doorkeeper, RateLimit, asks_for, asks_for_pass
from smartmig.web.metrics import Metrics
from smartmig.web.pages import add_pages
from smartmig.web.playground.routes import add_playground
from smartmig.web.playground.runs import Playground
from smartmig.web.view import queued_jobs, recorded_answer, state_answer

Event = Literal["state", "decision", "outcome", "audit", "error", "playground"]
NO_NUL = "^[^\\x00]*$"
"""JSON has no such character, and databases take none."""

EFFECT_EVERY_S = 30.0
"""An estimate simulates thousands of jobs: not for every request."""

SILENT_S = 60.0
"""A loop that has not looked for so long, beyond three periods, is stuck."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "no valid token"},
    403: {"description": "the token's role is not enough"},
    413: {"description": "the body is too large"},
    429: {"description": "too many requests"},
}


MOST_SEARCHES = 3
"""for a text, at a time: each reads a second long, and takes turns with the thread that decides"""

Estimates = tuple[EffectOf, EffectOf | None, EffectOf | None, str]
"""what happened, our policy and the baseline on the same jobs, and why one of the two is missing"""


class Server:
    """What the routes share."""

    def __init__(self, loop: Loop, policy: LivePolicy, baseline: LivePolicy, seed: int = 0) -> None:
        self.loop, self.policy, self.baseline, self.seed = loop, policy, baseline, seed
        self.hub, self.metrics = Hub(), Metrics(loop)
        self._explainer: Decider | None = None
        self._explaining, self._estimating = threading.Lock(), threading.Lock()
        self._effect: tuple[float, Estimates] | None = None
        self.searching = threading.BoundedSemaphore(MOST_SEARCHES)
        self.eventful: Turn | None = None
        """the newest decision that wanted, did or was refused something"""
        loop.listener = self.hear

    def hear(self, event: str, body: dict[str, Any]) -> None:
        self.metrics.hear(event, body)
        if event == "decision" and (body["plan"] or body["refused"] or body.get("wanted")):
            self.eventful = self.loop.turn
        self.hub.tell(event, body)

    def state(self) -> ClusterState:
        state = self.loop.seen
        if state is None:
            raise HTTPException(503, "the cluster has not been seen yet", {"Retry-After": "1"})
        return state

    def health(self) -> Health:
        loop = self.loop
        detail = loop.trouble or loop.journal.failed
        silent_s = time.monotonic() - loop.looked_s
        if not detail and silent_s > SILENT_S + 3 * loop.settings.period_s:
            detail = f"the cluster has not been seen for {silent_s:.0f} s"
        status = "killed" if loop.killed else "degraded" if detail or loop.stopping else "ok"
        return Health(status=status, version=__version__, mode=loop.mode, detail=detail[:300])  # type: ignore[arg-type]

    def alternatives(self, turn: Turn) -> dict[str, Any]:
        """By a decider of our own: the loop's is busy deciding. Empty where the rule fails: `fallback` says so."""
        with self._explaining:
            if self._explainer is None:
                self._explainer = Decider(self.policy, self.seed)
            began = {action.key for action in turn.judged.plan if isinstance(action, Start)}
            try:
                return explain(self._explainer, turn.state, self.loop.pilot.memory, also=began)
            except FAILURES:
                return {"queue": [], "slices": [], "cuts": []}

    def effect(self) -> EffectAnswer:
        books = self.loop.books
        really, policy, baseline, why = self._estimates()
        return EffectAnswer(
            energy_j=books.energy_j,
            busy_frac=books.busy_frac,
            n_submitted=books.n_submitted,
            n_started=books.n_started,
            n_finished=books.n_finished,
            mean_wait_s=books.mean_wait_s,
            mean_late_s=books.mean_late_s,
            n_late=books.n_late,
            measured=really,
            policy=policy,
            baseline=baseline,
            why=why,
        )

    def _estimates(self) -> Estimates:
        """Now and then; until it is made, the last one holds."""
        held = self._effect
        if held is not None and (
            time.monotonic() - held[0] < EFFECT_EVERY_S or not self._estimating.acquire(blocking=False)
        ):
            return held[1]
        if held is None:
            self._estimating.acquire()
        try:
            if self._effect is held:
                made = _estimates_of(list(self.loop.books.finished), self.state().nodes, self.policy, self.baseline)
                self._effect = time.monotonic(), made
            assert self._effect is not None
            return self._effect[1]
        finally:
            self._estimating.release()


def _estimates_of(
    finished: Sequence[Finished], nodes: Sequence[NodeInfo], policy: LivePolicy, baseline: LivePolicy
) -> Estimates:
    made: list[EffectOf | None] = []
    why = ""
    for name, one in (("policy", policy), ("baseline", baseline)):
        try:
            made.append(_effect_of(estimated(finished, nodes, one)))
        except SimulationError as error:
            made.append(None)
            why = why or f"the {name} cannot be simulated: {error}"[:300]
    return _effect_of(measured(finished)), made[0], made[1], why if finished else ""


def _effect_of(effect: Effect) -> EffectOf:
    return EffectOf(**asdict(effect))


def create_app(
    server: Server, playground: Playground, limit: RateLimit | None = None, ends: Callable[[], bool] = lambda: False
) -> FastAPI:
    """The application for a running loop."""
    loop = server.loop
    app = FastAPI(title="smartmig", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    keeper = Doorkeeper(loop.journal.engine, limit or RateLimit())
    app.add_middleware(BodyGate, keeper=keeper)
    viewer, operator = (asks_for(role, keeper) for role in (Role.viewer, Role.operator))
    reads: dict[str, Any] = {"dependencies": [Depends(viewer)], "responses": REFUSALS, "tags": ["look"]}
    changes: dict[str, Any] = {"responses": REFUSALS, "tags": ["change"]}
    Operator = Annotated[Holder, Depends(operator)]

    @app.exception_handler(SmartmigError)
    def refuse(request: Any, error: SmartmigError) -> JSONResponse:
        del request
        return JSONResponse({"detail": str(error)}, 503)

    @app.exception_handler(RequestValidationError)
    def explain(request: Any, error: RequestValidationError) -> Response:
        """What is wrong and where, without what was sent: not all of that can be said again in JSON."""
        del request
        told = [{"type": one["type"], "loc": one["loc"], "msg": one["msg"]} for one in error.errors()]
        # In ASCII, as the names of unknown fields are the sender's too, and may hold half a character.
        return Response(json.dumps({"detail": told}), 422, media_type="application/json")

    @app.get("/health", tags=["look"])
    async def health() -> Health:
        """Whether the loop turns; the only route without a token."""
        return server.health()  # on no thread of the pool: it answers when all of those wait for a database

    @app.get("/api/v1/state", **reads)
    def state() -> StateAnswer:
        """Nodes, cards and slots, and who is on them."""
        return state_answer(loop, server.state())

    @app.get("/api/v1/queue", **reads)
    def queue(
        first: Annotated[int, Query(ge=0, le=10**9)] = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> QueueAnswer:
        """Jobs that wait, by submission."""
        seen = server.state()
        return QueueAnswer(time_s=seen.time_s, n_queued=len(seen.queued), jobs=queued_jobs(seen, first, limit))

    @app.get("/api/v1/plans/last", **reads)
    def last_plan(alternatives: bool = True, eventful: bool = False) -> PlanAnswer | None:
        """The newest decision (`eventful`: that wanted something), what the guard said, and what else could have been
        done; null before the first."""
        turn = server.eventful if eventful else loop.turn
        if turn is None:
            return None
        judged = turn.judged
        return PlanAnswer(
            number=turn.number,
            time_s=turn.state.time_s,
            mode=turn.mode,
            acted=turn.acted,
            took_s=turn.took_s,
            wanted=plan_to_json(judged.wanted),
            plan=plan_to_json(judged.plan),
            refused=[
                {"action": action_to_json(one.action) if one.action is not None else None, "why": one.why}
                for one in judged.refused
            ],
            fallback=judged.fallback,
            alternatives=server.alternatives(turn) if alternatives else {},
        )

    @app.get("/api/v1/plans", **reads)
    def plans(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> list[RecordAnswer]:
        """The newest decisions from the journal, newest first."""
        found = loop.journal.reader.records(kinds=("decision",), limit=limit, newest=True)
        return [RecordAnswer(**asdict(record)) for record in found]

    @app.get("/api/v1/journal", **reads)
    def journal(
        after: Annotated[int, Query(ge=0, le=2**62)] = 0,
        kind: Annotated[Sequence[str] | None, Query(description=f"one or more of {', '.join(KINDS)}")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        newest: bool = False,
        before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        text: Annotated[
            str, Query(max_length=200, pattern=NO_NUL, description="only records whose JSON holds it")
        ] = "",
    ) -> list[RecordAnswer]:
        """Records in order, or the newest first."""
        kinds = tuple(kind or ())
        if not set(kinds) <= set(KINDS):
            raise HTTPException(422, f"kind: allowed are {', '.join(KINDS)}")
        if text and not server.searching.acquire(blocking=False):
            raise HTTPException(429, f"{MOST_SEARCHES} searches for a text are under way", {"Retry-After": "2"})
        try:
            found = loop.journal.reader.records(after, kinds, limit, newest, before, text)
            return [RecordAnswer(**asdict(record)) for record in found]
        finally:
            if text:
                server.searching.release()

    @app.get("/api/v1/journal/span", **reads)
    def span() -> Span | None:
        """The first and the newest record; null when there is none."""
        found = loop.journal.reader.span()
        return Span(first=found[0], newest=found[1]) if found is not None else None

    @app.get("/api/v1/board", **reads)
    def board() -> Board:
        """Health, state, the head of the queue, the last decision that wanted something and the journal's span: what
        the dashboard asks for every second, in one answer."""
        plan = last_plan(alternatives=True, eventful=True)
        return Board(health=server.health(), state=state(), queue=queue(first=0, limit=50), plan=plan, span=span())

    @app.get("/api/v1/journal/state", **reads, description="The newest recorded state up to a record.")
    def recorded(at: Annotated[int, Query(ge=0, le=2**62)]) -> RecordedAnswer | None:
        """Null before the first."""
        return recorded_answer(loop.journal.reader, at)

    @app.get("/api/v1/who", **reads)
    def who(holder: Annotated[Holder, Depends(viewer)]) -> WhoAnswer:
        """Whose token this is, and what it allows."""
        return WhoAnswer(name=holder.name, role=holder.role)

    @app.get("/api/v1/effect", **reads)
    def effect() -> EffectAnswer:
        """Energy, waiting and lateness so far; beside what the policy and a plain baseline make of the same jobs."""
        return server.effect()

    @app.get("/api/v1/guard", **reads)
    def guard() -> GuardAnswer:
        """What is allowed, and what was refused of late."""
        return GuardAnswer(
            rules=asdict(loop.pilot.rules),
            refused=list(loop.refusals)[-50:],
            n_refused=loop.counts.refused,
            n_fallbacks=loop.counts.fallbacks,
            drift_checked=loop.turn is not None and loop.turn.judged.drift_checked,
        )

    @app.get("/events", response_class=StreamingResponse, responses=REFUSALS, tags=["look"])
    def events(
        holder: Annotated[Holder, Depends(viewer)],
        only: Annotated[Event | None, Query(description="this kind of event and no other")] = None,
    ) -> Stream:
        """Server-sent events: state, decision, outcome, audit, error, playground."""
        heard = server.hub.listen(
            lambda: ends() or loop.stopping, only or "", partial(still_holds, loop.journal.engine, holder.name)
        )
        return Stream(server.hub, holder.name, heard)

    @app.get("/metrics", response_class=PlainTextResponse, **reads)
    def metrics() -> Response:
        """Prometheus text format."""
        return Response(generate_latest(server.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/openapi.json", **reads)
    def openapi() -> dict[str, Any]:
        """This description."""
        return get_openapi(title=app.title, version=app.version, routes=app.routes, description=__doc__)

    def changed() -> Changed:
        return Changed(mode=loop.mode, paused=loop.paused, killed=loop.killed)

    @app.post("/api/v1/login", responses=REFUSALS, tags=["look"], status_code=204)
    def login(response: Response, holder: Annotated[Holder, Depends(viewer)]) -> None:
        """A cookie that scripts cannot read, for links to reports; it opens nothing else, and holds no token."""
        given = keeper.passes.give(holder.name)
        response.set_cookie(COOKIE, given, httponly=True, samesite="strict", path=COOKIE_PATH)

    @app.post("/api/v1/logout", responses=REFUSALS, tags=["look"], status_code=204)
    def logout(response: Response, holder: Annotated[Holder, Depends(viewer)]) -> None:
        """Take that cookie away again; those that the same token got elsewhere end, too."""
        keeper.passes.take_back(holder.name)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict", path=COOKIE_PATH)

    @app.post("/api/v1/pause", **changes)
    def pause(holder: Operator) -> Changed:
        """Look on, decide nothing; held jobs stay held."""
        loop.pause(True, holder.name)
        return changed()

    @app.post("/api/v1/resume", **changes)
    def resume(holder: Operator) -> Changed:
        """Decide again; also takes the kill switch back."""
        if loop.paused:
            loop.pause(False, holder.name)
        if loop.killed:
            loop.audit(holder.name, "resume", {})
            loop.revive(f"asked for by {holder.name}")
        return changed()

    @app.post("/api/v1/mode", **changes)
    def mode(wish: ModeWish, holder: Operator) -> Changed:
        """observe, shadow or act."""
        loop.change_mode(wish.mode, holder.name)
        return changed()

    @app.post("/api/v1/kill", **changes)
    def kill(wish: KillWish, holder: Operator) -> Changed:
        """The kill switch: the cluster's own scheduling, at once."""
        loop.audit(holder.name, "kill", {"why": wish.why})
        loop.kill(f"{holder.name}: {wish.why}")
        return changed()

    add_playground(app, playground, viewer, asks_for_pass(keeper), loop.audit, REFUSALS)
    add_pages(app)
    return app
