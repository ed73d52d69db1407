"""Training the price network: PPO on whole days, from the constant prices that a search found.

An action is a list of prices: the network's logarithms plus Gaussian noise, held for some events. `train/ppo.py` says
how an action's advantage is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.outcomes import PlacedDays
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.network import PriceNet
from smartmig.train.placement import write_prices
from smartmig.train.ppo import PpoTrainer, Rollout
from smartmig.train.settings import PriceTraining
from smartmig.types import Floats, Jobs
from smartmig.workload.seeds import TRAINING_FIRST, VALIDATION_FIRST


class PriceTrainer(PpoTrainer):
    """Learns when slices should be dear."""

    training: PriceTraining

    def __init__(
        self,
        cluster: Cluster,
        repartition: RepartitionRule,
        settings: Settings,
        jobs: Callable[[int], Jobs],
        training: PriceTraining,
        start: Floats,
        device: str = "cpu",
        n_threads: int | None = None,
    ) -> None:
        """`jobs`: the job set of a seed; `start`: weights to begin with."""
        self.cluster, self.settings = cluster, settings
        sets = [[jobs(TRAINING_FIRST + at) for at in range(training.pool)]]
        sets += [[jobs(VALIDATION_FIRST + at) for at in range(training.validation_days)]]
        self.days, self.validation = (PlacedDays(cluster, repartition, settings, part, n_threads) for part in sets)
        super().__init__(PriceNet(start, training.seed), training, device)

    def update(self) -> dict[str, float]:
        if self.iteration == 0:
            self.validate()  # the start may be hard to beat
        return super().update()

    def play(self, which: Sequence[int], seed: int) -> Rollout:
        noise = self.training.noise
        played = self.days.play(which, self.net.vector(), self.training.every_events, noise, seed)
        features, away = (torch.as_tensor(x, device=self.device) for x in (played.features, played.noise))
        with torch.no_grad():
            drawn = torch.cat([self.net(part) for part in features.split(65_536)]) + noise * away

        def log_probability(batch: Tensor) -> tuple[Tensor, Tensor]:
            off = (drawn[batch] - self.net(features[batch])) / noise
            return -0.5 * off.square().sum(dim=1), torch.zeros((), device=self.device)

        n_jobs = np.array([self.days.jobs[index].spec.size for index in which])[played.day]
        et = float(played.total.et.mean())
        return Rollout(played.cost, n_jobs, played.time_s, played.day, et, log_probability)

    def validation_et(self, weights: Floats) -> float:
        return float(self.validation.run(range(self.training.validation_days), weights).et.mean())

    def export(self, path: Path, command: str, repartition: str) -> None:
        """The best policy so far, as a policy file."""
        scores = {"validation_score": self.best_et, "updates": float(self.iteration)}
        write_prices(path, self.best, self.cluster, self.settings, repartition, command, asdict(self.training), scores)
