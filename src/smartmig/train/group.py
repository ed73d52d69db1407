"""GRPO's idea for placing: no critic; siblings leave from the same moment, and each is judged by the others.

A group of lanes starts from one state, every lane draws its own placings, and the advantage of a placing is what its
lane earned from there on less the mean of the group at the same step, in units of the group's spread.
"""

from __future__ import annotations

import itertools
from typing import Any, Protocol

import numpy as np
import torch

from smartmig.sim.mig.lanes import Lanes
from smartmig.train.settings import StepTraining


def share_state(lanes: Lanes, source: int, to: slice) -> None:
    """Let lanes go on from where another is."""
    for stacks in (lanes.jobs, lanes.states, lanes.questions):
        for stack in stacks:
            stack[to] = stack[source]
    lanes.n_jobs[to] = lanes.n_jobs[source]
    for lane in range(to.start, to.stop):
        lanes.day[lane] = lanes.day[source]


class Restarts(Protocol):
    """Where new days come from."""

    rng: np.random.Generator

    def begin(self, lane: int) -> None: ...


class GroupLearner:
    """Lanes are taken in groups of `settings.siblings`."""

    def __init__(self, lanes: Lanes, days: Restarts, settings: StepTraining) -> None:
        self.lanes, self.days, self.settings = lanes, days, settings
        n, size = lanes.n_lanes, min(settings.siblings, lanes.n_lanes)
        self.groups = [slice(at, min(at + size, n)) for at in range(0, n, size)]
        widths = [lanes.n_seen, *settings.widths, lanes.n_actions]
        parts: list[torch.nn.Module] = []
        for inward, outward in itertools.pairwise(widths):
            parts += [torch.nn.Linear(inward, outward), torch.nn.Tanh()]
        self.network = torch.nn.Sequential(*parts[:-1])
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.n_steps = max(2, min(settings.update_steps, settings.steps) // n)
        self.steps = 0

    def update(self) -> None:
        """Play on for a while, then learn from it."""
        rate, entropy = self.settings.at(self.steps)
        for option in self.optimiser.param_groups:
            option["lr"] = rate
        lanes, days = self.lanes, self.days
        for group in self.groups:
            share_state(lanes, int(days.rng.integers(group.start, group.stop)), group)
        seen, masks, actions, rewards, alive = _play(lanes, self.network, self.n_steps)
        for group in self.groups:
            if not alive[-1, group].all():  # a day that has ended in one lane is over for its siblings
                days.begin(group.start)
                share_state(lanes, group.start, group)
        advantage = group_advantage(rewards, self.groups, self.settings.gamma)
        counts = alive[:-1]
        lesson = seen[counts], masks[counts], actions[counts], advantage[counts]
        _improve(self.network, self.optimiser, self.settings, entropy, *lesson)
        self.steps += self.n_steps * lanes.n_lanes

    def state(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps = state["steps"]


def group_advantage(rewards: Any, groups: list[slice], gamma: float) -> Any:
    """(steps, lanes) earned from each step on, against the siblings."""
    earned = np.zeros_like(rewards)
    following = np.zeros(rewards.shape[1])
    for step in range(len(rewards) - 1, -1, -1):
        following = rewards[step] + gamma * following
        earned[step] = following
    for group in groups:
        earned[:, group] -= earned[:, group].mean(axis=1, keepdims=True)
    return earned / (earned.std() + 1e-8)


def _log_probabilities(network: torch.nn.Module, seen: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    scores: torch.Tensor = network(seen)
    return torch.log_softmax(scores.masked_fill(~masks, -1e9), dim=1)


def _play(lanes: Lanes, network: torch.nn.Module, n_steps: int) -> tuple[Any, Any, Any, Any, Any]:
    n = lanes.n_lanes
    seen = np.zeros((n_steps, n, lanes.n_seen), dtype=np.float32)
    masks = np.zeros((n_steps, n, lanes.n_actions), dtype=np.bool_)
    actions, rewards = np.zeros((n_steps, n), dtype=np.int64), np.zeros((n_steps, n))
    alive = np.zeros((n_steps + 1, n), dtype=np.bool_)
    alive[0] = True
    for step in range(n_steps):
        seen[step], masks[step] = lanes.seen, lanes.masks
        with torch.no_grad():
            logs = _log_probabilities(network, torch.from_numpy(seen[step]), torch.from_numpy(masks[step]))
            actions[step] = torch.multinomial(logs.exp(), 1).numpy()[:, 0]
        stepped = lanes.step(actions[step])
        rewards[step] = np.where(alive[step], stepped.reward, 0.0)
        alive[step + 1] = alive[step] & ~stepped.done
    return seen, masks, actions, rewards, alive


def _improve(
    network: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    settings: StepTraining,
    entropy: float,
    seen: Any,
    masks: Any,
    actions: Any,
    advantage: Any,
) -> None:
    """PPO's clipped steps."""
    sights, legal = torch.from_numpy(seen), torch.from_numpy(masks)
    taken, worth = torch.from_numpy(actions)[:, None], torch.from_numpy(advantage.astype(np.float32))
    with torch.no_grad():
        before = _log_probabilities(network, sights, legal).gather(1, taken)[:, 0]
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(sights)).split(settings.batch):
            logs = _log_probabilities(network, sights[rows], legal[rows])
            ratio = torch.exp(logs.gather(1, taken[rows])[:, 0] - before[rows])
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            gain = torch.minimum(ratio * worth[rows], clipped * worth[rows]).mean()
            spread = -(logs.exp() * logs.clamp(min=-50.0)).sum(dim=1).mean()
            optimiser.zero_grad()
            loss = -(gain + entropy * spread)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimiser.step()
