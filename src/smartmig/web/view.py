"""From the loop's nouns to the API's answers."""

from __future__ import annotations

import math

from smartmig.control.books import load_of
from smartmig.control.journal import JournalReader
from smartmig.control.loop import Loop
from smartmig.hardware.model import gpu_model
from smartmig.types import SLICE_SIZES, ClusterState, MigGpu, RunningJob
from smartmig.web.answers import GpuAnswer, Holding, NodeAnswer, QueuedJob, RecordedAnswer, Slot, StateAnswer


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def holding(job: RunningJob, run_s: float = math.inf) -> Holding:
    request = job.request
    return Holding(
        key=request.key,
        user=request.user,
        n_gpus=request.n_gpus,
        start_s=job.start_s,
        ends_s=finite(job.start_s + min(run_s, request.limit_s)),
        deadline_s=finite(request.deadline_s),
        managed=job.managed,
    )


def card_answer(gpu: int, card: MigGpu, on: dict[int, RunningJob]) -> GpuAnswer:
    model = gpu_model(card.model)
    slots = []
    busy = 0
    for one in card.instances:
        profile = model.profile(one.profile)
        job = on.get(one.start)
        busy += profile.compute if job is not None or one.start in card.busy_by_others else 0
        run_s = math.inf
        if job is not None and len(job.request.run_s) == len(SLICE_SIZES):
            run_s = job.request.run_s[SLICE_SIZES.index(profile.compute)]
        slots.append(
            Slot(
                start=one.start,
                span=profile.memory_slices,
                size=profile.compute,
                profile=one.profile,
                usable=one.usable,
                others=job is None and one.start in card.busy_by_others,
                job=holding(job, run_s) if job is not None else None,
            )
        )
    watts = model.power.watts[min(busy, model.n_compute)]
    return GpuAnswer(gpu=gpu, model=card.model, n_memory=model.n_memory, watts=watts, slots=slots)


def node_answers(state: ClusterState) -> list[NodeAnswer]:
    whole: dict[str, list[Holding]] = {}
    slices: dict[tuple[str, int], dict[int, RunningJob]] = {}
    for job in state.running:
        for share in job.shares:
            if share.n_gpus:
                whole.setdefault(share.node, []).append(holding(job).model_copy(update={"here": share.n_gpus}))
            else:
                slices.setdefault((share.node, share.gpu), {})[share.start] = job
    return [
        NodeAnswer(
            name=node.name,
            state=node.state.value,
            gpu_model=node.gpu_model,
            n_gpus=node.n_gpus,
            n_free=node.n_free,
            jobs=whole.get(node.name, []),
            gpus=[card_answer(at, card, slices.get((node.name, at), {})) for at, card in enumerate(node.gpus)],
        )
        for node in state.nodes
    ]


def state_answer(loop: Loop, state: ClusterState) -> StateAnswer:
    return StateAnswer(
        time_s=state.time_s,
        mode=loop.mode,
        paused=loop.paused,
        killed=loop.killed,
        in_charge=loop.in_charge,
        n_queued=len(state.queued),
        n_running=len(state.running),
        watts=load_of(state)[0],
        nodes=node_answers(state),
    )


def recorded_answer(reader: JournalReader, seq: int) -> RecordedAnswer | None:
    """The state a journal held at a record, with its neighbours and the decision about it; None before the first."""
    found = reader.state_at(seq)
    if found is None:
        return None
    record, state = found
    earlier = next(reader.records(kinds=("state",), limit=1, newest=True, before=record.seq), None)
    later = next(reader.records(record.seq, ("state",), limit=1), None)
    end = later.seq if later is not None else None
    decision = next(reader.records(record.seq, ("decision",), limit=1, before=end), None)
    return RecordedAnswer(
        seq=record.seq,
        time_s=state.time_s,
        session=record.session,
        earlier=earlier.seq if earlier is not None else None,
        later=end,
        n_queued=len(state.queued),
        n_running=len(state.running),
        watts=load_of(state)[0],
        nodes=node_answers(state),
        queue=queued_jobs(state, 0, 100),
        decision=decision.body if decision is not None and decision.session == record.session else None,
    )


def queued_jobs(state: ClusterState, first: int, limit: int) -> list[QueuedJob]:
    return [
        QueuedJob(
            key=request.key,
            user=request.user,
            group=request.group,
            n_gpus=request.n_gpus,
            gpu_model=request.gpu_model,
            waited_s=max(0.0, state.time_s - request.key.submit_s),
            limit_s=finite(request.limit_s),
            deadline_s=finite(request.deadline_s),
        )
        for request in state.queued[first : first + limit]
    ]
