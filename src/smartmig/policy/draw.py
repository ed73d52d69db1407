"""Random numbers without a generator's state: the nth draw of a seed, alike in kernels and their plain twins."""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel

# splitmix64 (Steele, Lea, Flood 2014).
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK = 0xFFFFFFFFFFFFFFFF


@kernel
def draw_below(seed: int, nth: int, n: int) -> int:
    """The nth draw of the seed, an integer in 0..n-1 (n below 2^31)."""
    x = np.uint64(seed) * np.uint64(MIX_2) + np.uint64(nth + 1) * np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2)
    x = x ^ (x >> np.uint64(31))
    return int(((x >> np.uint64(33)) * np.uint64(n)) >> np.uint64(31))


@kernel
def draw_share(seed: int, nth: int) -> float:
    """The nth draw of the seed, evenly from [0, 1)."""
    return draw_below(seed, nth, 1 << 30) / (1 << 30)


def plain_draw_below(seed: int, nth: int, n: int) -> int:
    x = (seed * MIX_2 + (nth + 1) * GOLDEN) & MASK
    x = (x ^ (x >> 30)) * MIX_1 & MASK
    x = (x ^ (x >> 27)) * MIX_2 & MASK
    x ^= x >> 31
    return (x >> 33) * n >> 31
