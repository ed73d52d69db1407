"""A policy that places one job a step, as plain arrays: run on whole days, kept in a file. Needs no torch."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smartmig.atomic import atomic_write
from smartmig.errors import InputError
from smartmig.metrics.summary import Summary
from smartmig.policy import encoding
from smartmig.sim.mig.lanes import Lanes
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.settings import StepTraining
from smartmig.types import Floats, Ints, Jobs

Layers = tuple[tuple[Floats, Floats], ...]
"""weights (in x out) and biases, layer by layer"""


class DayPlayed(NamedTuple):
    summary: Summary
    earned: float
    """sum of the rewards the policy was trained on"""


@dataclass(frozen=True, eq=False)
class Placer:
    """Hidden layers with tanh, then one score per action."""

    layers: Layers
    settings: StepTraining
    train_s: float = 0.0
    """wall time of its training"""
    command: str = ""
    """makes it"""

    def act(self, seen: Floats, masks: Any) -> Ints:
        """The legal action with the highest score, for every row."""
        hidden = seen
        for weights, bias in self.layers[:-1]:
            hidden = np.tanh(hidden @ weights + bias)
        weights, bias = self.layers[-1]
        chosen: Ints = np.argmax(np.where(masks, hidden @ weights + bias, -np.inf), axis=1)
        return chosen

    def run(self, cluster: Cluster, days: Sequence[Jobs], mode: Settings | None = None) -> list[DayPlayed]:
        """Whole days side by side. Raises `InputError` where the policy was made for another number of slices."""
        own = self.settings
        knobs: dict[str, Any] = {"observation": own.observation, "reward": own.reward, "wait": own.wait}
        lanes = Lanes(cluster, len(days), **knobs, settings=mode, n_threads=1)
        needed = self.layers[0][0].shape[0], self.layers[-1][0].shape[1]
        if needed != (lanes.n_seen, lanes.n_actions):
            raise InputError(
                f"the policy sees {needed[0]} numbers and has {needed[1]} actions, this cluster has {lanes.n_seen} and "
                f"{lanes.n_actions}: with S1's observation a policy serves the cuts it was trained on only"
            )
        for lane, jobs in enumerate(days):
            lanes.begin(lane, lanes.prepare(jobs))
        lanes.look(range(len(days)))
        found: dict[int, DayPlayed] = {}
        earned = np.zeros(len(days))
        while len(found) < len(days):
            _, reward, done = lanes.step(self.act(lanes.seen, lanes.masks))
            earned += reward
            for lane in np.flatnonzero(done).tolist():
                if lane not in found:
                    found[lane] = DayPlayed(lanes.summary(lane), float(earned[lane]))
        return [found[lane] for lane in range(len(days))]


def write_placer(path: Path, placer: Placer) -> None:
    """Atomic."""
    about = {"encoding": encoding.VERSION, "settings": asdict(placer.settings), "train_s": placer.train_s}
    arrays: dict[str, Any] = {"about": np.array(json.dumps({**about, "command": placer.command}, sort_keys=True))}
    for at, (weights, bias) in enumerate(placer.layers):
        # Half precision: choosing between slices needs no more, and the file is half as large.
        arrays |= {f"weights_{at}": weights.astype(np.float16), f"bias_{at}": bias.astype(np.float16)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())


def read_placer(path: Path) -> Placer:
    """Raises `InputError` for a file that is missing, broken or of another encoding."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            n_layers = sum(name.startswith("weights_") for name in arrays)
            layers = tuple(
                (arrays[f"weights_{at}"].astype(np.float32), arrays[f"bias_{at}"].astype(np.float32))
                for at in range(n_layers)
            )
        placer = Placer(layers, StepTraining(**about["settings"]), about["train_s"], about["command"])
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a placer's file, or a damaged one ({type(error).__name__})") from None
    if about["encoding"] != encoding.VERSION:
        raise InputError(f"{path}: was trained with encoding {about['encoding']}; train it anew: {placer.command}")
    return placer
