"""Selecting and allocating as a PettingZoo environment, `GangSchedule-v0`: for trainers that are not ours.

One episode is one stretch of a trace. Two agents take turns: the *selector* picks a job of its window or waits, the
*allocator* picks the kind of node that job gets. The one whose turn it is not may only pass. Both get the same reward:
minus what waiting added to the mean bounded slowdown, so an episode's rewards add up to 1 - mean bounded slowdown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.nodes import NodeCluster, parse_nodes
from smartmig.jit import kernel, specialise
from smartmig.metrics.gang import SHORTEST_S, summarise
from smartmig.policy.allocation.learned import AT_ADDS as AT_KIND_ADDS
from smartmig.policy.allocation.learned import (
    AT_CHOSEN,
    AT_NODE,
    AT_NUMBERS,
    N_KINDS,
    score,
    score_kinds,
)
from smartmig.policy.allocation.learned import AT_SEEN as AT_KIND_SEEN
from smartmig.policy.allocation.learned import Learned as LearnedAllocation
from smartmig.policy.gang_encoding import AT_JOBS, AT_OLDEST, AT_SLOTS, N_CLUSTER, N_SLOT, N_SLOTS, STARTS, encode
from smartmig.policy.gang_files import HAND_MADE
from smartmig.policy.gang_network import N_KIND
from smartmig.policy.gang_view import JobArrays, State, World, can_start
from smartmig.policy.selection.learned import AT_SCORES, AT_SEEN, overdue
from smartmig.policy.selection.learned import Learned as LearnedSelection
from smartmig.policy.view import Kernel
from smartmig.sim.gang.decide import fence_reservation, find_reservation, offer_now
from smartmig.sim.gang.kernel import FINISHED, PAUSED, STRETCHES_FULL, advance
from smartmig.sim.gang.occupancy import begin, keep_parts
from smartmig.sim.gang.place import best_node, place
from smartmig.sim.gang.run import run_of
from smartmig.sim.gang.world import Backfill, GangPolicy, build_jobs, build_world, fresh_state
from smartmig.types import Floats, GangJobs

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    raise InputError(
        f"smartmig.sim.gang.env needs {error.name}, which is missing: pip install 'smartmig[gym]'"
    ) from None

SELECTOR, ALLOCATOR = "selector", "allocator"
WAIT = N_SLOTS
"""the selector's action besides the slots: start nothing more now; also its pass"""
PASS = N_KINDS
"""the allocator's action when it is not its turn"""
N_SELECTOR_SEEN = N_CLUSTER + N_SLOTS * N_SLOT
N_ALLOCATOR_SEEN = N_CLUSTER + N_KINDS * N_KIND

# What a look at the cluster says is next.
ASK_SELECTOR, ASK_ALLOCATOR, NOTHING_TO_ASK = range(3)


@kernel
def decide_nothing(world: World, jobs: JobArrays, state: State) -> None:  # noqa: ARG001
    """In place of the decision pass: the environment asks its agents."""
    return


@kernel
def keep_choice(world: World, jobs: JobArrays, state: State, job: int) -> None:  # noqa: ARG001
    """In place of the allocation rule's choice: what the allocator said stands in the knobs."""
    return


@kernel
def look(world: World, jobs: JobArrays, state: State, seen: Floats) -> tuple[int, int]:
    """Who is to be asked, and the job the guard forces (-1 = none)."""
    n_free = 0
    for model in range(world.n_models):
        n_free += state.room[0, model].total
    if n_free == 0 or state.now[0].n_waiting == 0:
        return NOTHING_TO_ASK, -1
    encode(world, jobs, state, seen)
    oldest = int(seen[AT_OLDEST])
    if overdue(world, jobs, state, oldest):
        return ASK_ALLOCATOR, oldest
    reserved = state.now[0].reserved >= 0
    for slot in range(N_SLOTS):
        if seen[AT_JOBS + slot] >= 0.0 and (not reserved or seen[AT_SLOTS + slot * N_SLOT + STARTS] > 0.0):
            return ASK_SELECTOR, -1
    return NOTHING_TO_ASK, -1


@kernel
def offer_kinds(world: World, jobs: JobArrays, state: State, job: int) -> bool:
    """Show the allocator the kinds of node for a job that can start now; otherwise the job gets the reservation."""
    if can_start(world, jobs, state, job):
        offer_now(jobs, state, job)
        score_kinds(world, jobs, state, job)
        return True
    if find_reservation(world, jobs, state, job):
        world.allocation_knobs[AT_CHOSEN] = -1.0
        place(world, jobs, state, job)
    fence_reservation(world, state)
    return False


def start(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """Start the job on what the allocator chose."""
    offer_now(jobs, state, job)
    place(world, jobs, state, job)
    keep_parts(state, job)
    begin(world, jobs, state, job)


@kernel
def waited_slowdown(jobs: JobArrays, state: State, first: int, settled: float) -> tuple[int, float, float]:
    """Sum of bounded slowdowns less 1 up to now: jobs before `first` have started and are in `settled`."""
    n_submitted = state.now[0].n_submitted
    while first < n_submitted and state.job[first].begin_s < np.inf:
        settled += slowdown_of(jobs, first, state.job[first].begin_s)
        first += 1
    total = settled
    for job in range(first, n_submitted):
        total += slowdown_of(jobs, job, min(state.job[job].begin_s, state.now[0].time_s))
    return first, settled, total


@kernel
def slowdown_of(jobs: JobArrays, job: int, start_s: float) -> float:
    run_s = min(jobs.run_s[job], jobs.spec[job].limit_s)
    return max(1.0, (start_s - jobs.spec[job].submit_s + run_s) / max(run_s, SHORTEST_S)) - 1.0


@functools.cache
def compiled() -> tuple[Kernel, Kernel, Kernel]:
    """(one event, offer kinds, start)"""
    scope: dict[str, Any] = {"rule_score": score, "rule_prepare": keep_choice}
    scope["best_node"] = specialise(best_node, "env", cached=False, inline=False, **scope)
    scope["place"] = specialise(place, "env", cached=False, inline=False, **scope)
    go_on = specialise(advance, "env", cached=True, inline=False, decide=decide_nothing)
    offer = specialise(offer_kinds.py_func, "env", cached=True, inline=False, **scope)  # type: ignore[attr-defined]
    return go_on, offer, specialise(start, "env", cached=True, inline=False, **scope)


class GangSchedule(ParallelEnv[str, dict[str, NDArray[Any]], int]):  # type: ignore[misc]
    """Which job is next, and which kind of node does it get? Asked whenever GPUs are free and jobs wait.

    - **Observation**, a dict: `observation` (float32) and `action_mask` (int8). The selector sees the cluster and the
      slots of `policy/gang_encoding.py`; the allocator the cluster and the kinds of node that can hold the job.
    - **Actions**: a slot or WAIT; a kind or PASS. A job that does not fit gets a reservation that nobody may delay.
    - **Reward**, the same for both: minus the bounded slowdown that was added since the last step, per job.

    The starvation guard of the learned selector acts here, too: an overdue job goes straight to the allocator.
    """

    metadata: dict[str, Any] = {"render_modes": [], "name": "GangSchedule-v0", "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, jobs: Callable[[int], GangJobs], nodes: str | NodeCluster = "30x8", max_steps: int = 0) -> None:
        """`jobs` makes the jobs of an episode from its seed; `nodes` is written as for `--nodes`. After `max_steps`
        (0: never) an episode is truncated."""
        self._jobs_of, self._max_steps = jobs, max_steps
        self._cluster = parse_nodes(nodes) if isinstance(nodes, str) else nodes
        self._policy = GangPolicy(LearnedSelection(HAND_MADE), LearnedAllocation(HAND_MADE), Backfill.easy)
        self._go_on, self._offer, self._start = compiled()
        self.possible_agents = [SELECTOR, ALLOCATOR]
        self.agents: list[str] = []
        self.render_mode = None
        self._spaces = {
            SELECTOR: (_observation(N_SELECTOR_SEEN, N_SLOTS + 1), spaces.Discrete(N_SLOTS + 1)),
            ALLOCATOR: (_observation(N_ALLOCATOR_SEEN, N_KINDS + 1), spaces.Discrete(N_KINDS + 1)),
        }
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._spaces[agent][1]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, dict[str, Any]]]:
        """Begin an episode; `options={"jobs": n}` chooses its jobs, otherwise they are drawn."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        number = int((options or {}).get("jobs", self._rng.integers(1 << 31)))
        self._jobs = self._jobs_of(number)
        self._arrays = build_jobs(self._jobs, self._cluster, self._policy, None)
        self._world = build_world(self._cluster, self._policy)
        self._world.allocation_knobs[AT_KIND_ADDS] = 1.0  # have the kinds' numbers written down
        self._state = fresh_state(self._world, self._arrays)
        self._first, self._settled, self._paid = 0, 0.0, 0.0
        self._n_steps, self._job, self._turn, self._done = 0, -1, NOTHING_TO_ASK, False
        self.agents = self.possible_agents[:]
        self._run_on()
        self._reward()
        return self._seen(), self._infos()

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """The agent whose turn it is acts; the other's action is not looked at. A closed action is refused."""
        if not self.agents:
            raise InputError("the episode is over: call reset")
        self._act(actions)
        self._n_steps += 1
        reward = self._reward()
        truncated = bool(self._max_steps) and self._n_steps >= self._max_steps and not self._done
        seen, infos = self._seen(), self._infos()
        everyone = self.agents
        if self._done or truncated:
            self.agents = []
        return (
            seen,
            dict.fromkeys(everyone, reward),
            dict.fromkeys(everyone, self._done),
            dict.fromkeys(everyone, truncated),
            infos,
        )

    def action_masks(self) -> dict[str, NDArray[np.int8]]:
        """What each agent may do now."""
        selector = np.zeros(N_SLOTS + 1, dtype=np.int8)
        allocator = np.zeros(N_KINDS + 1, dtype=np.int8)
        selector[WAIT] = 1
        if self._turn == ASK_SELECTOR:
            here = self._slots[AT_JOBS : AT_JOBS + N_SLOTS] >= 0
            if self._state.now["reserved"][0] >= 0:
                here &= self._slots[AT_SLOTS:AT_JOBS].reshape(N_SLOTS, N_SLOT)[:, STARTS] > 0
            selector[:N_SLOTS] = here
            # Where nothing runs, nobody waits: nothing might ever happen again.
            selector[WAIT] = self._state.now["n_running"][0] > 0
        if self._turn == ASK_ALLOCATOR:
            allocator[:N_KINDS] = self._world.allocation_knobs[AT_NODE : AT_NODE + N_KINDS] >= 0
        if not allocator.any():
            allocator[PASS] = 1
        return {SELECTOR: selector, ALLOCATOR: allocator}

    @property
    def _slots(self) -> Floats:
        return self._world.selection_knobs[AT_SEEN:AT_SCORES]

    def _act(self, actions: dict[str, int]) -> None:
        who = SELECTOR if self._turn == ASK_SELECTOR else ALLOCATOR
        action = int(actions[who])
        if not (0 <= action < self._spaces[who][1].n and self.action_masks()[who][action]):
            raise InputError(f"{who}: action {action} is not open now; see action_mask")
        if self._turn == ASK_ALLOCATOR:
            knobs = self._world.allocation_knobs
            knobs[AT_CHOSEN] = knobs[AT_NODE + action] if action < N_KINDS else -1.0
            self._start(self._world, self._arrays, self._state, self._job)
            self._ask()
        elif action == WAIT:
            self._turn = NOTHING_TO_ASK
        else:
            self._take(int(self._slots[AT_JOBS + action]))
        self._run_on()

    def _take(self, job: int) -> None:
        """A job was picked: the allocator is next, or it got the reservation."""
        self._job = job
        if self._offer(self._world, self._arrays, self._state, job):
            self._turn = ASK_ALLOCATOR
        else:
            self._ask()

    def _ask(self) -> None:
        """Who is next at this moment?"""
        self._turn, forced = look(self._world, self._arrays, self._state, self._slots)
        if forced >= 0:
            self._take(forced)

    def _run_on(self) -> None:
        """To the next question, or the end."""
        while self._turn == NOTHING_TO_ASK and not self._done:
            self._state.now["reserved"] = -1
            n_events = int(self._state.now["n_events"][0])
            status = self._go_on(self._world, self._arrays, self._state, n_events + 1)
            if status == STRETCHES_FULL:
                more = np.zeros_like(self._state.stretch)
                self._state = self._state._replace(stretch=np.concatenate([self._state.stretch, more]))
            elif status == FINISHED:
                self._done = True
            elif status == PAUSED or self._state.now["n_events"][0] > n_events:
                self._ask()
            else:
                raise SimulationError("nothing runs, nothing comes, and the agents wait")

    def _reward(self) -> float:
        before = self._paid
        self._first, self._settled, self._paid = waited_slowdown(self._arrays, self._state, self._first, self._settled)
        return float(before - self._paid) / len(self._jobs)

    def _seen(self) -> dict[str, dict[str, NDArray[Any]]]:
        masks = self.action_masks()
        slots = self._slots
        seen = np.zeros(N_SELECTOR_SEEN, dtype=np.float32)
        if self._turn == ASK_SELECTOR:
            seen[:N_CLUSTER] = slots[:N_CLUSTER]
            rows = slots[AT_SLOTS:AT_JOBS].reshape(N_SLOTS, N_SLOT)
            seen[N_CLUSTER:] = (rows * masks[SELECTOR][:N_SLOTS, None]).ravel()
        kinds = np.zeros(N_ALLOCATOR_SEEN, dtype=np.float32)
        if self._turn == ASK_ALLOCATOR:
            knobs = self._world.allocation_knobs
            kinds[:N_CLUSTER] = knobs[AT_KIND_SEEN : AT_KIND_SEEN + N_CLUSTER]
            rows = knobs[AT_NUMBERS : AT_NUMBERS + N_KINDS * N_KIND].reshape(N_KINDS, N_KIND)
            kinds[N_CLUSTER:] = (rows * masks[ALLOCATOR][:N_KINDS, None]).ravel()
        return {
            SELECTOR: {"observation": seen, "action_mask": masks[SELECTOR]},
            ALLOCATOR: {"observation": kinds, "action_mask": masks[ALLOCATOR]},
        }

    def _infos(self) -> dict[str, dict[str, Any]]:
        now = self._state.now[0]
        info: dict[str, Any] = {"time_s": float(now["time_s"]), "n_waiting": int(now["n_waiting"])}
        info["turn"] = (SELECTOR, ALLOCATOR, "")[self._turn]
        if self._done:
            costs = summarise(self._jobs, run_of(self._state), self._cluster)
            info |= {"mean_bounded_slowdown": costs.mean_bounded_slowdown, "mean_wait_s": costs.mean_wait_s}
        return {agent: dict(info) for agent in self.possible_agents}


def _observation(n_seen: int, n_actions: int) -> spaces.Dict:
    return spaces.Dict(
        {
            "observation": spaces.Box(-np.inf, np.inf, (n_seen,), dtype=np.float32),
            "action_mask": spaces.Box(0, 1, (n_actions,), dtype=np.int8),
        }
    )


def parallel_env(jobs: Callable[[int], GangJobs], nodes: str = "30x8", max_steps: int = 0) -> GangSchedule:
    """PettingZoo's usual door."""
    return GangSchedule(jobs, nodes, max_steps)
