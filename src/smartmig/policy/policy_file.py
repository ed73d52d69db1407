"""A trained policy on disk: one small file of arrays with everything needed to trust it.

`weights` is the network's vector (`network.SHAPES`, `prices.SHAPES`, `gang_network.SHAPES`) or a table (`RunTimes`);
`about` is JSON: what it is, the encoding it reads, what it was trained on, with which command. Reading refuses what
does not fit, in one sentence.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from smartmig.atomic import atomic_write
from smartmig.errors import InputError
from smartmig.policy import encoding, gang_encoding
from smartmig.policy.gang_network import n_gang_weights
from smartmig.policy.network import n_weights
from smartmig.policy.prices import n_price_weights
from smartmig.policy.run_times import N_TABLES
from smartmig.policy.view import World
from smartmig.types import Floats

MEAN_FIELD = "mean-field"
PRICES = "prices"
JOINT = "joint"
"""cuts and prices trained together: the weights of both, one after the other; serves wherever one of them is wanted"""
GANG = "gang"
"""the two agents of a whole-GPU cluster"""
RUN_TIMES = "run-times"
N_WEIGHTS = {
    MEAN_FIELD: n_weights(),
    PRICES: n_price_weights(),
    JOINT: n_weights() + n_price_weights(),
    GANG: n_gang_weights(),
    RUN_TIMES: N_TABLES * gang_encoding.N_CELLS,
}
N_INPUTS = {kind: gang_encoding.N_OUTLINE if kind == GANG else encoding.N_FEATURES for kind in N_WEIGHTS}
"""how many numbers the ranges of each kind are about"""
PART = {MEAN_FIELD: slice(0, n_weights()), PRICES: slice(n_weights(), n_weights() + n_price_weights())}
"""of a joint policy's weights"""
VERSIONS = dict.fromkeys((MEAN_FIELD, PRICES, JOINT), encoding.VERSION)
VERSIONS |= dict.fromkeys((GANG, RUN_TIMES), gang_encoding.VERSION)
"""the encoding each kind reads"""


@dataclass(frozen=True)
class About:
    """What a policy file says of itself."""

    kind: str
    """which rule runs it"""
    encoding: int
    """`encoding.VERSION` (or `gang_encoding.VERSION`) it was trained with"""
    gpus: tuple[str, ...]
    """GPU models it was trained on, by id; for whole GPUs, the nodes"""
    placement: str
    """placement rule it goes best with: that of its training, knobs possibly tuned once more for the policy"""
    preempt: bool
    drain: bool
    command: str
    """makes this file"""
    settings: dict[str, Any] = field(default_factory=dict)
    """every setting of the training run"""
    scores: dict[str, float] = field(default_factory=dict)
    """on validation days"""


@dataclass(frozen=True)
class PolicyFile:
    about: About
    weights: Floats
    ranges: Floats | None = None
    """(2, N_INPUTS) least and greatest value of every input in training, infinite where it reads none of it; None = not
    recorded"""


def write_policy(path: Path, policy: PolicyFile) -> None:
    """Atomic; the same policy gives the same bytes."""
    buffer = io.BytesIO()
    about = json.dumps(asdict(policy.about), sort_keys=True)
    arrays: dict[str, Any] = {"weights": policy.weights.astype(np.float32), "about": np.array(about)}
    if policy.ranges is not None:
        arrays["ranges"] = policy.ranges.astype(np.float32)
    np.savez_compressed(buffer, **arrays)
    with atomic_write(path, "wb") as file:
        file.write(buffer.getvalue())


def read_policy(path: Path, kind: str = MEAN_FIELD) -> PolicyFile:
    """Raises `InputError` for a file that is missing, broken, of another kind or another encoding."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            weights = np.asarray(arrays["weights"], dtype=np.float64)
            raw = json.loads(str(arrays["about"]))
            ranges = np.asarray(arrays["ranges"], dtype=np.float64) if "ranges" in arrays else None
    except FileNotFoundError:
        raise InputError(f"{path}: no such policy file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
        raise InputError(f"{path}: not a policy file, or a damaged one ({type(error).__name__})") from None
    known = {item.name for item in fields(About)}
    if not isinstance(raw, dict) or not {"kind", "encoding", "gpus"} <= set(raw) or not set(raw) <= known:
        raise InputError(f"{path}: not a policy file: its description lacks 'kind', 'encoding' or 'gpus'")
    about = About(**{**raw, "gpus": tuple(raw["gpus"])})
    if about.kind != kind and not (about.kind == JOINT and kind in PART):
        raise InputError(f"{path}: holds a '{about.kind}' policy, needed is '{kind}'")
    if about.encoding != VERSIONS[kind]:
        raise InputError(
            f"{path}: was trained with encoding {about.encoding}, this version reads encoding {VERSIONS[kind]}; "
            f"train it anew with: {about.command}"
        )
    needed = N_WEIGHTS[about.kind]
    if weights.shape != (needed,) or not np.isfinite(weights).all():
        raise InputError(f"{path}: damaged: {weights.size} weights where {needed} finite ones are needed")
    if ranges is not None and (ranges.shape != (2, N_INPUTS[about.kind]) or not (ranges[0] <= ranges[1]).all()):
        raise InputError(f"{path}: damaged: the ranges of its inputs make no sense")
    own = weights[PART[kind]] if about.kind == JOINT and kind != JOINT else weights
    return PolicyFile(about, own, ranges)


SHIPPED = Path(__file__).parent / "trained"
"""Policies that come with the package."""


def shipped_joint(world: World) -> Path:
    """The pair for a mode, or for a cluster of several GPU models."""
    if world.card.shape[0] > 1 and not world.drain:
        return SHIPPED / "joint-mixed.npz"
    return SHIPPED / ("joint-drain.npz" if world.drain else "joint-paper.npz")
