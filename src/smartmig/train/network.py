"""The torch mirror of `policy/network.py`: same shapes, same numbers, with gradients."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from smartmig.policy.network import N_EMBED, SHAPES
from smartmig.types import Floats


class MeanFieldNet(nn.Module):
    """Rows of logits for GPUs of one model, from features and GPU counts."""

    def __init__(self, descriptors: Floats, n_compute: int, seed: int) -> None:
        super().__init__()
        self.n_compute = n_compute
        self.register_buffer("descriptors", torch.tensor(descriptors, dtype=torch.float32))
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterDict()
        for name, shape in SHAPES.items():
            scale = 0.0 if name.endswith("bias") else 1 / math.sqrt(shape[0])
            self.weights[name] = nn.Parameter(torch.randn(shape, generator=generator) * scale)
        # Begin by mostly staying: a GPU that is re-cut all the time does no work.
        with torch.no_grad():
            self.weights["stay_bias"].fill_(2.0)
            self.weights["stay"].mul_(0.1)
            self.weights["key"].mul_(0.3)

    def forward(self, features: Tensor, gpus: Tensor, at: Tensor, row: Tensor) -> Tensor:
        """(n, F), (n, 2, C) and P pairs of decision and row -> (P, C) logits: few rows of a decision have GPUs."""
        w = self.weights
        embedding = torch.tanh(self.descriptors @ w["embed"] + w["embed_bias"])
        count, busy = gpus[:, 0].float(), gpus[:, 1].float()
        n_gpus = count.sum(dim=1, keepdim=True)
        share = count / n_gpus
        model = torch.cat([torch.full_like(n_gpus, self.n_compute / 7.0), torch.ones_like(n_gpus)], dim=1)
        mean = share @ embedding
        mean_busy = (busy / (self.n_compute * n_gpus)) @ embedding
        x = torch.cat([features, model, mean, mean_busy], dim=1)
        hidden = torch.tanh(x @ w["first"] + w["first_bias"])
        hidden = torch.tanh(hidden @ w["second"] + w["second_bias"])
        asked = hidden @ w["query"] + w["query_bias"]
        busy_share = busy / (self.n_compute * count.clamp(min=1.0))
        query = torch.tanh(
            asked[at]
            + (embedding @ w["query_row"][:N_EMBED])[row]
            + share[at, row][:, None] * w["query_row"][N_EMBED]
            + busy_share[at, row][:, None] * w["query_row"][N_EMBED + 1]
        )
        stay = query @ w["stay"] + w["stay_bias"]
        logits: Tensor = query @ (embedding @ w["key"]).T
        return logits.scatter_add(1, row[:, None], stay[:, None])

    def vector(self) -> Floats:
        """The weights as `policy/network.py` reads them."""
        parts = [self.weights[name].detach().cpu().numpy().ravel() for name in SHAPES]
        return np.concatenate(parts).astype(np.float64)

    def load_vector(self, vector: Floats) -> None:
        at = 0
        with torch.no_grad():
            for name, shape in SHAPES.items():
                size = math.prod(shape)
                self.weights[name].copy_(torch.tensor(vector[at : at + size].reshape(shape), dtype=torch.float32))
                at += size


def move_log_probability(
    net: MeanFieldNet, features: Tensor, gpus: Tensor, moves: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Of each decision's joint move: the sum of its rows' log-probabilities; and the mean entropy of the rows.

    `kept` (n, C): bits of the columns each row could choose from when the move was drawn.
    """
    at, row = moves.sum(dim=2).nonzero(as_tuple=True)
    logits = net(features, gpus, at, row)
    bits = 1 << torch.arange(logits.shape[1], device=logits.device)
    closed = (kept[at, row][:, None] & bits) == 0
    log_p = torch.log_softmax(logits.masked_fill(closed, -1e9), dim=1)
    entropy = -(log_p.exp() * log_p.clamp(min=-50)).sum(dim=1).mean()
    chosen = (moves[at, row].float() * log_p).sum(dim=1)
    return torch.zeros(len(features), device=logits.device).index_add(0, at, chosen), entropy
