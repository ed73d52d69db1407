"""Re-cutting GPUs as a Gymnasium environment, `smartmig/MigRepartition-v0`: for trainers that are not ours.

One episode is one day of jobs. An action says how every GPU is to be cut next, the compiled engine runs to the next
decision, and the reward is what that stretch cost, so an episode's rewards add up to -ET.

Importing this module registers the environment: Gymnasium has no plugin entry point any more (since 1.0).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.layouts import configurations
from smartmig.jit import kernel, specialise
from smartmig.metrics.objective import energy_tardiness
from smartmig.metrics.summary import summarise
from smartmig.policy.encoding import AT_CONFIG, N_FEATURES, encode
from smartmig.policy.placement.rule import Kernels, PlacementRule
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.view import JobArrays, Kernel, State, World
from smartmig.registry import PLACEMENTS, load
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED, advance, close_books, engine
from smartmig.sim.mig.ledger import ENERGY_J, LATE_S, N_BOOKS, keep_books
from smartmig.sim.mig.recut import recut
from smartmig.sim.mig.run import Cluster, cuts_of, open_gpus, rule_name, run_of
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats, Jobs
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.seeds import jobs_of_day

try:
    import gymnasium
except ModuleNotFoundError:
    raise InputError("smartmig.sim.mig.env needs Gymnasium, which is missing: pip install 'smartmig[gym]'") from None

ENV_ID = "smartmig/MigRepartition-v0"

N_TIME_OF_DAY = 4
"""The encoding's last features, the only ones that may be negative."""


@kernel
def observe(world: World, jobs: JobArrays, state: State, seen: NDArray[Any]) -> None:
    """The encoding's features, then by configuration the share of GPUs and the share of compute slices at work."""
    encode(world, jobs, state, seen[:N_FEATURES])
    n_configs = world.config.size
    n_compute = 0
    for config in range(n_configs):
        n_compute += world.config_compute[config] * state.tally[AT_CONFIG + config]
    for config in range(n_configs):
        seen[N_FEATURES + config] = state.tally[AT_CONFIG + config] / world.n_gpus
        seen[N_FEATURES + n_configs + config] = state.tally[AT_CONFIG + n_configs + config] / n_compute


def go_on(
    world: World,
    jobs: JobArrays,
    state: State,
    period_s: float,
    every_events: int,
    books: Floats,
    seen: NDArray[Any],
) -> int:
    """Re-cut the GPUs whose target is another cut, then run to the next decision, or to the end of the day."""
    for gpu in range(world.n_gpus):
        if state.gpu[gpu].target >= 0 and state.gpu[gpu].target != state.gpu[gpu].config:
            recut(world, jobs, state, gpu, state.gpu[gpu].target)
    due_events = (state.now[0].n_events // every_events + 1) * every_events
    status = advance(world, jobs, state, state.now[0].next_check_s, due_events)
    if status == CHECK_DUE and not state.now[0].pending:  # by time: an event leaves its decision pass pending
        state.now[0].next_check_s += period_s
    keep_books(world, jobs, state, books)
    observe(world, jobs, state, seen)
    return status


@functools.cache
def compiled_go_on(name: str, rule: Kernels) -> Kernel:
    """`go_on` for a placement rule."""
    built = engine(name, rule)
    return specialise(go_on, name, cached=True, advance=built.advance, recut=built.recut)


@dataclass(frozen=True, eq=False)
class Day:
    """One episode."""

    jobs: Jobs
    arrays: JobArrays
    state: State
    books: Floats  # (N_BOOKS,) see ledger

    def et_so_far(self) -> float:
        return energy_tardiness(float(self.books[ENERGY_J]), float(self.books[LATE_S]) / len(self.jobs))


class MigRepartition(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """How should every GPU be cut next? Asked at every so many-th event of a day, and every hour.

    - **Observation**, float32: the features of `policy/encoding.py`, the share of GPUs with each configuration, the
      share of the cluster's compute slices that are at work on each.
    - **Action**: for every GPU the configuration to have next, counted from 0 among those of its own model. A GPU that
      has it already is left alone; any other is re-cut, which costs time.
    - **Reward**: minus the ET that was paid since the last decision; the first one since time 0.

    All GPUs are whole at time 0. An episode ends when the last job is done, however late that is: a policy that
    re-cuts without end may never get there, so give beginners a `max_episode_steps`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        gpus: str = "8xa100-40gb",
        *,
        multiplier: float = 20.0,
        deadline: tuple[float, float] = (1.0, 1.5),
        jobs: Callable[[int], Jobs] | None = None,
        placement: str | PlacementRule = "categorical-edf",
        preempt: bool = True,
        drain: bool = False,
        events_per_decision: int | None = None,
    ) -> None:
        """`gpus` is written as for `--gpus`, and `placement` is a rule or its id. `multiplier` and `deadline` are knobs
        of `DiurnalDay`; `jobs` makes the jobs of a day from its seed instead. `preempt` and `drain` are those of
        `Settings`. `events_per_decision` is that of `MeanField` on so many GPUs unless given.

        Raises `InputError` for a value that makes no sense.
        """
        if events_per_decision is not None and events_per_decision < 1:
            raise InputError(f"events_per_decision must be at least 1, got {events_per_decision}")
        if jobs is None:
            low, high = deadline
            jobs = DiurnalDay(multiplier=multiplier, deadline=(low, high)).jobs
        placer: PlacementRule = load(PLACEMENTS, "placement", placement)() if isinstance(placement, str) else placement
        cluster = Cluster(parse_gpus(gpus, "gpus"))
        rule = MeanField()
        self._jobs_of = jobs
        self._placement = placer
        self._settings = Settings(preempt=preempt, drain=drain)
        self._cuts = cuts_of(cluster, rule)
        self._reachable = rule.reachable(self._cuts)
        self._world = build_world(self._cuts, placer, self._settings, counted=True)
        self._go_on = compiled_go_on(rule_name(placer), placer.kernels)
        self._period_s = rule.period_s()
        self._every_events = events_per_decision or rule.every_events(len(cluster.gpus))
        self._n_compute = sum(gpu.n_compute for gpu in cluster.gpus)
        self._day: Day | None = None
        self._rewarded_et = 0.0

        self._n_choices = np.array([len(configurations(gpu)) for gpu in cluster.gpus])
        self._first_config = np.array(self._cuts.start)  # a whole GPU is its model's first configuration
        self._mask = np.ones(self._n_choices.sum(), dtype=np.bool_)
        self._n_seen = N_FEATURES + 2 * len(self._cuts.configs)
        low_end = np.zeros(self._n_seen, dtype=np.float32)
        high_end = np.full_like(low_end, np.finfo(np.float32).max)
        low_end[N_FEATURES - N_TIME_OF_DAY : N_FEATURES] = -1.0
        high_end[N_FEATURES - N_TIME_OF_DAY :] = 1.0
        self.observation_space = gymnasium.spaces.Box(low_end, high_end)
        self.action_space = gymnasium.spaces.MultiDiscrete(self._n_choices)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin a day, and run it to its first decision.

        `options={"day": n}` chooses the day; otherwise it is drawn, from days that no report is made of.
        """
        super().reset(seed=seed)
        jobs = jobs_of_day(self._jobs_of, options, self.np_random)
        arrays = build_jobs(jobs, self._cuts, self._placement, self._settings, self._reachable)
        state = fresh_state(self._world, len(jobs), self._cuts)
        open_gpus(self._world, state, self._placement)
        state.now["next_check_s"] = self._period_s
        self._day = Day(jobs, arrays, state, np.zeros(N_BOOKS))
        self._rewarded_et = 0.0
        seen, done = self._run_on(self._day)
        return seen, self._info(self._day, done)

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Re-cut, and run to the next decision. Raises `InputError` for an action outside the space."""
        day = self._day
        if day is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        wanted = np.asarray(action)
        whole = wanted.shape == self._n_choices.shape and np.issubdtype(wanted.dtype, np.integer)
        if not whole or np.any((wanted < 0) | (wanted >= self._n_choices)):
            raise InputError(f"action {wanted.tolist()} is not in {self.action_space}")
        day.state.gpu["target"] = self._first_config + wanted
        seen, done = self._run_on(day)
        before, self._rewarded_et = self._rewarded_et, day.et_so_far()
        return seen, before - self._rewarded_et, done, False, self._info(day, done)

    def action_masks(self) -> NDArray[np.bool_]:
        """For MaskablePPO: every configuration of its model is open to every GPU, one GPU after another."""
        return self._mask.copy()

    def _run_on(self, day: Day) -> tuple[NDArray[np.float32], bool]:
        seen = np.empty(self._n_seen, dtype=np.float32)
        status = self._go_on(self._world, day.arrays, day.state, self._period_s, self._every_events, day.books, seen)
        if status not in (CHECK_DUE, FINISHED):
            raise SimulationError(
                f"{type(self._placement).__name__} chose a slice that is taken or does not fit the job"
            )
        return seen, status == FINISHED

    def _info(self, day: Day, done: bool) -> dict[str, Any]:
        now = day.state.now[0]
        info: dict[str, Any] = {
            "time_s": float(now["time_s"]),
            "n_waiting": int(now["n_waiting"]),
            "n_done": int(now["n_done"]),
            "config": day.state.gpu["config"] - self._first_config,
        }
        if done:
            close_books(self._world, day.state)
            cost = summarise(day.jobs, run_of(self._world, day.state, self._cuts), self._n_compute)
            info |= {"et": cost.et, "mean_tardiness_s": cost.mean_tardiness_s, "energy_j": cost.energy_j}
        return info


gymnasium.register(ENV_ID, entry_point=f"{__name__}:MigRepartition")
