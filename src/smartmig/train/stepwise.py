"""Training policies that place one job a step, with other people's trainers: S1's way, its ablations, its rivals.

`train_placer` learns on lanes of days (`sim/mig/lanes.py`) and returns plain arrays (`placer.py`). Ours is not trained
this way (see `placement.py`): this is what it is compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from smartmig.errors import InputError
from smartmig.sim.mig.lanes import Lanes
from smartmig.sim.mig.run import Cluster
from smartmig.train.group import train_group
from smartmig.train.placer import Layers, Placer
from smartmig.train.settings import StepTraining
from smartmig.types import Ints, Jobs
from smartmig.workload.seeds import TRAINING_FIRST

NO_CLIP = 1e6
"""where the divergence alone says how far an update goes"""

Told = Callable[[int], None]
"""hears the number of steps done"""


class Course:
    """How far a training is, and the policies it had on the way."""

    def __init__(self, settings: StepTraining, tell: Told, keep_at: Sequence[int]) -> None:
        self.settings, self.tell = settings, tell
        self.keep_at = sorted(step for step in keep_at if step < settings.steps)
        self.kept: list[tuple[int, Placer]] = []
        self.begun_s = time.perf_counter()

    def reached(self, steps: int, layers: Callable[[], Layers]) -> None:
        self.tell(min(steps, self.settings.steps))
        while self.keep_at and steps >= self.keep_at[0]:
            self.keep(self.keep_at.pop(0), layers())

    def keep(self, steps: int, layers: Layers) -> None:
        self.kept.append((steps, Placer(layers, self.settings, time.perf_counter() - self.begun_s)))


class LaneEnv(VecEnv):
    """Lanes as stable-baselines3 wants them; days come from a pool, in an order drawn from the seed."""

    def __init__(self, lanes: Lanes, jobs: Callable[[int], Jobs], settings: StepTraining) -> None:
        limit = np.full(lanes.n_seen, 1e3, dtype=np.float32)
        super().__init__(lanes.n_lanes, spaces.Box(-limit, limit), spaces.Discrete(lanes.n_actions))
        self.lanes = lanes
        self.pool = [lanes.prepare(jobs(TRAINING_FIRST + at)) for at in range(settings.pool)]
        self.rng = np.random.default_rng(settings.seed)
        self.actions: Ints = np.zeros(lanes.n_lanes, dtype=np.int64)
        self.render_mode = None

    def reset(self) -> Any:
        for lane in range(self.lanes.n_lanes):
            self.begin(lane)
        # Days that begin together would all be at night together: run them apart first.
        n_steps = int(np.mean([len(day[0]) for day in self.pool]))
        for step in range(n_steps):
            ranks = np.where(self.lanes.masks, self.rng.random(self.lanes.masks.shape), -1.0)
            done = self.lanes.step(np.argmax(ranks, axis=1)).done
            for lane in range(self.num_envs):
                if done[lane] or lane * n_steps // self.num_envs == step:
                    self.begin(lane)
        return self.lanes.seen.copy()

    def begin(self, lane: int) -> None:
        self.lanes.begin(lane, self.pool[int(self.rng.integers(len(self.pool)))])
        self.lanes.look([lane])

    def step_async(self, actions: Any) -> None:
        self.actions = np.asarray(actions)

    def step_wait(self) -> Any:
        stepped = self.lanes.step(self.actions)
        reward, done = stepped.reward.astype(np.float32), stepped.done.copy()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(done):
            infos[lane] = {"terminal_observation": self.lanes.seen[lane].copy(), "TimeLimit.truncated": False}
            self.begin(int(lane))
        return self.lanes.seen.copy(), reward, done, infos

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        if method_name != "action_masks":
            raise NotImplementedError(method_name)
        return list(self.lanes.masks.copy())

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(attr_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        return [False] * self.num_envs

    def close(self) -> None:
        return


class Schedule(BaseCallback):
    """Lowers the entropy's weight as training goes on."""

    def __init__(self, course: Course, layers: Callable[[Any], Layers]) -> None:
        super().__init__()
        self.course, self.layers = course, layers

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if hasattr(self.model, "ent_coef"):
            self.model.ent_coef = self.course.settings.at(self.num_timesteps)[1]
        self.course.reached(self.num_timesteps, lambda: self.layers(self.model))


def train_placer(
    cluster: Cluster,
    jobs: Callable[[int], Jobs],
    settings: StepTraining,
    tell: Told = lambda _: None,
    keep_at: Sequence[int] = (),
) -> list[tuple[int, Placer]]:
    """Learn on training days; the policies after `keep_at` steps and at the end, with the number of steps.

    Raises `InputError` where sb3-contrib is missing.
    """
    torch.manual_seed(settings.seed)
    knobs: dict[str, Any] = {"observation": settings.observation, "reward": settings.reward, "wait": settings.wait}
    days = LaneEnv(Lanes(cluster, settings.lanes, **knobs), jobs, settings)
    days.lanes.begin(0, days.pool[0])
    days.lanes.look([0])  # compiles, which is no part of the training
    course = Course(settings, tell, keep_at)
    learn = {"grpo": _grpo, "dqn": _dqn}.get(settings.algorithm, _ppo)
    course.keep(settings.steps, learn(days, settings, course))
    return course.kept


def _grpo(days: LaneEnv, settings: StepTraining, course: Course) -> Layers:
    network = train_group(days.lanes, days, settings, lambda steps, net: course.reached(steps, lambda: linear(net)))
    return linear(network)


def _ppo(days: LaneEnv, settings: StepTraining, course: Course) -> Layers:
    try:
        from sb3_contrib import MaskablePPO
    except ModuleNotFoundError:
        raise InputError("MaskablePPO is missing: pip install 'smartmig[sb3]'") from None
    by_kl = settings.algorithm == "kl"
    update_steps = min(settings.update_steps, max(settings.steps, settings.lanes))
    model = MaskablePPO(
        "MlpPolicy",
        days,
        n_steps=max(2, update_steps // settings.lanes),
        batch_size=min(settings.batch, update_steps),
        n_epochs=settings.epochs,
        learning_rate=lambda left: settings.at(round((1.0 - left) * settings.steps))[0],
        ent_coef=settings.entropy,
        clip_range=NO_CLIP if by_kl else settings.clip,
        gamma=settings.gamma,
        target_kl=settings.target_kl if by_kl else None,
        policy_kwargs={"net_arch": settings.widths},
        seed=settings.seed,
        device="cpu",
    )
    model.learn(settings.steps, callback=Schedule(course, _actor))
    return _actor(model)


def _actor(model: Any) -> Layers:
    return linear([*model.policy.mlp_extractor.policy_net, model.policy.action_net])


def _dqn(days: LaneEnv, settings: StepTraining, course: Course) -> Layers:
    """It knows no masks: the environment says what an illegal action counts as; the policy is used with masks."""
    from stable_baselines3 import DQN

    model = DQN(
        "MlpPolicy",
        days,
        learning_rate=settings.learning_rate,
        buffer_size=100_000,
        learning_starts=min(5_000, settings.steps // 4),
        batch_size=256,
        gamma=settings.gamma,
        train_freq=4,
        gradient_steps=8,
        target_update_interval=1_000,
        exploration_fraction=0.5,
        policy_kwargs={"net_arch": settings.widths, "activation_fn": torch.nn.Tanh},
        seed=settings.seed,
        device="cpu",
    )
    model.learn(settings.steps, callback=Schedule(course, lambda model: linear(model.q_net.q_net)))
    return linear(model.q_net.q_net)


def linear(modules: Iterable[Any]) -> Layers:
    """Weights and biases of the linear ones."""
    return tuple(
        (module.weight.detach().numpy().T.copy(), module.bias.detach().numpy().copy())
        for module in modules
        if isinstance(module, torch.nn.Linear)
    )
