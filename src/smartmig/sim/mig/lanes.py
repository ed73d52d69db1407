"""Many days side by side, asked one placing decision each at a time: what a trainer of single placings calls.

A lane is a day under way. All lanes lie in one set of arrays, so a step of all of them is one call of a kernel (one per
thread), and costs about as much as the engine's own work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smartmig.errors import InputError, SimulationError
from smartmig.metrics.objective import energy_tardiness
from smartmig.metrics.summary import Summary, summarise
from smartmig.policy.encoding import N_TIME, TIME_EDGES_S
from smartmig.policy.repartition.static import Static
from smartmig.policy.view import JOB_SPEC, JobArrays, State
from smartmig.sim.mig.asking import RULE, STUCK, compiled_step
from smartmig.sim.mig.kernel import FINISHED, close_books
from smartmig.sim.mig.ledger import N_BOOKS
from smartmig.sim.mig.questions import N_RUNS, Questions, action_count, mean_runs_min, seen_count
from smartmig.sim.mig.run import Cluster, cuts_of, open_gpus, run_of
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats, Ints, Jobs

OBSERVATIONS = ("ours", "s1")
REWARDS = ("et", "s1", "final")
WINDOW = 6
"""jobs asked about at once"""


class Stepped(NamedTuple):
    """One step of every lane."""

    seen: Floats  # (n_lanes, n_seen) float32, to be read before the next step
    reward: Floats  # (n_lanes,)
    done: NDArray[np.bool_]  # (n_lanes,)


class Lanes:
    """Days on one cluster without preemption; who steps them places their jobs.

    `observation` is "ours" or "s1" (see `questions`). `reward` is "et" (minus what was paid since the last step, which
    adds up to -ET), "final" (-ET after the last step) or "s1" (a reward for every placing, and -ET after the last).
    Without `wait` a job that fits a free slice must be placed.
    """

    def __init__(
        self,
        cluster: Cluster,
        n_lanes: int = 1,
        *,
        observation: str = "ours",
        reward: str = "et",
        window: int = WINDOW,
        wait: bool = True,
        settings: Settings | None = None,
        n_threads: int | None = None,
    ) -> None:
        if observation not in OBSERVATIONS:
            raise InputError(f"observation: got '{observation}', allowed are {', '.join(OBSERVATIONS)}")
        if reward not in REWARDS:
            raise InputError(f"reward: got '{reward}', allowed are {', '.join(REWARDS)}")
        if window < 1:
            raise InputError(f"window must be at least 1, got {window}")
        self.cluster, self.n_lanes, self.reward, self.wait = cluster, n_lanes, reward, wait
        self.s1 = observation == "s1"
        self.settings = settings or Settings(preempt=False)
        self.cuts = cuts_of(cluster, Static())
        self.world = build_world(self.cuts, RULE, self.settings, counted=not self.s1)
        self.n_compute = sum(gpu.n_compute for gpu in cluster.gpus)
        fresh = fresh_state(self.world, 1, self.cuts)
        open_gpus(self.world, fresh, RULE)
        self._fresh = fresh
        self.n_slices = int((fresh.slot["slice_class"] >= 0).sum())
        self.n_window = 1 if self.s1 else window
        self.n_actions = action_count(self.n_slices, self.n_window, self.s1)
        self.n_seen = seen_count(self.n_slices, self.n_window, self.s1)
        self.day: list[Jobs | None] = [None] * n_lanes
        self.n_jobs = np.zeros(n_lanes, dtype=np.int64)
        self._status = np.zeros(n_lanes, dtype=np.int64)
        self._paid = np.zeros(n_lanes)
        self._owed = np.zeros(n_lanes)
        self._step = compiled_step()
        self._room = 0
        self.jobs: JobArrays
        self.states: State
        self.questions: Questions
        n_threads = n_threads or len(os.sched_getaffinity(0))
        edges = np.linspace(0, n_lanes, min(n_threads, n_lanes) + 1).astype(int)
        self._parts = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
        self._pool = ThreadPoolExecutor(len(self._parts) - 1) if len(self._parts) > 1 else None

    def prepare(self, jobs: Jobs) -> tuple[Jobs, JobArrays, Floats, Ints]:
        """A day as `begin` wants it: worth keeping where days come again."""
        if len(jobs) == 0:
            raise InputError("the day has no jobs")
        arrays = build_jobs(jobs, self.cuts, RULE, self.settings, self.cuts.start)
        runs = mean_runs_min(jobs)
        bins = np.searchsorted(TIME_EDGES_S, 60.0 * runs, side="right")
        return jobs, arrays, runs, bins.astype(np.int8)

    def begin(self, lane: int, day: tuple[Jobs, JobArrays, Floats, Ints]) -> None:
        """Put a day into the lane; it comes to its first question with the next `look` or `step`."""
        jobs, arrays, runs, bins = day
        n = len(jobs)
        if n > self._room:
            self._make_room(n, spare=n // 8)
        for stack, array in zip(self.jobs, arrays, strict=True):
            stack[lane, :n] = array
        fresh = self._fresh
        for name, stack in self.states._asdict().items():
            if name == "job":
                stack[lane, :n] = fresh.job[0]
            elif name not in ("wait", "aside"):
                stack[lane] = getattr(fresh, name)
        asked = self.questions
        asked.run_min[lane, :n], asked.run_bin[lane, :n] = runs, bins
        asked.open[lane] = asked.books[lane] = asked.cost[lane] = asked.shaped[lane] = 0
        self.day[lane], self.n_jobs[lane], self._paid[lane] = jobs, n, 0.0

    def look(self, lanes: Sequence[int]) -> None:
        """Run days that have just begun to their first question."""
        nothing = np.full(self.n_lanes, -1)
        for lane in lanes:
            self._run(lane, lane + 1, nothing)
            self._owed[lane] = self._cost_et()[lane]  # idle GPUs until the first job; the first step pays

    def step(self, actions: Ints) -> Stepped:
        """One answer per lane. A lane that is done stays as it is until another day begins in it."""
        actions = np.asarray(actions, dtype=np.int64)
        own, *others = self._parts
        running = [self._pool.submit(self._run, *part, actions) for part in others] if self._pool else []
        self._run(*own, actions)
        for part in running:
            part.result()
        asked = self.questions
        done = self._status == FINISHED
        et = self._cost_et() + self._owed
        self._owed[:] = 0.0
        if self.reward == "et":
            reward = -et
        else:
            self._paid += et
            reward = np.where(done, -self._paid, 0.0)
            if self.reward == "s1":
                reward = reward + asked.shaped[:, 0]
        return Stepped(asked.seen, reward, done)

    @property
    def seen(self) -> Floats:
        return self.questions.seen

    @property
    def masks(self) -> NDArray[np.bool_]:
        """(n_lanes, n_actions) what may be answered."""
        return self.questions.mask

    def lane(self, lane: int) -> State:
        """The state of one lane, as a view."""
        return State._make(stack[lane] for stack in self.states)

    def under_way(self) -> tuple[int, list[NDArray[np.uint8]]]:
        """Room for jobs, and all that moves, as bytes: what `go_on` needs to go on as if nothing had happened."""
        return self._room, [np.frombuffer(array.tobytes(), dtype=np.uint8) for array in self._all()]

    def go_on(self, room: int, arrays: Sequence[NDArray[np.uint8]]) -> None:
        """The days themselves are not kept, so what has ended by then has no `summary`."""
        self._room = 0
        self._make_room(room, spare=0)
        for array, kept in zip(self._all(), arrays, strict=True):
            array[...] = np.frombuffer(kept.tobytes(), dtype=array.dtype).reshape(array.shape)

    def _all(self) -> list[Any]:
        stacks = [*self.jobs, *self.states, *self.questions]
        return [*stacks, self.n_jobs, self._status, self._paid, self._owed]

    def summary(self, lane: int) -> Summary:
        """What a day that is over has cost."""
        jobs, n = self.day[lane], int(self.n_jobs[lane])
        assert jobs is not None
        state = self.lane(lane)
        state = state._replace(job=state.job[:n])
        close_books(self.world, state)
        return summarise(jobs, run_of(self.world, state, self.cuts), self.n_compute)

    def _cost_et(self) -> Floats:
        cost = self.questions.cost
        return np.asarray(energy_tardiness(cost[:, 1], cost[:, 0] / np.maximum(self.n_jobs, 1)))  # type: ignore[arg-type]

    def _run(self, first: int, last: int, actions: Ints) -> None:
        status = self._status
        jobs, states, asked = self.jobs, self.states, self.questions
        self._step(self.world, jobs, states, asked, self.n_jobs, first, last, actions, self.s1, status)
        if not self.wait:
            asked.mask[first:last, -1] = status[first:last] == FINISHED  # a question always has a placing to answer it
        if (status[first:last] == STUCK).any():
            raise SimulationError("a job waits for a slice that is never free")

    def _make_room(self, n_jobs: int, spare: int) -> None:
        """Arrays for days of so many jobs; what is under way moves along."""
        before = (self.jobs, self.states, self.questions) if self._room else None
        self._room = n_jobs = n_jobs + spare
        n, n_classes = self.n_lanes, len(self.cuts.classes)
        self.jobs = JobArrays(
            np.zeros((n, n_jobs), dtype=JOB_SPEC),
            np.zeros((n, n_jobs, n_classes)),
            np.zeros((n, n_jobs), dtype=np.int64),
        )
        one = fresh_state(self.world, n_jobs, self.cuts)
        self.states = State._make(np.zeros((n, *array.shape), dtype=array.dtype) for array in one)
        n_actions = self.n_actions
        self.questions = Questions(
            open=np.zeros((n, 1), dtype=np.int64),
            window=np.full((n, self.n_window), -1),
            slot=np.full((n, n_actions), -1),
            mask=np.zeros((n, n_actions), dtype=np.bool_),
            seen=np.zeros((n, self.n_seen), dtype=np.float32),
            queue=np.zeros((n, 1 + N_RUNS, N_TIME), dtype=np.int64),
            run_min=np.zeros((n, n_jobs, N_RUNS)),
            run_bin=np.zeros((n, n_jobs, N_RUNS), dtype=np.int8),
            books=np.zeros((n, N_BOOKS)),
            cost=np.zeros((n, 2)),
            shaped=np.zeros((n, 1)),
            free=np.zeros((n, n_classes), dtype=np.int64),
            added_w=np.zeros((n, n_classes)),
        )
        if before is not None:
            for old, new in zip(before, (self.jobs, self.states, self.questions), strict=True):
                for small, large in zip(old, new, strict=True):
                    large[tuple(slice(0, length) for length in small.shape)] = small
