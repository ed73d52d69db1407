"""What the API answers, as pydantic models: the fields a page needs, with their units."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from smartmig.control.switch import Mode
from smartmig.control.tokens import Role

Key = tuple[str, float]


class Health(BaseModel):
    status: Literal["ok", "degraded", "killed"]
    version: str
    mode: Mode
    detail: str = Field(description="why it is not ok")


class Holding(BaseModel):
    """A job on some GPUs or on a slice."""

    key: Key = Field(description="job id and time of submission, seconds since 1970 UTC")
    user: str
    n_gpus: int
    here: int = Field(default=0, description="of its GPUs, those on this node; 0: a slice")
    start_s: float
    ends_s: float | None = Field(description="when it should be done: its limit, or the estimate on its slice")
    deadline_s: float | None
    managed: bool


class Slot(BaseModel):
    """One MIG instance of a card."""

    start: int = Field(description="first memory slice")
    span: int = Field(description="memory slices")
    size: int = Field(description="compute slices")
    profile: str
    usable: bool
    others: bool = Field(description="held by somebody the cluster manager does not know")
    job: Holding | None


class GpuAnswer(BaseModel):
    gpu: int
    model: str
    n_memory: int = Field(description="memory slices of the card")
    watts: float = Field(description="by its power curve at the present load")
    slots: list[Slot]


class NodeAnswer(BaseModel):
    name: str
    state: str
    gpu_model: str
    n_gpus: int
    n_free: int
    jobs: list[Holding] = Field(description="on whole GPUs of this node")
    gpus: list[GpuAnswer]


class StateAnswer(BaseModel):
    time_s: float
    mode: Mode
    paused: bool
    killed: bool
    in_charge: bool
    n_queued: int
    n_running: int
    watts: float
    nodes: list[NodeAnswer]


class QueuedJob(BaseModel):
    key: Key
    user: str
    group: str
    n_gpus: int
    gpu_model: str
    waited_s: float
    limit_s: float | None
    deadline_s: float | None


class QueueAnswer(BaseModel):
    time_s: float
    n_queued: int
    jobs: list[QueuedJob]


class PlanAnswer(BaseModel):
    """The newest decision."""

    number: int
    time_s: float
    mode: Mode
    acted: bool
    took_s: float
    wanted: list[dict[str, Any]] = Field(description="by the policy")
    plan: list[dict[str, Any]] = Field(description="what the guard let pass")
    refused: list[dict[str, Any]] = Field(description="and what it did not, with its reasons")
    fallback: str
    alternatives: dict[str, Any] = Field(description="order of the queue and scores of the places, see docs/live.md")


class RecordAnswer(BaseModel):
    seq: int
    time_s: float
    session: str
    kind: str
    body: dict[str, Any]


class Span(BaseModel):
    """How far a journal reaches, by its records."""

    first: int
    newest: int


class Board(BaseModel):
    """What the dashboard shows, of one moment."""

    health: Health
    state: StateAnswer
    queue: QueueAnswer
    plan: PlanAnswer | None
    span: Span | None


class RecordedAnswer(BaseModel):
    """A state from the journal, and what was decided about it."""

    seq: int
    time_s: float
    session: str
    earlier: int | None = Field(description="the recorded state before it")
    later: int | None = Field(description="the recorded state after it")
    n_queued: int
    n_running: int
    watts: float
    nodes: list[NodeAnswer]
    queue: list[QueuedJob] = Field(description="the first hundred")
    decision: dict[str, Any] | None


class WhoAnswer(BaseModel):
    name: str
    role: Role


class EffectOf(BaseModel):
    n_jobs: int
    mean_wait_s: float
    mean_late_s: float
    late_frac: float
    energy_j: float | None


class EffectAnswer(BaseModel):
    """So far, and what others would have made of the jobs that are done."""

    energy_j: float
    busy_frac: float
    n_submitted: int
    n_started: int
    n_finished: int
    mean_wait_s: float
    mean_late_s: float
    n_late: int
    measured: EffectOf
    policy: EffectOf | None = Field(description="our policy, simulated on the finished jobs")
    baseline: EffectOf | None = Field(
        description="first come first served with backfill (MIG: cards left as they are), simulated"
    )
    why: str = Field(default="", description="why one of the two is missing, if jobs have finished")


class GuardAnswer(BaseModel):
    rules: dict[str, float]
    refused: list[dict[str, Any]]
    n_refused: int
    n_fallbacks: int
    drift_checked: bool


class ModeWish(BaseModel, extra="forbid"):
    mode: Mode


class KillWish(BaseModel, extra="forbid"):
    why: str = Field(min_length=1, max_length=200, description="for the journal")


class Changed(BaseModel):
    mode: Mode
    paused: bool
    killed: bool
