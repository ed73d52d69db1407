"""The placing network, as plain arrays: distributions in, prices out.

Prices are positive: the network speaks of their logarithms. With all weights but the last biases at 0 the prices are
constant, and the rule is a hand-made one; `hand_made` gives the weights that place as `shortest-work` does.

All weights lie in one vector; `SHAPES` says in which order.
"""

from __future__ import annotations

import math

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.encoding import N_FEATURES, N_SCALINGS
from smartmig.policy.view import N_CARD
from smartmig.types import SLICE_SIZES, Floats

N_SIZES = len(SLICE_SIZES)
LONG_FROM_S = 1200.0
"""A job with this much work left, in seconds on a 1g slice, is long."""

# The prices, by place: of a second on a slice, by size, for short jobs and for long ones; factors on these by how the
# job scales; of a joule; of a second late; of being late at all; the wait for a slice that is taken, by size (s); what
# a second on a card costs more for each e-fold of its speed, idle and full power (1: nothing).
AT_SIZE = 0
AT_SCALING = AT_SIZE + 2 * N_SIZES
AT_ENERGY = AT_SCALING + N_SCALINGS
AT_LATE = AT_ENERGY + 1
AT_LATE_ONCE = AT_LATE + 1
AT_DELAY = AT_LATE_ONCE + 1
AT_CARD = AT_DELAY + N_SIZES
N_PRICES = AT_CARD + N_CARD

N_HIDDEN = 32
N_ORDER = N_SCALINGS + 1
"""weights of the queue's order: of work by how the job scales, and of the deadline"""

SHAPES: dict[str, tuple[int, ...]] = {
    "order": (N_ORDER,),
    "first": (N_FEATURES, N_HIDDEN),
    "first_bias": (N_HIDDEN,),
    "second": (N_HIDDEN, N_HIDDEN),
    "second_bias": (N_HIDDEN,),
    "price": (N_HIDDEN, N_PRICES),
    "price_bias": (N_PRICES,),
}
"""In x out. Order and prices as logarithms."""

MOST = 12.0
"""Logarithms beyond this say no more than "never"; keeps every price finite."""

AT_FIRST = N_ORDER
AT_FIRST_BIAS = AT_FIRST + N_FEATURES * N_HIDDEN
AT_SECOND = AT_FIRST_BIAS + N_HIDDEN
AT_SECOND_BIAS = AT_SECOND + N_HIDDEN * N_HIDDEN
AT_PRICE = AT_SECOND_BIAS + N_HIDDEN
AT_PRICE_BIAS = AT_PRICE + N_HIDDEN * N_PRICES
AT_ROOM = AT_PRICE_BIAS + N_PRICES
ROOM = 2 * N_HIDDEN
"""numbers behind the weights that `log_prices` computes in"""


def n_price_weights() -> int:
    return sum(math.prod(shape) for shape in SHAPES.values())


def hand_made(
    size_price: float = 0.1, energy_weight: float = 8.3e-4, poor_scaling: float = 1.0, delay_s: float = 1e5
) -> Floats:
    """Weights that place nearly as `shortest-work` does: linear jobs first, then by work; nobody waits."""
    never = math.exp(-MOST)
    by_size = [size_price * size for size in SLICE_SIZES]
    prices = [*by_size, *by_size, 1.0, *([poor_scaling] * (N_SCALINGS - 1)), energy_weight, 1.0, never]
    prices += [delay_s] * N_SIZES + [1.0] * N_CARD
    order = [1.0, *([1e3] * (N_SCALINGS - 1)), never]
    dense = np.zeros(n_price_weights() - N_ORDER - N_PRICES)
    return np.concatenate([np.log(order), dense, np.log(prices)])


@kernel
def log_prices(network: Floats, features: Floats, out: Floats) -> None:
    """Fill `out` (N_PRICES,); `network` is the weights and ROOM numbers to compute in."""
    for unit in range(N_HIDDEN):
        network[AT_ROOM + unit] = network[AT_FIRST_BIAS + unit]
    for at in range(N_FEATURES):
        value = features[at]
        if value != 0.0:
            for unit in range(N_HIDDEN):
                network[AT_ROOM + unit] += value * network[AT_FIRST + at * N_HIDDEN + unit]
    for unit in range(N_HIDDEN):
        network[AT_ROOM + unit] = math.tanh(network[AT_ROOM + unit])
        network[AT_ROOM + N_HIDDEN + unit] = network[AT_SECOND_BIAS + unit]
    for at in range(N_HIDDEN):
        value = network[AT_ROOM + at]
        for unit in range(N_HIDDEN):
            network[AT_ROOM + N_HIDDEN + unit] += value * network[AT_SECOND + at * N_HIDDEN + unit]
    for price in range(N_PRICES):
        out[price] = network[AT_PRICE_BIAS + price]
    for at in range(N_HIDDEN):
        value = math.tanh(network[AT_ROOM + N_HIDDEN + at])
        for price in range(N_PRICES):
            out[price] += value * network[AT_PRICE + at * N_PRICES + price]


@kernel
def set_prices(network: Floats, features: Floats, prices: Floats) -> None:
    """Fill `prices` (N_PRICES,)."""
    log_prices(network, features, prices)
    for at in range(N_PRICES):
        prices[at] = math.exp(max(-MOST, min(MOST, prices[at])))
