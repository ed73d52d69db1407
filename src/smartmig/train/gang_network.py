"""The torch mirror of `policy/gang_network.py`: same shapes, same numbers, with gradients."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from smartmig.policy.gang_encoding import N_CLUSTER
from smartmig.policy.gang_network import SHAPES
from smartmig.sim.gang.explore import KIND_WIDTH, MAX_KINDS, MAX_SLOTS, RECORD_HEAD, SLOT_WIDTH
from smartmig.types import Floats

FIXED = ("rule", "fit")
"""numbers of the hand-made rules: found by search, not by gradients"""
OUT = ("slot_out", "wait_out", "kind_out")
"""last layers: 0 at the beginning, so that training starts from the rules"""


class GangNet(nn.Module):
    """Scores of the options on a tape, for both agents."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterDict()
        for name, shape in SHAPES.items():
            scale = 0.0 if name.endswith("bias") or name in (*OUT, *FIXED) else 1 / math.sqrt(shape[0])
            first = torch.randn(shape, generator=generator) * scale
            self.weights[name] = nn.Parameter(first, requires_grad=name not in FIXED)

    def slots(self, records: Tensor) -> Tensor:
        """(n, SLOT_RECORD) -> (n, MAX_SLOTS) scores; the last option of a record is to wait."""
        w = self.weights
        cluster = records[:, RECORD_HEAD : RECORD_HEAD + N_CLUSTER]
        options = records[:, RECORD_HEAD + N_CLUSTER :].reshape(-1, MAX_SLOTS, SLOT_WIDTH)
        heard = torch.tanh(cluster @ w["cluster"] + w["cluster_bias"])
        hidden = options[..., 1:] @ w["slot"] + (heard @ w["slot_cluster"] + w["slot_bias"])[:, None]
        scores = options[..., 0] + torch.tanh(hidden) @ w["slot_out"]
        waits = heard @ w["wait_out"] + w["wait_bias"]
        with_wait: Tensor = scores.scatter(1, (records[:, 2].long() - 1)[:, None], waits[:, None])
        return with_wait

    def kinds(self, records: Tensor) -> Tensor:
        """(n, KIND_RECORD) -> (n, MAX_KINDS) scores."""
        w = self.weights
        cluster = records[:, RECORD_HEAD : RECORD_HEAD + N_CLUSTER]
        options = records[:, RECORD_HEAD + N_CLUSTER :].reshape(-1, MAX_KINDS, KIND_WIDTH)
        hidden = options[..., 1:] @ w["kind"] + (cluster @ w["kind_cluster"] + w["kind_bias"])[:, None]
        scores: Tensor = options[..., 0] + torch.tanh(hidden) @ w["kind_out"]
        return scores

    def vector(self) -> Floats:
        """The weights as `policy/gang_network.py` reads them."""
        parts = [self.weights[name].detach().numpy().ravel() for name in SHAPES]
        return np.concatenate(parts).astype(np.float64)

    def start_from(self, vector: Floats) -> None:
        """Take over the numbers of the hand-made rules; the networks stay as they are."""
        own = {name: self.weights[name].detach().clone() for name in SHAPES if name not in FIXED}
        self.load_vector(vector)
        with torch.no_grad():
            for name, values in own.items():
                self.weights[name].copy_(values)

    def load_vector(self, vector: Floats) -> None:
        at = 0
        with torch.no_grad():
            for name, shape in SHAPES.items():
                size = math.prod(shape)
                self.weights[name].copy_(torch.tensor(vector[at : at + size].reshape(shape), dtype=torch.float32))
                at += size


def choice_log_probability(scores: Tensor, records: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Of the option that was drawn, and the mean entropy of the choices."""
    n_options = records[:, 2].long()
    closed = torch.arange(scores.shape[1])[None] >= n_options[:, None]
    log_p = torch.log_softmax((scores / temperature).masked_fill(closed, -1e9), dim=1)
    entropy = -(log_p.exp() * log_p.clamp(min=-50)).sum(dim=1).mean()
    return log_p.gather(1, records[:, 1].long()[:, None])[:, 0], entropy
