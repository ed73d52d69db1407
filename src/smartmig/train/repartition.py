"""Training a mean-field policy: imitate a teacher, then improve by PPO on whole days.

`train/ppo.py` says how a decision's advantage is found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smartmig.policy import encoding
from smartmig.policy.encoding import describe
from smartmig.policy.policy_file import MEAN_FIELD, About, PolicyFile, write_policy
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.batch import Days, Setting
from smartmig.train.network import MeanFieldNet, move_log_probability
from smartmig.train.ppo import (
    SMOOTHING,
    advantage,
    et_cost,
    improve,
    in_usual_size,
    read_checkpoint,
    set_learning_rate,
    write_checkpoint,
)
from smartmig.train.settings import Training
from smartmig.types import Floats, Jobs
from smartmig.workload.seeds import TRAINING_FIRST, VALIDATION_FIRST

Told = Callable[[str, int, int, str], None]
"""(what is being done, steps done, steps in all, how it goes)"""


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
        self.explore = MeanField(top=training.top, events_per_gpu=training.events_per_gpu)
        self.decide = MeanField()
        cuts, world = self.days.cuts, self.days.world
        table = describe(cuts), world.config["model"], world.config_compute, world.card
        self.net = MeanFieldNet(*table, training.seed).to(device)
        self.optimiser = torch.optim.Adam(self.net.parameters(), training.learning_rate)
        self.rng = np.random.default_rng(training.seed)
        self.torch_rng = torch.Generator().manual_seed(training.seed)
        self.iteration = 0
        self.best_et = np.inf
        self.best = self.smooth = self.net.vector()
        self.curve: list[dict[str, float]] = []

    def begin(self, weights: Floats) -> None:
        """Start from a policy that is there already."""
        self.net.load_vector(weights)
        self.best = self.smooth = weights
        self.best_et = np.inf
        self._validate()

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
        cost = et_cost(played.cost, n_jobs)
        better = advantage(cost, played.time_s, played.day, training.siblings, training.horizon_s)
        gain = torch.tensor(in_usual_size(better), dtype=torch.float32, device=self.device)
        features, gpus, moves, kept = self._tensors(played.features, played.gpus, played.moves, played.kept)

        def log_probability(batch: Tensor) -> tuple[Tensor, Tensor]:
            return move_log_probability(self.net, features[batch], gpus[batch], moves[batch], kept[batch])

        everything = torch.arange(len(features), device=self.device)
        with torch.no_grad():
            before = torch.cat([log_probability(part)[0] for part in everything.split(65_536)])
        progress = self.iteration / max(1, training.iterations)
        set_learning_rate(self.optimiser, training.learning_rate * (1 - 0.9 * progress))
        step = improve(
            self.net,
            self.optimiser,
            log_probability,
            before,
            gain,
            epochs=training.epochs,
            sample_share=training.sample_share,
            clip=training.clip,
            entropy_weight=training.entropy * (1 - progress),
            kl_limit=training.kl_limit,
            generator=self.torch_rng,
        )
        self.iteration += 1
        self.smooth = SMOOTHING * self.smooth + (1 - SMOOTHING) * self.net.vector()
        row = {
            "iteration": float(self.iteration),
            "train_et": float(self.days.et(played, which).mean()),
            "advantage_spread": float(better.std()),
            "entropy": step.entropy,
            "kl": step.kl,
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

    def export(self, path: Path, command: str, placement: str) -> None:
        """The best policy so far, as a policy file."""
        settings = self.days.setting.settings
        about = About(
            kind=MEAN_FIELD,
            encoding=encoding.VERSION,
            gpus=tuple(sorted(model.id for model in self.days.cuts.models)),
            placement=placement,
            preempt=settings.preempt,
            drain=settings.drain,
            command=command,
            settings={**asdict(self.training), "n_gpus": self.days.world.n_gpus},
            scores={"validation_et": self.best_et, "updates": float(self.iteration)},
        )
        write_policy(path, PolicyFile(about, self.best))
