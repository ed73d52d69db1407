"""Training how to cut and where to place together: in turn, each with what the other has become, against one ET.

A turn improves the cuts by PPO while the prices stand, then searches prices while the cuts stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from smartmig.policy import encoding
from smartmig.policy.placement.learned import HAND_MADE, Learned, priced_knobs
from smartmig.policy.policy_file import JOINT, About, PolicyFile, write_policy
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.sim.mig.batch import Setting
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.placement import PriceSearch
from smartmig.train.ppo import read_checkpoint, write_checkpoint
from smartmig.train.repartition import Trainer
from smartmig.train.settings import JointTraining
from smartmig.types import Floats, Jobs


class JointTrainer:
    """A training run that can be stopped after any step and goes on exactly as if it had not been."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        jobs: Callable[[int], Jobs],
        training: JointTraining,
        start: tuple[Floats, Floats],
        device: str = "cpu",
        n_threads: int | None = None,
    ) -> None:
        """`jobs`: the job set of a seed; `start`: weights of cuts and of prices."""
        self.cluster, self.settings, self.training = cluster, settings, training
        placing = Setting(cluster, Learned(HAND_MADE), settings)
        self.cuts = Trainer(placing, jobs, training.cuts(), None, device, n_threads)
        self.prices = PriceSearch(cluster, MeanField(), settings, jobs, training.prices(), n_threads)
        self.best = start
        self.best_et = np.inf
        self.iteration = 0
        self.curve: list[dict[str, float]] = []

    def update(self) -> dict[str, float]:
        """One step of whose turn it is."""
        at = self.iteration % (self.training.cut_updates + self.training.price_rounds)
        cutting = at < self.training.cut_updates
        if at in (0, self.training.cut_updates):
            self._hand_over()
            if cutting:
                self.cuts.begin(self.best[0])
            else:
                self.prices.begin(self.best[1])
        row = self.cuts.update() if cutting else self.prices.update()
        if cutting:
            self.best, self.best_et = (self.cuts.best, self.best[1]), self.cuts.best_et
        else:
            self.best, self.best_et = (self.best[0], self.prices.best), self.prices.best_score
        self.iteration += 1
        told = {"iteration": float(self.iteration), "train_et": row.get("train_et", row.get("train_score", np.nan))}
        if (validated := row.get("validation_et", row.get("validation_score"))) is not None:
            told["validation_et"] = validated
        self.curve.append(told)
        return told

    def _hand_over(self) -> None:
        """Let each work with the best of the other."""
        cuts, prices = self.best
        for days in (self.cuts.days, self.cuts.validation):
            days.place_with(np.array(priced_knobs(prices, every_events=1)))
        for placed in (self.prices.days, self.prices.validation):
            placed.cut_with(MeanField().knobs_of(placed.cuts, cuts))

    def save(self, path: Path) -> None:
        """A checkpoint, written atomically."""
        state = {
            "training": asdict(self.training),
            "iteration": self.iteration,
            "best_et": self.best_et,
            "best": [torch.tensor(weights) for weights in self.best],
            "curve": self.curve,
            "cuts": self.cuts.state(),
            "prices": self.prices.numbers(),
            "price_arrays": {name: torch.tensor(array) for name, array in self.prices.arrays().items()},
        }
        write_checkpoint(path, state)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of the same training; raises `InputError` for another's."""
        state = read_checkpoint(path, self.cuts.device, asdict(self.training), may_differ="rounds")
        self.iteration, self.best_et, self.curve = state["iteration"], state["best_et"], state["curve"]
        cuts, prices = (weights.cpu().numpy() for weights in state["best"])
        self.best = cuts, prices
        self._hand_over()
        self.cuts.restore(state["cuts"])
        arrays = {name: array.cpu().numpy() for name, array in state["price_arrays"].items()}
        self.prices.restore(state["prices"], arrays)

    def export(self, path: Path, command: str) -> None:
        """The best pair so far, as one policy file."""
        about = About(
            kind=JOINT,
            encoding=encoding.VERSION,
            gpus=tuple(sorted({gpu.id for gpu in self.cluster.gpus})),
            placement="learned",
            preempt=self.settings.preempt,
            drain=self.settings.drain,
            command=command,
            settings={**asdict(self.training), "n_gpus": len(self.cluster.gpus)},
            scores={"validation_et": self.best_et, "steps": float(self.iteration)},
        )
        write_policy(path, PolicyFile(about, np.concatenate(self.best)))
