"""Training a mean-field policy: imitate a teacher, then improve by PPO on whole days.

Every training day is played several times with different draws (*siblings*). A decision's advantage is what its day
cost from there on, less what it cost the siblings from the same moment on: they saw the same arrivals, whose noise is
a hundred times what one decision changes. No critic is needed, and none can be fooled.
"""

from __future__ import annotations

import copy
import io
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smartmig.atomic import atomic_write
from smartmig.errors import InputError
from smartmig.jit import kernel
from smartmig.metrics.objective import ENERGY_WEIGHT
from smartmig.policy import encoding
from smartmig.policy.encoding import describe
from smartmig.policy.policy_file import MEAN_FIELD, About, PolicyFile, write_policy
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.batch import Days, Played, Setting
from smartmig.train.network import MeanFieldNet, move_log_probability
from smartmig.train.settings import Training
from smartmig.types import Floats, Jobs
from smartmig.workload.seeds import TRAINING_FIRST, VALIDATION_FIRST

Told = Callable[[str, int, int, str], None]
"""(what is being done, steps done, steps in all, how it goes)"""

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


def advantage(played: Played, cost: Floats, siblings: int, horizon_s: float) -> Floats:
    """How much cheaper each decision's day went on than its siblings' days did from the same moment."""
    to_go = np.empty(cost.size)
    cost_to_go(cost, played.time_s, played.day, horizon_s, to_go)
    first = np.searchsorted(played.day, np.arange(len(played.total) + 1))
    better = np.empty(cost.size)
    for day in range(len(played.total)):
        mine = slice(first[day], first[day + 1])
        others = np.zeros(first[day + 1] - first[day])
        family = day - day % siblings
        for other in range(family, family + siblings):
            if other != day:
                theirs = slice(first[other], first[other + 1])
                others += np.interp(played.time_s[mine], played.time_s[theirs], to_go[theirs])
        better[mine] = others / (siblings - 1) - to_go[mine]
    return better


class Trainer:
    """A training run that can be stopped after any update and goes on exactly as if it had not been."""

    def __init__(
        self,
        setting: Setting,
        jobs: Callable[[int], Jobs],
        training: Training,
        teacher: RepartitionRule | None,
        device: str = "cpu",
        n_threads: int | None = None,
    ) -> None:
        """`jobs`: the job set of a seed."""
        # The networks are small: more threads than this wait for each other longer than they work.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
        self.training = training
        self.teacher = teacher
        self.device = device
        self.days = Days(setting, [jobs(TRAINING_FIRST + i) for i in range(training.pool)], n_threads)
        self.validation = Days(
            setting, [jobs(VALIDATION_FIRST + i) for i in range(training.validation_days)], n_threads
        )
        if len(self.days.cuts.models) > 1:
            raise InputError("--gpus: training needs GPUs of one model; a trained policy runs on mixed clusters too")
        self.explore = MeanField(top=training.top, events_per_gpu=training.events_per_gpu)
        self.decide = MeanField()
        model = self.days.cuts.models[0]
        self.net = MeanFieldNet(describe(self.days.cuts), model.n_compute, training.seed).to(device)
        self.optimiser = torch.optim.Adam(self.net.parameters(), training.learning_rate)
        self.rng = np.random.default_rng(training.seed)
        self.torch_rng = torch.Generator().manual_seed(training.seed)
        self.iteration = 0
        self.best_et = np.inf
        self.best = self.smooth = self.net.vector()
        self.curve: list[dict[str, float]] = []

    def imitate(self, tell: Told) -> None:
        """Cross-entropy on what the teacher did."""
        if self.teacher is None or self.training.teacher_days == 0 or self.iteration > 0:
            return
        which = list(range(min(self.training.teacher_days, self.training.pool)))
        tell("playing the teacher's days", 0, 1, "")
        played = self.days.play(which, teacher=self.teacher, rule=self.explore)
        features, gpus, moves = self._tensors(played.features, played.gpus, played.moves)
        n_configs = gpus.shape[2]
        everything = torch.full((len(features), n_configs), (1 << n_configs) - 1, device=self.device)
        optimiser = torch.optim.Adam(self.net.parameters(), 2e-3)
        for epoch in range(self.training.teacher_epochs):
            for group in optimiser.param_groups:
                group["lr"] = 2e-3 * (1 - epoch / self.training.teacher_epochs)
            total = 0.0
            order = torch.randperm(len(features), generator=self.torch_rng).to(self.device)
            for batch in order.split(2048):
                log_p, _ = move_log_probability(self.net, features[batch], gpus[batch], moves[batch], everything[batch])
                loss = -log_p.mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += float(loss.detach()) * len(batch)
            surprise = total / len(features)
            tell("imitating the teacher", epoch + 1, self.training.teacher_epochs, f"surprise {surprise:.3f}")
        self.smooth = self.net.vector()
        self._validate()

    def update(self) -> dict[str, float]:
        """Play some days, improve the policy once."""
        training = self.training
        began = time.perf_counter()
        families = self.rng.choice(training.pool, training.days // training.siblings, replace=False)
        which = [int(index) for index in families for _ in range(training.siblings)]
        seed = training.seed * 1_000_000 + self.iteration + 1
        played = self.days.play(which, self.net.vector(), seed=seed, rule=self.explore)
        played_s = time.perf_counter() - began
        n_jobs = np.array([self.days.jobs[index].spec.size for index in which])[played.day]
        cost = SCALE * (played.cost[:, 0] / 60 / n_jobs + ENERGY_WEIGHT * played.cost[:, 1] / 60)
        better = advantage(played, cost, training.siblings, training.horizon_s)
        spread = float(better.std())
        usual = np.clip(better / (spread + 1e-9), -OUTLIER, OUTLIER)
        gain = torch.tensor(usual - usual.mean(), dtype=torch.float32, device=self.device)
        features, gpus, moves, kept = self._tensors(played.features, played.gpus, played.moves, played.kept)
        with torch.no_grad():
            before = torch.cat(
                [
                    move_log_probability(self.net, *parts)[0]
                    for parts in zip(*(x.split(65_536) for x in (features, gpus, moves, kept)), strict=True)
                ]
            )
        progress = self.iteration / max(1, training.iterations)
        for group in self.optimiser.param_groups:
            group["lr"] = training.learning_rate * (1 - 0.9 * progress)
        moved: list[float] = []
        undecided = 0.0
        for _ in range(training.epochs):
            n_sample = max(1, int(training.sample_share * len(features)))
            order = torch.randperm(len(features), generator=self.torch_rng)[:n_sample].to(self.device)
            for batch in order.split(MINIBATCH):
                log_p, entropy = move_log_probability(self.net, features[batch], gpus[batch], moves[batch], kept[batch])
                log_ratio = log_p - before[batch]
                ratio = log_ratio.exp()
                clipped = ratio.clamp(1 - training.clip, 1 + training.clip)
                surrogate = torch.minimum(ratio * gain[batch], clipped * gain[batch]).mean()
                undecided = float(entropy.detach())
                loss = -surrogate - training.entropy * (1 - progress) * entropy
                self.optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.optimiser.step()
                moved.append(float(((ratio - 1) - log_ratio).mean().detach()))
            if moved[-1] > training.kl_limit:
                break
        self.iteration += 1
        self.smooth = SMOOTHING * self.smooth + (1 - SMOOTHING) * self.net.vector()
        row = {
            "iteration": float(self.iteration),
            "train_et": float(self.days.et(played, which).mean()),
            "advantage_spread": spread,
            "entropy": undecided,
            "kl": float(np.mean(moved)),
            "decisions_per_s": len(features) / (time.perf_counter() - began),
            "play_s": played_s,
        }
        if self.iteration % training.validate_every == 0 or self.iteration == training.iterations:
            row["validation_et"] = self._validate()
        self.curve.append(row)
        return row

    def _validate(self) -> float:
        if not self.training.validation_days:
            self.best = self.smooth
            return np.nan
        which = range(self.training.validation_days)
        et = float(self.validation.et(self.validation.play(which, self.smooth, rule=self.decide), which).mean())
        if et < self.best_et:
            self.best_et, self.best = et, self.smooth
        return et

    def teacher_et(self) -> float:
        """The teacher's ET on the validation days."""
        which = range(self.training.validation_days)
        return float(self.validation.et(self.validation.play(which, teacher=self.teacher), which).mean())

    def _tensors(self, *arrays: Any) -> tuple[Tensor, ...]:
        return tuple(torch.as_tensor(array, device=self.device) for array in arrays)

    def save(self, path: Path) -> None:
        """A checkpoint, written atomically."""
        buffer = io.BytesIO()
        state = {
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
        torch.save(copy.deepcopy(state), buffer)
        with atomic_write(path, "wb") as file:
            file.write(buffer.getvalue())

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of the same training; raises `InputError` for another's."""
        try:
            state = torch.load(io.BytesIO(path.read_bytes()), map_location=self.device, weights_only=True)
            theirs = {**state["training"], "iterations": self.training.iterations}
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
        except Exception as error:
            raise InputError(f"{path}: not a checkpoint of this trainer ({type(error).__name__})") from None
        ours = asdict(self.training)
        differs = [name for name in ours if ours[name] != theirs.get(name)]
        if differs:
            name = differs[0]
            raise InputError(f"{path}: was trained with {name} {theirs.get(name)}, asked is {ours[name]}")
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = state["rng"]
        self.torch_rng.set_state(state["torch_rng"].cpu())
        self.iteration, self.best_et = state["iteration"], state["best_et"]
        self.best, self.smooth = state["best"].cpu().numpy(), state["smooth"].cpu().numpy()
        self.curve = state["curve"]

    def export(self, path: Path, command: str, placement: str) -> None:
        """The best policy so far, as a policy file."""
        settings = self.days.setting.settings
        about = About(
            kind=MEAN_FIELD,
            encoding=encoding.VERSION,
            gpus=(self.days.cuts.models[0].id,),
            placement=placement,
            preempt=settings.preempt,
            drain=settings.drain,
            command=command,
            settings={**asdict(self.training), "n_gpus": self.days.world.n_gpus},
            scores={"validation_et": self.best_et, "updates": float(self.iteration)},
        )
        write_policy(path, PolicyFile(about, self.best))
