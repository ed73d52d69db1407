"""Training policies that place one job a step, with other people's trainers: S1's way, its ablations, its rivals.

`train_placer` learns on lanes of days (`sim/mig/lanes.py`) and returns plain arrays (`placer.py`). Ours is not trained
this way (see `placement.py`): this is what it is compared with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from smartmig.errors import InputError
from smartmig.sim.mig.lanes import Lanes
from smartmig.sim.mig.run import Cluster
from smartmig.train.group import GroupLearner
from smartmig.train.placer import Layers, Placer
from smartmig.train.ppo import read_checkpoint, write_checkpoint
from smartmig.train.settings import StepTraining
from smartmig.types import Ints, Jobs
from smartmig.workload.seeds import TRAINING_FIRST

CHECKPOINT_EVERY_S = 30.0
NO_CLIP = 1e6
"""where the divergence alone says how far an update goes"""

Told = Callable[[int], None]
"""hears the number of steps done"""


class Course:
    """How far a training is, the policies it had on the way, and its checkpoint."""

    def __init__(
        self,
        settings: StepTraining,
        tell: Told,
        keep_at: Sequence[int],
        checkpoint: Path | None,
        stop: Callable[[], Any],
    ) -> None:
        self.settings, self.tell, self.checkpoint, self.stop = settings, tell, checkpoint, stop
        self.keep_at = sorted(step for step in keep_at if step < settings.steps)
        self.kept: list[tuple[int, Placer]] = []
        self.stopped = False
        self.begun_s = self.saved_s = time.perf_counter()

    def reached(self, steps: int, layers: Callable[[], Layers], state: Callable[[], dict[str, Any]] | None) -> None:
        """Between two updates. `state`: what the learner has beside its days, None where it cannot be stopped."""
        self.tell(min(steps, self.settings.steps))
        while self.keep_at and steps >= self.keep_at[0]:
            self.keep(self.keep_at.pop(0), layers())
        self.stopped = bool(self.stop()) and steps < self.settings.steps
        now_s = time.perf_counter()
        if self.checkpoint and state and (self.stopped or now_s - self.saved_s > CHECKPOINT_EVERY_S):
            self.saved_s = now_s
            own = {"training": asdict(self.settings), "steps": steps, "spent_s": now_s - self.begun_s}
            write_checkpoint(self.checkpoint, {**own, **state()})

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

    def state(self) -> dict[str, Any]:
        """Everything that moves and every source of chance, for a checkpoint."""
        room, arrays = self.lanes.under_way()
        drawn: Any = np.random.get_state(legacy=False)
        return {
            "room": room,
            "lanes": [torch.tensor(array) for array in arrays],
            "days_drawn": json.dumps(self.rng.bit_generator.state),
            "numpy": [torch.tensor(drawn["state"]["key"].astype(np.int64)), drawn["state"]["pos"]],
            "torch": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.lanes.go_on(state["room"], [array.numpy() for array in state["lanes"]])
        self.rng.bit_generator.state = json.loads(state["days_drawn"])
        keys, at = state["numpy"]
        np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), at, 0, 0.0))
        torch.set_rng_state(state["torch"])

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
    """Lowers the entropy's weight as training goes on, and stops it when asked to."""

    def __init__(
        self, course: Course, layers: Callable[[Any], Layers], state: Callable[[Any], dict[str, Any]] | None = None
    ) -> None:
        super().__init__()
        self.course, self.layers, self.state = course, layers, state

    def _on_step(self) -> bool:
        return not self.course.stopped

    def _on_rollout_start(self) -> None:
        if hasattr(self.model, "ent_coef"):
            self.model.ent_coef = self.course.settings.at(self.num_timesteps)[1]
        state = self.state
        kept = None if state is None else lambda: state(self.model)
        self.course.reached(self.num_timesteps, lambda: self.layers(self.model), kept)


def train_placer(
    cluster: Cluster,
    jobs: Callable[[int], Jobs],
    settings: StepTraining,
    tell: Told = lambda _: None,
    keep_at: Sequence[int] = (),
    checkpoint: Path | None = None,
    resume: bool = False,
    stop: Callable[[], Any] = lambda: False,
) -> list[tuple[int, Placer]]:
    """Learn on training days; the policies after `keep_at` steps and at the end, with the number of steps.

    Asked to `stop` it writes the checkpoint after the update under way and returns nothing; with `resume` it goes on
    from there, to the same policy as if it had not been stopped. Raises `InputError` where sb3-contrib is missing.
    """
    if settings.algorithm == "dqn" and resume:
        raise InputError("--resume: dqn keeps no checkpoint (all it learns from is in memory)")
    torch.manual_seed(settings.seed)
    knobs: dict[str, Any] = {"observation": settings.observation, "reward": settings.reward, "wait": settings.wait}
    days = LaneEnv(Lanes(cluster, settings.lanes, **knobs), jobs, settings)
    days.lanes.begin(0, days.pool[0])
    days.lanes.look([0])  # compiles, which is no part of the training
    before = None
    if resume:
        assert checkpoint is not None
        before = read_checkpoint(checkpoint, "cpu", asdict(settings))
    course = Course(settings, tell, keep_at, checkpoint, stop)
    if before is not None:
        course.begun_s -= before["spent_s"]
    if settings.algorithm == "dqn":
        layers = _dqn(days, settings, course)
    else:
        layers = (_grpo if settings.algorithm == "grpo" else _ppo)(days, settings, course, before)
    if course.stopped:
        return []
    course.keep(settings.steps, layers)
    return course.kept


def _grpo(days: LaneEnv, settings: StepTraining, course: Course, before: dict[str, Any] | None) -> Layers:
    learner = GroupLearner(days.lanes, days, settings)
    if before is None:
        days.reset()
    else:
        days.restore(before)
        learner.restore(before)
    while learner.steps < settings.steps and not course.stopped:
        course.reached(learner.steps, lambda: linear(learner.network), lambda: {**days.state(), **learner.state()})
        if not course.stopped:
            learner.update()
    return linear(learner.network)


def _ppo(days: LaneEnv, settings: StepTraining, course: Course, before: dict[str, Any] | None) -> Layers:
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
    if before is not None:
        days.restore(before)
        model.policy.load_state_dict(before["policy"])
        model.policy.optimizer.load_state_dict(before["optimizer"])
        model.num_timesteps = before["steps"]
        model._last_obs = before["seen"].numpy()
        model._last_episode_starts = before["begun"].numpy()

    def state(model: Any) -> dict[str, Any]:
        return {
            **days.state(),
            "policy": model.policy.state_dict(),
            "optimizer": model.policy.optimizer.state_dict(),
            "seen": torch.tensor(model._last_obs),
            "begun": torch.tensor(model._last_episode_starts),
        }

    left = settings.steps - model.num_timesteps
    model.learn(left, callback=Schedule(course, _actor, state), reset_num_timesteps=before is None)
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
