"""The mean-field network, as plain arrays: distributions in, one row of probabilities per configuration out.

Every configuration is known by its slices (`encoding.describe`), so one set of weights serves every card. A row's
logits compare what the cluster needs, asked from where the GPU is (its *query*), with what each configuration offers
(its *key*). The kernels here decide in the simulator and live; training mirrors them in torch and writes the weights.

All weights lie in one vector; `SHAPES` says in which order.
"""

from __future__ import annotations

import math

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.encoding import AT_CONFIG, N_DESCRIPTORS, N_FEATURES
from smartmig.policy.view import N_CARD, State, World
from smartmig.types import Floats

N_EMBED, N_HIDDEN, N_QUERY = 16, 64, 32
N_MODEL = 2
"""what the network knows of a GPU model: compute slices / 7, its share of the cluster's GPUs"""
N_INPUT = N_FEATURES + N_MODEL + 2 * N_EMBED
"""features, model, mean configuration of the model's GPUs, the same weighted by how busy they are"""

SHAPES: dict[str, tuple[int, ...]] = {
    "embed": (N_DESCRIPTORS, N_EMBED),
    "embed_bias": (N_EMBED,),
    "first": (N_INPUT, N_HIDDEN),
    "first_bias": (N_HIDDEN,),
    "second": (N_HIDDEN, N_HIDDEN),
    "second_bias": (N_HIDDEN,),
    "query": (N_HIDDEN, N_QUERY),
    "query_row": (N_EMBED + 2, N_QUERY),
    "query_bias": (N_QUERY,),
    "key": (N_EMBED, N_QUERY),
    "stay": (N_QUERY,),
    "stay_bias": (1,),
    "card": (N_CARD, N_HIDDEN),
}
"""In x out. A row's query also reads the row's embedding, its share of the model's GPUs, and their busy share; the
first layer the GPU model itself (`view.N_CARD`)."""


def n_weights() -> int:
    return sum(math.prod(shape) for shape in SHAPES.values())


def split(weights: Floats) -> dict[str, Floats]:
    """The weights by name; views, not copies."""
    parts: dict[str, Floats] = {}
    at = 0
    for name, shape in SHAPES.items():
        size = math.prod(shape)
        parts[name] = weights[at : at + size].reshape(shape)
        at += size
    return parts


# What `rows` reads, in one vector of numbers ("plan"): the dense layers as in SHAPES, per configuration its embedding
# and key, and room to compute in. All offsets follow from the number of configurations.
AT_FIRST = 0
AT_FIRST_BIAS = AT_FIRST + N_INPUT * N_HIDDEN
AT_SECOND = AT_FIRST_BIAS + N_HIDDEN
AT_SECOND_BIAS = AT_SECOND + N_HIDDEN * N_HIDDEN
AT_QUERY = AT_SECOND_BIAS + N_HIDDEN
AT_QUERY_ROW = AT_QUERY + N_HIDDEN * N_QUERY
AT_QUERY_BIAS = AT_QUERY_ROW + (N_EMBED + 2) * N_QUERY
AT_STAY = AT_QUERY_BIAS + N_QUERY
AT_STAY_BIAS = AT_STAY + N_QUERY
AT_CARD = AT_STAY_BIAS + 1
AT_TABLES = AT_CARD + N_CARD * N_HIDDEN

# Room to compute in, from the end of the tables on.
AT_INPUT = 0
AT_HIDDEN = AT_INPUT + N_INPUT
AT_HIDDEN_2 = AT_HIDDEN + N_HIDDEN
AT_ASKED = AT_HIDDEN_2 + N_HIDDEN
AT_ROW_QUERY = AT_ASKED + N_QUERY
AT_ROWS = AT_ROW_QUERY + N_QUERY


def plan_of(weights: Floats, descriptors: Floats, may_be_chosen: Floats) -> Floats:
    """The vector `rows` reads. `may_be_chosen` (n_configs,): 0 for cuts that stand at time 0 but are no target."""
    w = split(np.asarray(weights, dtype=np.float64))
    embedding = np.tanh(descriptors @ w["embed"] + w["embed_bias"])
    keys = embedding @ w["key"]
    n_configs = len(descriptors)
    embedded = ("embed", "embed_bias", "key")
    return np.concatenate(
        [
            *(w[name].ravel() for name in SHAPES if name not in embedded),
            embedding.ravel(),
            keys.ravel(),
            may_be_chosen,
            np.zeros(AT_ROWS + n_configs * n_configs),
        ]
    )


@kernel
def at_room(n_configs: int) -> int:
    """Where the room to compute in begins."""
    return AT_TABLES + n_configs * (N_EMBED + N_QUERY + 1)


@kernel
def at_rows(n_configs: int) -> int:
    """Where `rows` leaves the matrix."""
    return at_room(n_configs) + AT_ROWS


@kernel
def dense(plan: Floats, at_x: int, n_in: int, at_weight: int, at_bias: int, at_out: int, n_out: int) -> None:
    for out in range(n_out):
        plan[at_out + out] = plan[at_bias + out]
    for x in range(n_in):
        value = plan[at_x + x]
        if value != 0.0:
            for out in range(n_out):
                plan[at_out + out] += value * plan[at_weight + x * n_out + out]


@kernel
def squash(plan: Floats, at: int, n: int) -> None:
    for index in range(at, at + n):
        plan[index] = math.tanh(plan[index])


@kernel
def rows(world: World, state: State, plan: Floats, features: Floats, top: int) -> None:
    """Fill the plan's matrix: for every configuration some GPU has, the probabilities of its next one.

    Only the `top` likeliest entries of a row are kept. Costs the same for any number of GPUs and jobs.
    """
    n_configs = world.config.size
    room = at_room(n_configs)
    at_input, at_asked, at_query = room + AT_INPUT, room + AT_ASKED, room + AT_ROW_QUERY
    at_embed = AT_TABLES
    at_key = at_embed + n_configs * N_EMBED
    at_target = at_key + n_configs * N_QUERY
    matrix = room + AT_ROWS
    for at in range(matrix, matrix + n_configs * n_configs):
        plan[at] = 0.0
    for model in range(world.power_w.shape[0]):
        n_gpus = 0
        n_compute = 7
        for config in range(n_configs):
            if world.config[config].model == model:
                n_gpus += state.tally[AT_CONFIG + config]
                n_compute = world.config_compute[config]
        if n_gpus == 0:
            continue
        for at in range(N_FEATURES):
            plan[at_input + at] = features[at]
        plan[at_input + N_FEATURES] = n_compute / 7.0
        plan[at_input + N_FEATURES + 1] = n_gpus / world.n_gpus
        at_mean = at_input + N_FEATURES + N_MODEL
        for at in range(2 * N_EMBED):
            plan[at_mean + at] = 0.0
        for config in range(n_configs):
            count = state.tally[AT_CONFIG + config]
            if world.config[config].model == model and count > 0:
                share = count / n_gpus
                busy = state.tally[AT_CONFIG + n_configs + config] / (n_compute * n_gpus)
                for at in range(N_EMBED):
                    plan[at_mean + at] += share * plan[at_embed + config * N_EMBED + at]
                    plan[at_mean + N_EMBED + at] += busy * plan[at_embed + config * N_EMBED + at]
        dense(plan, at_input, N_INPUT, AT_FIRST, AT_FIRST_BIAS, room + AT_HIDDEN, N_HIDDEN)
        for at in range(N_CARD):
            for out in range(N_HIDDEN):
                plan[room + AT_HIDDEN + out] += world.card[model, at] * plan[AT_CARD + at * N_HIDDEN + out]
        squash(plan, room + AT_HIDDEN, N_HIDDEN)
        dense(plan, room + AT_HIDDEN, N_HIDDEN, AT_SECOND, AT_SECOND_BIAS, room + AT_HIDDEN_2, N_HIDDEN)
        squash(plan, room + AT_HIDDEN_2, N_HIDDEN)
        dense(plan, room + AT_HIDDEN_2, N_HIDDEN, AT_QUERY, AT_QUERY_BIAS, at_asked, N_QUERY)
        for config in range(n_configs):
            count = state.tally[AT_CONFIG + config]
            if world.config[config].model != model or count == 0:
                continue
            for out in range(N_QUERY):
                plan[at_query + out] = plan[at_asked + out]
            for at in range(N_EMBED + 2):
                if at < N_EMBED:
                    value = plan[at_embed + config * N_EMBED + at]
                elif at == N_EMBED:
                    value = count / n_gpus
                else:
                    value = state.tally[AT_CONFIG + n_configs + config] / (n_compute * count)
                for out in range(N_QUERY):
                    plan[at_query + out] += value * plan[AT_QUERY_ROW + at * N_QUERY + out]
            squash(plan, at_query, N_QUERY)
            row = matrix + config * n_configs
            for other in range(n_configs):
                allowed = plan[at_target + other] > 0.0 or other == config
                if world.config[other].model != model or not allowed:
                    plan[row + other] = -np.inf
                    continue
                logit = 0.0
                for out in range(N_QUERY):
                    logit += plan[at_query + out] * plan[at_key + other * N_QUERY + out]
                if other == config:
                    logit += plan[AT_STAY_BIAS]
                    for out in range(N_QUERY):
                        logit += plan[at_query + out] * plan[AT_STAY + out]
                plan[row + other] = logit
            keep_top(plan, row, n_configs, top)


@kernel
def keep_top(plan: Floats, row: int, n_configs: int, top: int) -> None:
    """Logits to probabilities, over the `top` largest (the lower index wins a tie)."""
    largest = plan[row]
    for other in range(n_configs):
        largest = max(largest, plan[row + other])
    least = np.inf  # the smallest logit kept
    above = 0  # how many are larger
    at_least = 0
    while at_least < top:
        following = -np.inf
        equal = 0
        for other in range(n_configs):
            logit = plan[row + other]
            if following < logit < least:
                following = logit
                equal = 0
            equal += logit == following
        if following == -np.inf:
            break
        least = following
        above = at_least
        at_least += equal
    total = 0.0
    ties = top - above
    for other in range(n_configs):
        logit = plan[row + other]
        plan[row + other] = 0.0
        if logit == least:
            ties -= 1
        if logit > least or (logit == least and ties >= 0):
            plan[row + other] = math.exp(logit - largest)
            total += plan[row + other]
    for other in range(n_configs):
        plan[row + other] /= total
