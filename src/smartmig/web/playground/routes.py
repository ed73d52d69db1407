"""Routes of the playground: any token may look and run, as a run touches nothing; what it starts it may cancel."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from smartmig.control.tokens import Holder, Role
from smartmig.errors import InputError
from smartmig.hardware.model import gpu_model_ids
from smartmig.registry import ALLOCATIONS, PLACEMENTS, REPARTITIONS, SELECTIONS, described
from smartmig.report.theme import template
from smartmig.scenario import PAIRS
from smartmig.sim.gang.world import Backfill
from smartmig.web.playground.runs import MOST_S, Busy, Playground, RunAnswer
from smartmig.web.playground.wish import (
    JOBS_PER_MULTIPLIER,
    MOST_DAYS,
    MOST_GPUS,
    MOST_JOBS,
    MOST_POLICIES,
    MOST_WHOLE_GPUS,
    GangPolicyWish,
    GangWish,
    MigPolicyWish,
    MigWish,
    Wish,
)

FIRST_MIG = MigWish(
    policies=[
        MigPolicyWish(),
        MigPolicyWish(placement="shortest-work", repartition="slice-count"),
        MigPolicyWish(placement="shortest-work", repartition="mean-field"),
    ]
)
"""What the page proposes: S3's static cut, a rule that counts slices, and the learned cuts."""

FIRST_GANG = GangWish(
    world="gang",
    policies=[GangPolicyWish(backfill=Backfill.none), GangPolicyWish(), GangPolicyWish(selection="sjf")],
)

BACKFILLS = {
    Backfill.none: "A job that does not fit blocks the queue.",
    Backfill.easy: "Jobs that do not delay the first in the queue may pass it.",
    Backfill.conservative: "Jobs that delay nobody before them may pass.",
}

REPORT_HEADERS = {
    # The report runs its own scripts; in a sandbox they reach neither the page's token nor the API.
    "Content-Security-Policy": "sandbox allow-scripts allow-downloads; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

RunId = Annotated[str, Path(pattern="^[0-9a-f]{10}$", description="of a run")]


class Choice(BaseModel):
    id: str
    about: str


class Choices(BaseModel):
    """What can be tried, and how much of it."""

    gpus: list[str] = Field(description="GPU models")
    placements: list[Choice]
    repartitions: list[Choice]
    pairs: list[str] = Field(description="placing and cutting trained together")
    selections: list[Choice]
    allocations: list[Choice]
    backfills: list[Choice]
    jobs_per_multiplier: float = Field(description="jobs of a MIG day at multiplier 1")
    most: dict[str, float] = Field(description="limits: gpus, whole_gpus, days, policies, jobs, seconds")
    first: dict[str, MigWish | GangWish] = Field(description="what the page proposes, by world")


class Part(BaseModel):
    """A heading, what it says, and a table or a figure."""

    title: str
    text: str
    rows: list[list[str]] | None = Field(default=None, description="headings, then rows")
    strong_row: int | None = None
    figure: int | None = Field(default=None, description="its number, for the route of figures")
    height_px: int = 0
    narrow_height_px: int = 0


class ResultAnswer(BaseModel):
    title: str
    intro: str
    parts: list[Part]
    scenario: str = Field(description="file for `smartmig compare` that gives the same numbers; empty: none")


def choices() -> Choices:
    def listed(table: Any, what: str) -> list[Choice]:
        return [Choice(id=one["id"], about=one["about"]) for one in described(table, what)]

    return Choices(
        gpus=list(gpu_model_ids()),
        placements=listed(PLACEMENTS, "placement"),
        repartitions=listed(REPARTITIONS, "repartition"),
        pairs=list(PAIRS),
        selections=listed(SELECTIONS, "selection"),
        allocations=listed(ALLOCATIONS, "allocation"),
        backfills=[Choice(id=one.value, about=BACKFILLS[one]) for one in Backfill],
        jobs_per_multiplier=JOBS_PER_MULTIPLIER,
        most={
            "gpus": MOST_GPUS,
            "whole_gpus": MOST_WHOLE_GPUS,
            "days": MOST_DAYS,
            "policies": MOST_POLICIES,
            "jobs": MOST_JOBS,
            "seconds": MOST_S,
        },
        first={"mig": FIRST_MIG, "gang": FIRST_GANG},
    )


def add_playground(
    app: FastAPI,
    playground: Playground,
    viewer: Callable[..., Holder],
    reader: Callable[..., None],
    audit: Callable[[str, str, dict[str, Any]], None],
    refusals: dict[int | str, dict[str, Any]],
) -> None:
    """`/api/v1/playground/...` and the report of a run."""
    missing: dict[int | str, dict[str, Any]] = {**refusals, 404: {"description": "no such run, or it is not done"}}
    reads: dict[str, Any] = {"dependencies": [Depends(viewer)], "tags": ["playground"], "responses": missing}
    Viewer = Annotated[Holder, Depends(viewer)]

    def found(run_id: str) -> RunAnswer:
        run = playground.run(run_id)
        if run is None:
            raise HTTPException(404, f"no run '{run_id}'; older ones are removed when many newer ones have come")
        return run

    def file_of(run_id: str, name: str) -> Any:
        run = found(run_id)
        place = playground.place(run_id, name)
        if place is None:
            raise HTTPException(404, f"the run is {run.status}: it has no {name}")
        return place

    @app.get("/api/v1/playground", **reads)
    def what_there_is() -> Choices:
        """Rules, GPU models and limits of the playground, and what its page proposes."""
        return choices()

    @app.get("/api/v1/playground/themes", **reads)
    def themes() -> dict[str, Any]:
        """The look of figures, light and dark."""
        return {"light": template(), "dark": template(dark=True)}

    @app.get("/api/v1/playground/runs", **reads)
    def runs() -> list[RunAnswer]:
        """Those kept, newest first."""
        return playground.runs()

    @app.post(
        "/api/v1/playground/runs",
        tags=["playground"],
        status_code=201,
        responses={**refusals, 409: {"description": "a run is in progress"}},
    )
    def start(wish: Wish, holder: Viewer) -> RunAnswer:
        """Compare policies in simulation, in a process of its own; one run at a time."""
        try:
            run = playground.start(wish, holder.name)
        except Busy as error:
            raise HTTPException(409, str(error)) from None
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        audit(holder.name, "playground run", {"run": run.id})
        return run

    @app.get("/api/v1/playground/runs/{run_id}", **reads)
    def run(run_id: RunId) -> RunAnswer:
        """Where it stands."""
        return found(run_id)

    @app.post("/api/v1/playground/runs/{run_id}/cancel", tags=["playground"], responses=missing)
    def cancel(run_id: RunId, holder: Viewer) -> RunAnswer:
        """End it; by whom it was started, or an operator. One that has ended stays as it is."""
        run = found(run_id)
        if holder.role is not Role.operator and run.who != holder.name:
            raise HTTPException(403, f"'{run.who}' started it: only they or an operator may cancel it")
        if run.status == "running":
            audit(holder.name, "playground cancel", {"run": run_id})
            playground.cancel(run_id, holder.name)
        return found(run_id)

    @app.get("/api/v1/playground/runs/{run_id}/result", **reads)
    def result(run_id: RunId) -> ResultAnswer:
        """Tables and texts of a finished run; figures are asked for by their numbers."""
        return ResultAnswer.model_validate_json(file_of(run_id, "result.json").read_bytes())

    @app.get("/api/v1/playground/runs/{run_id}/figures/{number}", **reads)
    def figure(run_id: RunId, number: Annotated[int, Path(ge=0, le=999)]) -> Response:
        """A figure for plotly.js: data and layout."""
        return FileResponse(file_of(run_id, f"figure-{number}.json"), media_type="application/json")

    @app.get("/playground/{run_id}/report", response_class=Response, **{**reads, "dependencies": [Depends(reader)]})
    def report(run_id: RunId) -> Response:
        """The whole report of a finished run as one HTML file; takes the cookie of `login` as well."""
        return FileResponse(file_of(run_id, "report.html"), media_type="text/html", headers=REPORT_HEADERS)
