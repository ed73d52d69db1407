"""PPO on whole days: advantages from siblings, the clipped step, checkpoints. Trainers say how a day is played.

Every training day is played several times with different draws (*siblings*). A decision's advantage is what its day
cost from there on, less what it cost the siblings from the same moment on: they saw the same arrivals, whose noise is
a hundred times what one decision changes. No critic is needed, and none can be fooled.
"""

from __future__ import annotations

import copy
import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smartmig.atomic import atomic_write
from smartmig.errors import InputError
from smartmig.jit import kernel
from smartmig.metrics.objective import ENERGY_WEIGHT
from smartmig.train.settings import Ppo
from smartmig.types import Floats, Ints

MINIBATCH = 8192
OUTLIER = 8.0
"""Advantages beyond so many standard deviations are cut off: accidents of a crowded hour."""
SMOOTHING = 0.9
"""Of the weights that are validated and kept, per update: their mean over some ten updates steps over the noise."""
SCALE = 1000.0
"""Costs are ET of a day, spread over a thousand decisions and more: bring one decision's to about 1."""


@kernel
def cost_to_go(cost: Floats, time_s: Floats, day: Any, horizon_s: float, to_go: Floats) -> None:
    """Discounted sum of costs from each decision to the end of its day."""
    following = 0.0
    for at in range(cost.size - 1, -1, -1):
        last = at == cost.size - 1 or day[at + 1] != day[at]
        keep = 0.0 if last else np.exp(-(time_s[at + 1] - time_s[at]) / horizon_s)
        following = cost[at] + keep * following
        to_go[at] = following


def et_cost(cost: Floats, n_jobs: Ints) -> Floats:
    """ET of stretches of tardiness (s) and energy (J), as `SCALE` says; `n_jobs`: of each one's day."""
    scaled: Floats = SCALE * (cost[:, 0] / 60 / n_jobs + ENERGY_WEIGHT * cost[:, 1] / 60)
    return scaled


def advantage(cost: Floats, time_s: Floats, day: Ints, siblings: int, horizon_s: float) -> Floats:
    """How much cheaper each decision's day went on than its siblings' days did from the same moment."""
    to_go = np.empty(cost.size)
    cost_to_go(cost, time_s, day, horizon_s, to_go)
    n_days = int(day[-1]) + 1
    first = np.searchsorted(day, np.arange(n_days + 1))
    better = np.empty(cost.size)
    for one in range(n_days):
        mine = slice(first[one], first[one + 1])
        others = np.zeros(first[one + 1] - first[one])
        family = one - one % siblings
        for other in range(family, family + siblings):
            if other != one:
                theirs = slice(first[other], first[other + 1])
                others += np.interp(time_s[mine], time_s[theirs], to_go[theirs])
        better[mine] = others / (siblings - 1) - to_go[mine]
    return better


def in_usual_size(better: Floats) -> Floats:
    """Advantages with mean 0 and spread 1, outliers cut off."""
    usual = np.clip(better / (float(better.std()) + 1e-9), -OUTLIER, OUTLIER)
    centred: Floats = usual - usual.mean()
    return centred


class Rollout(NamedTuple):
    """What an update learns from: the decisions of some days, one after another."""

    cost: Floats  # (n, 2) tardiness (s) and energy (J) of the whole cluster until the next decision
    n_jobs: Ints  # (n,) of the decision's day
    time_s: Floats  # (n,)
    day: Ints  # (n,)
    et: float
    """mean of the days"""
    log_probability: Callable[[Tensor], tuple[Tensor, Tensor]]
    """of the decisions with the given indices, and their mean entropy"""


class PpoTrainer(ABC):
    """A training run that can be stopped after any update and goes on exactly as if it had not been."""

    entropy = 0.0
    """reward for undecided decisions at the beginning; falls to 0"""

    def __init__(self, net: Any, training: Ppo, device: str) -> None:
        # The networks are small: more threads than this wait for each other longer than they work.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
        self.training, self.device = training, device
        self.net = net.to(device)
        trained = [weight for weight in self.net.parameters() if weight.requires_grad]
        self.optimiser = torch.optim.Adam(trained, training.learning_rate)
        self.rng = np.random.default_rng(training.seed)
        self.torch_rng = torch.Generator().manual_seed(training.seed)
        self.iteration = 0
        self.best_et = np.inf
        self.best: Floats = self.net.vector()
        self.smooth = self.best
        self.curve: list[dict[str, float]] = []

    @abstractmethod
    def play(self, which: Sequence[int], seed: int) -> Rollout:
        """Training days by index under the network, with draws; before any of its weights change."""

    @abstractmethod
    def validation_et(self, weights: Floats) -> float:
        """Mean ET of the validation days."""

    def begin(self, weights: Floats) -> None:
        """Start from a policy that is there already."""
        self.net.load_vector(weights)
        self.best = self.smooth = weights
        self.best_et = np.inf
        self.validate()

    def update(self) -> dict[str, float]:
        """Play some days, improve the policy once."""
        training = self.training
        began = time.perf_counter()
        families = self.rng.choice(training.pool, training.days // training.siblings, replace=False)
        which = [int(index) for index in families for _ in range(training.siblings)]
        played = self.play(which, training.seed * 1_000_000 + self.iteration + 1)
        played_s = time.perf_counter() - began
        cost = et_cost(played.cost, played.n_jobs)
        better = advantage(cost, played.time_s, played.day, training.siblings, training.horizon_s)
        gain = torch.tensor(in_usual_size(better), dtype=torch.float32, device=self.device)
        step = self._improve(played.log_probability, gain)
        self.iteration += 1
        self.smooth = SMOOTHING * self.smooth + (1 - SMOOTHING) * self.net.vector()
        row = {
            "iteration": float(self.iteration),
            "train_et": played.et,
            "advantage_spread": float(better.std()),
            "entropy": step.entropy,
            "kl": step.kl,
            "decisions_per_s": len(cost) / (time.perf_counter() - began),
            "play_s": played_s,
        }
        if self.iteration % training.validate_every == 0 or self.iteration == training.iterations:
            row["validation_et"] = self.validate()
        self.curve.append(row)
        return row

    def _improve(self, log_probability: Callable[[Tensor], tuple[Tensor, Tensor]], gain: Tensor) -> Step:
        """PPO's clipped steps."""
        training = self.training
        with torch.no_grad():
            everything = torch.arange(len(gain), device=self.device)
            before = torch.cat([log_probability(part)[0] for part in everything.split(65_536)])
        progress = self.iteration / max(1, training.iterations)
        for group in self.optimiser.param_groups:
            group["lr"] = training.learning_rate * (1 - 0.9 * progress)
        moved: list[float] = []
        undecided = 0.0
        for _ in range(training.epochs):
            n_sample = max(1, int(training.sample_share * len(before)))
            order = torch.randperm(len(before), generator=self.torch_rng)[:n_sample].to(self.device)
            for batch in order.split(MINIBATCH):
                log_p, entropy = log_probability(batch)
                log_ratio = log_p - before[batch]
                ratio = log_ratio.exp()
                clipped = ratio.clamp(1 - training.clip, 1 + training.clip)
                surrogate = torch.minimum(ratio * gain[batch], clipped * gain[batch]).mean()
                undecided = float(entropy.detach())
                loss = -surrogate - self.entropy * (1 - progress) * entropy
                self.optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.optimiser.step()
                moved.append(float(((ratio - 1) - log_ratio).mean().detach()))
            if moved[-1] > training.kl_limit:
                break
        return Step(float(np.mean(moved)), undecided)

    def validate(self) -> float:
        if not self.training.validation_days:
            self.best = self.smooth
            return np.nan
        et = self.validation_et(self.smooth)
        if et < self.best_et:
            self.best_et, self.best = et, self.smooth
        return et

    def save(self, path: Path) -> None:
        """A checkpoint, written atomically."""
        write_checkpoint(path, self.state())

    def state(self) -> dict[str, Any]:
        """All that `restore` needs to go on as if nothing had happened."""
        return {
            "training": asdict(self.training),
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.bit_generator.state,
            "torch_rng": self.torch_rng.get_state(),
            "iteration": self.iteration,
            "best_et": self.best_et,
            "best": torch.tensor(self.best),
            "smooth": torch.tensor(self.smooth),
            "curve": self.curve,
        }

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of the same training; raises `InputError` for another's."""
        self.restore(read_checkpoint(path, self.device, asdict(self.training), may_differ="iterations"))

    def restore(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = state["rng"]
        self.torch_rng.set_state(state["torch_rng"].cpu())
        self.iteration, self.best_et = state["iteration"], state["best_et"]
        self.best, self.smooth = state["best"].cpu().numpy(), state["smooth"].cpu().numpy()
        self.curve = state["curve"]


class Step(NamedTuple):
    """How far one update went."""

    kl: float
    entropy: float


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Atomic."""
    buffer = io.BytesIO()
    torch.save(copy.deepcopy(state), buffer)
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())


def read_checkpoint(path: Path, device: str, settings: dict[str, Any], may_differ: str = "") -> dict[str, Any]:
    """A checkpoint of a training with the same settings, but for one; raises `InputError` for another's."""
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(path.read_bytes()), map_location=device, weights_only=True)
        theirs = {**state["training"], may_differ: settings.get(may_differ)}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:
        raise InputError(f"{path}: not a checkpoint of this trainer ({type(error).__name__})") from None
    for name, ours in settings.items():
        if theirs.get(name) != ours:
            raise InputError(f"{path}: was trained with {name} {theirs.get(name)}, asked is {ours}")
    return state
