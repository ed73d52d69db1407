"""What our PPO trainers share: advantages from siblings, the clipped step, checkpoints.

Every training day is played several times with different draws (*siblings*). A decision's advantage is what its day
cost from there on, less what it cost the siblings from the same moment on: they saw the same arrivals, whose noise is
a hundred times what one decision changes. No critic is needed, and none can be fooled.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from smartmig.atomic import atomic_write
from smartmig.errors import InputError
from smartmig.jit import kernel
from smartmig.metrics.objective import ENERGY_WEIGHT
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


class Step(NamedTuple):
    """How far one update went."""

    kl: float
    entropy: float


def improve(
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    log_probability: Callable[[Tensor], tuple[Tensor, Tensor]],
    before: Tensor,
    gain: Tensor,
    *,
    epochs: int,
    sample_share: float,
    clip: float,
    entropy_weight: float,
    kl_limit: float,
    generator: torch.Generator,
) -> Step:
    """PPO's clipped steps; `log_probability` of the decisions with the given indices, and their mean entropy."""
    moved: list[float] = []
    undecided = 0.0
    for _ in range(epochs):
        n_sample = max(1, int(sample_share * len(before)))
        order = torch.randperm(len(before), generator=generator)[:n_sample].to(before.device)
        for batch in order.split(MINIBATCH):
            log_p, entropy = log_probability(batch)
            log_ratio = log_p - before[batch]
            ratio = log_ratio.exp()
            clipped = ratio.clamp(1 - clip, 1 + clip)
            surrogate = torch.minimum(ratio * gain[batch], clipped * gain[batch]).mean()
            undecided = float(entropy.detach())
            loss = -surrogate - entropy_weight * entropy
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimiser.step()
            moved.append(float(((ratio - 1) - log_ratio).mean().detach()))
        if moved[-1] > kl_limit:
            break
    return Step(float(np.mean(moved)), undecided)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Atomic."""
    buffer = io.BytesIO()
    torch.save(copy.deepcopy(state), buffer)
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())


def read_checkpoint(path: Path, device: str, settings: dict[str, Any], may_differ: str) -> dict[str, Any]:
    """A checkpoint of a training with the same settings, but for one; raises `InputError` for another's."""
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(path.read_bytes()), map_location=device, weights_only=True)
        theirs = {**state["training"], may_differ: settings[may_differ]}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:
        raise InputError(f"{path}: not a checkpoint of this trainer ({type(error).__name__})") from None
    for name, ours in settings.items():
        if theirs.get(name) != ours:
            raise InputError(f"{path}: was trained with {name} {theirs.get(name)}, asked is {ours}")
    return state
