"""Training the price network: PPO on whole days, from the constant prices that a search found.

An action is a list of prices: the network's logarithms plus Gaussian noise, held for some events. `train/ppo.py` says
how an action's advantage is found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smartmig.policy import encoding
from smartmig.policy.policy_file import PRICES, About, PolicyFile, write_policy
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.outcomes import PlacedDays
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.network import PriceNet
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
from smartmig.train.settings import PriceTraining
from smartmig.types import Floats, Jobs
from smartmig.workload.seeds import TRAINING_FIRST, VALIDATION_FIRST


class PriceTrainer:
    """A training run that can be stopped after any update and goes on exactly as if it had not been."""

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
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
        self.training, self.device, self.cluster, self.settings = training, device, cluster, settings
        sets = [[jobs(TRAINING_FIRST + at) for at in range(training.pool)]]
        sets += [[jobs(VALIDATION_FIRST + at) for at in range(training.validation_days)]]
        self.days, self.validation = (PlacedDays(cluster, repartition, settings, part, n_threads) for part in sets)
        self.net = PriceNet(start, training.seed).to(device)
        trained = [weight for weight in self.net.parameters() if weight.requires_grad]
        self.optimiser = torch.optim.Adam(trained, training.learning_rate)
        self.rng = np.random.default_rng(training.seed)
        self.torch_rng = torch.Generator().manual_seed(training.seed)
        self.iteration = 0
        self.best_score = np.inf
        self.best = self.smooth = self.net.vector()
        self.curve: list[dict[str, float]] = []

    def update(self) -> dict[str, float]:
        """Play some days, improve the prices once."""
        training = self.training
        if self.iteration == 0:
            self._validate()  # the start may be hard to beat
        began = time.perf_counter()
        families = self.rng.choice(training.pool, training.days // training.siblings, replace=False)
        which = [int(index) for index in families for _ in range(training.siblings)]
        seed = training.seed * 1_000_000 + self.iteration + 1
        played = self.days.play(which, self.net.vector(), training.every_events, training.noise, seed)
        played_s = time.perf_counter() - began
        n_jobs = np.array([self.days.jobs[index].spec.size for index in which])[played.day]
        cost = et_cost(played.cost, n_jobs)
        better = advantage(cost, played.time_s, played.day, training.siblings, training.horizon_s)
        gain = torch.tensor(in_usual_size(better), dtype=torch.float32, device=self.device)
        features, noise = (torch.as_tensor(x, device=self.device) for x in (played.features, played.noise))
        with torch.no_grad():
            drawn = torch.cat([self.net(part) for part in features.split(65_536)]) + training.noise * noise
            before = -0.5 * noise.square().sum(dim=1)

        def log_probability(batch: Tensor) -> tuple[Tensor, Tensor]:
            away = (drawn[batch] - self.net(features[batch])) / training.noise
            return -0.5 * away.square().sum(dim=1), torch.zeros((), device=self.device)

        progress = self.iteration / max(1, training.updates)
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
            entropy_weight=0.0,
            kl_limit=training.kl_limit,
            generator=self.torch_rng,
        )
        self.iteration += 1
        self.smooth = SMOOTHING * self.smooth + (1 - SMOOTHING) * self.net.vector()
        row = {
            "iteration": float(self.iteration),
            "train_score": float(played.total.et.mean()),
            "advantage_spread": float(better.std()),
            "kl": step.kl,
            "decisions_per_s": len(features) / (time.perf_counter() - began),
            "play_s": played_s,
        }
        if self.iteration % training.validate_every == 0 or self.iteration == training.updates:
            row["validation_score"] = self._validate()
        self.curve.append(row)
        return row

    def _validate(self) -> float:
        if not self.training.validation_days:
            self.best = self.smooth
            return np.nan
        et = float(self.validation.run(range(self.training.validation_days), self.smooth).et.mean())
        if et < self.best_score:
            self.best_score, self.best = et, self.smooth
        return et

    def save(self, path: Path) -> None:
        """A checkpoint, written atomically."""
        state = {
            "training": asdict(self.training),
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.bit_generator.state,
            "torch_rng": self.torch_rng.get_state(),
            "iteration": self.iteration,
            "best_score": self.best_score,
            "best": torch.tensor(self.best),
            "smooth": torch.tensor(self.smooth),
            "curve": self.curve,
        }
        write_checkpoint(path, state)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of the same training; raises `InputError` for another's."""
        state = read_checkpoint(path, self.device, asdict(self.training), may_differ="updates")
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = state["rng"]
        self.torch_rng.set_state(state["torch_rng"].cpu())
        self.iteration, self.best_score = state["iteration"], state["best_score"]
        self.best, self.smooth = state["best"].cpu().numpy(), state["smooth"].cpu().numpy()
        self.curve = state["curve"]

    def export(self, path: Path, command: str, repartition: str) -> None:
        """The best policy so far, as a policy file."""
        about = About(
            kind=PRICES,
            encoding=encoding.VERSION,
            gpus=tuple(sorted({gpu.id for gpu in self.cluster.gpus})),
            placement=f"with {repartition}",
            preempt=self.settings.preempt,
            drain=self.settings.drain,
            command=command,
            settings={**asdict(self.training), "n_gpus": len(self.cluster.gpus)},
            scores={"validation_score": self.best_score, "updates": float(self.iteration)},
        )
        write_policy(path, PolicyFile(about, self.best))
