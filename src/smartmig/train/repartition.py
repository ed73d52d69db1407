"""Training a mean-field policy: imitate a teacher, then improve by PPO on whole days.

`train/ppo.py` says how a decision's advantage is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from smartmig.train.ppo import PpoTrainer, Rollout
from smartmig.train.settings import Training
from smartmig.types import Floats, Jobs
from smartmig.workload.seeds import TRAINING_FIRST, VALIDATION_FIRST

Told = Callable[[str, int, int, str], None]
"""(what is being done, steps done, steps in all, how it goes)"""


class Trainer(PpoTrainer):
    """Learns to cut."""

    training: Training

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
        self.teacher = teacher
        self.entropy = training.entropy
        self.days = Days(setting, [jobs(TRAINING_FIRST + i) for i in range(training.pool)], n_threads)
        self.validation = Days(
            setting, [jobs(VALIDATION_FIRST + i) for i in range(training.validation_days)], n_threads
        )
        self.explore = MeanField(top=training.top, events_per_gpu=training.events_per_gpu)
        self.decide = MeanField()
        cuts, world = self.days.cuts, self.days.world
        table = describe(cuts), world.config["model"], world.config_compute, world.card
        super().__init__(MeanFieldNet(*table, training.seed), training, device)

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
        self.validate()

    def play(self, which: Sequence[int], seed: int) -> Rollout:
        played = self.days.play(which, self.net.vector(), seed=seed, rule=self.explore)
        features, gpus, moves, kept = self._tensors(played.features, played.gpus, played.moves, played.kept)

        def log_probability(batch: Tensor) -> tuple[Tensor, Tensor]:
            return move_log_probability(self.net, features[batch], gpus[batch], moves[batch], kept[batch])

        n_jobs = np.array([self.days.jobs[index].spec.size for index in which])[played.day]
        et = float(self.days.et(played, which).mean())
        return Rollout(played.cost, n_jobs, played.time_s, played.day, et, log_probability)

    def validation_et(self, weights: Floats) -> float:
        which = range(self.training.validation_days)
        return float(self.validation.et(self.validation.play(which, weights, rule=self.decide), which).mean())

    def teacher_et(self) -> float:
        """The teacher's ET on the validation days."""
        which = range(self.training.validation_days)
        return float(self.validation.et(self.validation.play(which, teacher=self.teacher), which).mean())

    def _tensors(self, *arrays: Any) -> tuple[Tensor, ...]:
        return tuple(torch.as_tensor(array, device=self.device) for array in arrays)

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
