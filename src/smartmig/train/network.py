"""The torch mirrors of `policy/network.py` and `policy/prices.py`: same shapes, same numbers, with gradients."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from smartmig.policy.network import N_EMBED, N_QUERY, SHAPES
from smartmig.policy.prices import SHAPES as PRICE_SHAPES
from smartmig.types import Floats, Ints

CLOSED = -1e9
"""logit of what may not be chosen"""


class MeanFieldNet(nn.Module):
    """Rows of logits over the configurations of the row's GPU model, from features and GPU counts."""

    descriptors: Tensor
    model: Tensor
    n_compute: Tensor
    card: Tensor

    def __init__(self, descriptors: Floats, model: Ints, n_compute: Ints, card: Floats, seed: int) -> None:
        """By configuration: what it is (`encoding.describe`), its GPU model, and that model's compute slices; by model
        its row of World.card."""
        super().__init__()
        self.register_buffer("descriptors", torch.tensor(descriptors, dtype=torch.float32))
        self.register_buffer("model", torch.tensor(model))
        self.register_buffer("n_compute", torch.tensor(n_compute, dtype=torch.float32))
        self.register_buffer("card", torch.tensor(card, dtype=torch.float32))
        generator = torch.Generator().manual_seed(seed)
        self.weights = random_weights(SHAPES, generator)
        # Begin by mostly staying: a GPU that is re-cut all the time does no work.
        with torch.no_grad():
            self.weights["stay_bias"].fill_(2.0)
            self.weights["stay"].mul_(0.1)
            self.weights["key"].mul_(0.3)
            self.weights["card"].zero_()

    def forward(self, features: Tensor, gpus: Tensor, at: Tensor, row: Tensor) -> Tensor:
        """(n, F), (n, 2, C) and P pairs of decision and row -> (P, C) logits: few rows of a decision have GPUs."""
        w = self.weights
        embedding = torch.tanh(self.descriptors @ w["embed"] + w["embed_bias"])
        count, busy = gpus[:, 0].float(), gpus[:, 1].float()
        n_gpus = count.sum(dim=1, keepdim=True)
        same = (self.model[:, None] == self.model[None, :]).float()  # (C, C)
        n_alike = (count @ same).clamp(min=1.0)  # (n, C) GPUs of the configuration's model
        share = count / n_alike
        busy_share = busy / (self.n_compute * count.clamp(min=1.0))
        asked = torch.zeros(len(at), N_QUERY, device=features.device)
        for model in self.model.unique():
            mine = self.model == model
            pairs = mine[row]
            of_model = (share * mine) @ embedding
            of_busy = (busy * mine / (self.n_compute * n_alike)) @ embedding
            first = int(mine.nonzero()[0, 0])
            size = torch.full_like(n_gpus, float(self.n_compute[first]) / 7.0)
            part = (count * mine).sum(dim=1, keepdim=True) / n_gpus
            x = torch.cat([features, size, part, of_model, of_busy], dim=1)
            hidden = torch.tanh(x @ w["first"] + w["first_bias"] + self.card[model] @ w["card"])
            hidden = torch.tanh(hidden @ w["second"] + w["second_bias"])
            asked = torch.where(pairs[:, None], (hidden @ w["query"] + w["query_bias"])[at], asked)
        query = torch.tanh(
            asked
            + (embedding @ w["query_row"][:N_EMBED])[row]
            + share[at, row][:, None] * w["query_row"][N_EMBED]
            + busy_share[at, row][:, None] * w["query_row"][N_EMBED + 1]
        )
        stay = query @ w["stay"] + w["stay_bias"]
        logits: Tensor = query @ (embedding @ w["key"]).T
        return logits.scatter_add(1, row[:, None], stay[:, None]).masked_fill(same[row] == 0, CLOSED)

    def vector(self) -> Floats:
        """The weights as `policy/network.py` reads them."""
        return as_vector(self.weights)

    def load_vector(self, vector: Floats) -> None:
        from_vector(self.weights, vector)


class PriceNet(nn.Module):
    """Logarithms of the prices, from features."""

    def __init__(self, start: Floats, seed: int) -> None:
        """`start`: the weights to begin with; layers that are all 0 there get random ones, which change no price."""
        super().__init__()
        self.weights = random_weights(PRICE_SHAPES, torch.Generator().manual_seed(seed))
        first = {name: self.weights[name].detach().clone() for name in ("first", "second")}
        from_vector(self.weights, start)
        with torch.no_grad():
            for name, layer in first.items():
                if not self.weights[name].any():
                    self.weights[name].copy_(layer)
        self.weights["order"].requires_grad_(False)  # a queue keeps its order for the whole day

    def forward(self, features: Tensor) -> Tensor:
        """(n, F) -> (n, N_PRICES)"""
        w = self.weights
        hidden = torch.tanh(features @ w["first"] + w["first_bias"])
        hidden = torch.tanh(hidden @ w["second"] + w["second_bias"])
        prices: Tensor = hidden @ w["price"] + w["price_bias"]
        return prices

    def vector(self) -> Floats:
        """The weights as `policy/prices.py` reads them."""
        return as_vector(self.weights)

    def load_vector(self, vector: Floats) -> None:
        from_vector(self.weights, vector)


def random_weights(shapes: dict[str, tuple[int, ...]], generator: torch.Generator) -> nn.ParameterDict:
    weights = nn.ParameterDict()
    for name, shape in shapes.items():
        scale = 0.0 if name.endswith("bias") else 1 / math.sqrt(shape[0])
        weights[name] = nn.Parameter(torch.randn(shape, generator=generator) * scale)
    return weights


def as_vector(weights: nn.ParameterDict) -> Floats:
    parts = [weight.detach().cpu().numpy().ravel() for weight in weights.values()]
    return np.concatenate(parts).astype(np.float64)


def from_vector(weights: nn.ParameterDict, vector: Floats) -> None:
    at = 0
    with torch.no_grad():
        for weight in weights.values():
            part = vector[at : at + weight.numel()].reshape(weight.shape)
            weight.copy_(torch.tensor(part, dtype=torch.float32))
            at += weight.numel()


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
    log_p = torch.log_softmax(logits.masked_fill(closed, CLOSED), dim=1)
    entropy = -(log_p.exp() * log_p.clamp(min=-50)).sum(dim=1).mean()
    chosen = (moves[at, row].float() * log_p).sum(dim=1)
    return torch.zeros(len(features), device=logits.device).index_add(0, at, chosen), entropy
