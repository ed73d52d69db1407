"""Placing jobs as a Gymnasium environment, `smartmig/MigPlacement-v0`: for trainers that are not ours.

One episode is one day of jobs on GPUs that stay as they are cut, without preemption. Every step answers one question
(see `questions`): which waiting job goes onto which free slice, or should all wait for the next event?

Importing this module registers the environment: Gymnasium has no plugin entry point any more (since 1.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.sim.mig.lanes import WINDOW, Lanes
from smartmig.sim.mig.questions import MOST_URGENT
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.seeds import jobs_of_day

try:
    import gymnasium
except ModuleNotFoundError:
    raise InputError(
        "smartmig.sim.mig.placement_env needs Gymnasium, which is missing: pip install 'smartmig[gym]'"
    ) from None

ENV_ID = "smartmig/MigPlacement-v0"

MOST_SEEN = 1e3
"""Logarithms and shares stay far below."""

Seen = NDArray[np.float32] | dict[str, Any]


class MigPlacement(gymnasium.Env[Any, np.int64]):
    """Which waiting job onto which free slice? Asked after every event for as long as a waiting job fits a free slice.

    - **Observation**, float32. `"ours"`: the features of `policy/encoding.py`, free slices by size, and for every job
      of a window of waiting ones what it is and what it would cost on each size: as long on every cluster. `"s1"`:
      S1's, of the job with the earliest deadline, the queue and every slice.
    - **Action**. `"ours"`: job of the window x slice size (`SLICE_SIZES`), `"s1"`: slice of the cluster, GPU by GPU
      from left to right; the last one is to wait for the next event. `action_masks()` says which are legal; one that is
      not counts as waiting. Waiting is legal while something else is going to happen, so no day gets stuck.
    - **Reward**. `"et"`: minus the ET paid since the last step; `"final"`: minus the day's ET, after its last step;
      `"s1"`: that, and 1 to -1 for every placing, by how late the job will be.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        gpus: str = "8xa100-40gb",
        layouts: str | None = None,
        *,
        multiplier: float = 20.0,
        deadline: tuple[float, float] = (2.0, 4.0),
        jobs: Callable[[int], Jobs] | None = None,
        observation: str = "ours",
        reward: str = "et",
        window: int = WINDOW,
        wait: bool = True,
        mask_in_observation: bool = False,
    ) -> None:
        """`gpus` and `layouts` are written as for `--gpus` and `--layouts` (none: S3's mix). `multiplier` and
        `deadline` are knobs of `DiurnalDay`; `jobs` makes the jobs of a day from its seed instead. `window`: how many
        jobs are asked about at once. `wait`: whether waiting is ever legal; in S1 it is not. `mask_in_observation`:
        observe a dict of `observations` and `action_mask`.

        Raises `InputError` for a value that makes no sense.
        """
        if jobs is None:
            low, high = deadline
            jobs = DiurnalDay(multiplier=multiplier, deadline=(low, high)).jobs
        cards = parse_gpus(gpus, "gpus")
        cluster = Cluster(cards, None if layouts is None else parse_layouts(layouts, cards, "layouts"))
        settings = Settings(preempt=False)
        self._jobs_of = jobs
        knobs: dict[str, Any] = {"observation": observation, "reward": reward, "window": window, "wait": wait}
        self._lanes = Lanes(cluster, 1, **knobs, settings=settings)
        self._with_mask = mask_in_observation
        self._over = True
        limit = np.full(self._lanes.n_seen, max(MOST_SEEN, MOST_URGENT), dtype=np.float32)
        box = gymnasium.spaces.Box(-limit, limit)
        self.action_space = gymnasium.spaces.Discrete(self._lanes.n_actions)
        if mask_in_observation:
            mask = gymnasium.spaces.Box(0, 1, (self._lanes.n_actions,), dtype=np.int8)
            self.observation_space = gymnasium.spaces.Dict({"observations": box, "action_mask": mask})
        else:
            self.observation_space = box

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin a day, and run it to its first question.

        `options={"day": n}` chooses the day; otherwise it is drawn, from days that no report is made of.
        """
        super().reset(seed=seed)
        jobs = jobs_of_day(self._jobs_of, options, self.np_random)
        self._lanes.begin(0, self._lanes.prepare(jobs))
        self._lanes.look([0])
        self._over = False
        return self._seen(), self._info()

    def step(self, action: np.int64 | int) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Place or wait, and run to the next question. Raises `InputError` for an action outside the space."""
        if self._over:
            raise gymnasium.error.ResetNeeded("call reset before step")
        wanted = np.asarray(action)
        if wanted.size != 1 or not np.issubdtype(wanted.dtype, np.integer) or not 0 <= wanted < self._lanes.n_actions:
            raise InputError(f"action {wanted.tolist()} is not in {self.action_space}")
        stepped = self._lanes.step(wanted.reshape(1))
        self._over = bool(stepped.done[0])
        info = self._info()
        if self._over:
            cost = self._lanes.summary(0)
            info |= {"et": cost.et, "mean_tardiness_s": cost.mean_tardiness_s, "energy_j": cost.energy_j}
            info["late_frac"] = cost.late_frac
        return self._seen(), float(stepped.reward[0]), self._over, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """For MaskablePPO: which actions are legal now."""
        return self._lanes.masks[0].copy()

    def _seen(self) -> Seen:
        seen = self._lanes.seen[0].copy()
        if not self._with_mask:
            return seen
        return {"observations": seen, "action_mask": self._lanes.masks[0].astype(np.int8)}

    def _info(self) -> dict[str, Any]:
        now = self._lanes.states.now[0, 0]
        return {
            "time_s": float(now["time_s"]),
            "n_waiting": int(now["n_waiting"]),
            "n_done": int(now["n_done"]),
        }


gymnasium.register(ENV_ID, entry_point=f"{__name__}:MigPlacement")
