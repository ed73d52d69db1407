"""Training a placing policy: prices found by cross-entropy search on whole days.

A day is a few milliseconds, so thousands of price lists can be tried on real days. Every round draws candidates around
the present prices, runs all of them on the same days, and moves to the mean of the best. Draws and days follow from the
seed and the round, so a run that was stopped goes on exactly as if it had not been.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from smartmig.atomic import atomic_write
from smartmig.errors import InputError
from smartmig.policy import encoding
from smartmig.policy.policy_file import PRICES, About, PolicyFile, write_policy
from smartmig.policy.prices import AT_DELAY, AT_LATE_ONCE, MOST, N_ORDER, N_PRICES, hand_made
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.outcomes import Outcomes, PlacedDays
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.settings import PlacementTraining
from smartmig.types import Floats, Jobs
from smartmig.workload.seeds import TRAINING_FIRST, VALIDATION_FIRST

KEEP = 0.3
"""of the last round's mean and spread"""
LEAST_SPREAD = 0.01
START_DELAY_S = 300.0
START_LATE_ONCE_S = 3.0
START_OTHERS_FIRST = 3.0
"""jobs that do not scale linearly count as this much longer in the queue's order"""
WIDER = 3.0
NEVER = 1 << 30
"""events; constant prices are set once"""


class PriceSearch:
    """A search that can be stopped after any round."""

    def __init__(
        self,
        cluster: Cluster,
        repartition: RepartitionRule,
        settings: Settings,
        jobs: Callable[[int], Jobs],
        training: PlacementTraining,
        n_threads: int | None = None,
    ) -> None:
        """`jobs`: the job set of a seed."""
        self.training, self.settings, self.cluster = training, settings, cluster
        sets = [[jobs(TRAINING_FIRST + at) for at in range(training.pool)]]
        sets += [[jobs(VALIDATION_FIRST + at) for at in range(training.validation_days)]]
        self.days, self.validation = (PlacedDays(cluster, repartition, settings, part, n_threads) for part in sets)
        self.base = hand_made()
        self.searched = np.r_[0:N_ORDER, self.base.size - N_PRICES : self.base.size]
        self.mean, self.spread = self._start()
        self.iteration = 0
        self.best_score = np.inf
        self.best = self.base
        self.curve: list[dict[str, float]] = []

    def begin(self, weights: Floats) -> None:
        """Start from a policy that is there already, its network as it is."""
        self.base = self.best = weights
        self.mean = weights[self.searched].copy()
        self.spread = np.full(self.mean.size, self.training.spread)
        self.best_score = np.inf
        self._validate()

    def _start(self) -> tuple[Floats, Floats]:
        mean = self.base[self.searched].copy()
        spread = np.full(mean.size, self.training.spread)
        if self.settings.preempt:
            return mean, spread  # who can be moved at any time has no reason to wait: begin as `shortest-work`
        prices = mean[N_ORDER:]
        mean[1 : N_ORDER - 1] = np.log(START_OTHERS_FIRST)
        prices[AT_DELAY:] = np.log(START_DELAY_S)
        prices[AT_LATE_ONCE] = np.log(START_LATE_ONCE_S)
        for part in (spread[:N_ORDER], spread[N_ORDER + AT_DELAY :], spread[N_ORDER + AT_LATE_ONCE :][:1]):
            part *= WIDER
        return mean, spread

    def weights(self, searched: Floats) -> Floats:
        """A whole network whose prices do not depend on anything."""
        whole = self.base.copy()
        whole[self.searched] = np.clip(searched, -MOST, MOST)
        return whole

    def score(self, found: Outcomes) -> float:
        return float((found.et + self.training.late_weight * found.late_frac).mean())

    def update(self) -> dict[str, float]:
        """One round."""
        training = self.training
        rng = np.random.default_rng((training.seed, self.iteration))
        which = [int(at) for at in rng.choice(training.pool, training.days, replace=False)]
        drawn = self.mean + self.spread * rng.standard_normal((training.candidates, self.mean.size))
        drawn[0] = self.mean
        scores = np.array([self.score(self.days.run(which, self.weights(one), NEVER)) for one in drawn])
        elite = drawn[np.argsort(scores, kind="stable")[: training.elite]]
        self.mean = KEEP * self.mean + (1 - KEEP) * elite.mean(axis=0)
        self.spread = KEEP * self.spread + (1 - KEEP) * elite.std(axis=0) + LEAST_SPREAD
        self.iteration += 1
        row = {
            "iteration": float(self.iteration),
            "train_score": float(scores.min()),
            "spread": float(self.spread.mean()),
        }
        if self.iteration % training.validate_every == 0 or self.iteration == training.generations:
            row["validation_score"] = self._validate()
        self.curve.append(row)
        return row

    def _validate(self) -> float:
        if not self.training.validation_days:
            self.best = self.weights(self.mean)
            return np.nan
        weights = self.weights(self.mean)
        found = self.score(self.validation.run(range(self.training.validation_days), weights, NEVER))
        if found < self.best_score:
            self.best_score, self.best = found, weights
        return found

    def save(self, path: Path) -> None:
        """A checkpoint, written atomically."""
        buffer = io.BytesIO()
        numbers = {"training": asdict(self.training), **self.numbers()}
        arrays: dict[str, Any] = {"state": np.array(json.dumps(numbers)), **self.arrays()}
        np.savez(buffer, **arrays)
        with atomic_write(path, "wb") as file:
            file.write(buffer.getvalue())

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of the same search; raises `InputError` for another's."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
                state: dict[str, Any] = json.loads(str(arrays["state"]))
                found = {name: arrays[name] for name in self.arrays()}
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
        except Exception as error:
            raise InputError(f"{path}: not a checkpoint of this trainer ({type(error).__name__})") from None
        theirs = {**state["training"], "generations": self.training.generations}
        for name, ours in asdict(self.training).items():
            if theirs.get(name) != ours:
                raise InputError(f"{path}: was trained with {name} {theirs.get(name)}, asked is {ours}")
        self.restore(state, found)

    def numbers(self) -> dict[str, Any]:
        """With `arrays`, all that `restore` needs to go on as if nothing had happened."""
        return {"iteration": self.iteration, "best_score": self.best_score, "curve": self.curve}

    def arrays(self) -> dict[str, Floats]:
        return {"mean": self.mean, "spread": self.spread, "base": self.base, "best": self.best}

    def restore(self, numbers: dict[str, Any], arrays: dict[str, Floats]) -> None:
        self.mean, self.spread, self.base, self.best = (arrays[name] for name in ("mean", "spread", "base", "best"))
        self.iteration, self.best_score, self.curve = (numbers[name] for name in ("iteration", "best_score", "curve"))

    def export(self, path: Path, command: str, repartition: str) -> None:
        """The best policy so far, as a policy file."""
        scores = {"validation_score": self.best_score, "rounds": float(self.iteration)}
        write_prices(path, self.best, self.cluster, self.settings, repartition, command, asdict(self.training), scores)


def write_prices(
    path: Path,
    weights: Floats,
    cluster: Cluster,
    settings: Settings,
    repartition: str,
    command: str,
    training: dict[str, Any],
    scores: dict[str, float],
) -> None:
    """A placing policy, as a policy file."""
    about = About(
        kind=PRICES,
        encoding=encoding.VERSION,
        gpus=tuple(sorted({gpu.id for gpu in cluster.gpus})),
        placement=f"with {repartition}",
        preempt=settings.preempt,
        drain=settings.drain,
        command=command,
        settings={**training, "n_gpus": len(cluster.gpus)},
        scores=scores,
    )
    write_policy(path, PolicyFile(about, weights))
