"""What the arriving jobs are: their run times, kinds and deadlines. The generators add when they arrive.

The defaults are those of arXiv 2606.29775 (80 % inference, 20 % training, tight deadlines).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smartmig.errors import InputError
from smartmig.types import SLICE_SIZES, Floats, Jobs
from smartmig.workload.curves import CAPPED, LINEAR, Curve, published_curves, run_times

MINUTE_S = 60.0
"""The papers count in minutes; this is where they become seconds."""

_CENTRAL_90_WIDTH = 3.29
"""Standard deviations between the 5th and the 95th percentile of a normal law, as rounded in the papers."""

_MOST_JOBS = 1e8

_SHORTEST_RUN_S = 1e-9
"""An exponential draw may be exactly 0, which is no job."""


@dataclass(frozen=True, kw_only=True)
class JobMix:
    """The knobs of a job's body."""

    deadline: tuple[float, float] = (1.0, 1.5)
    """deadline = arrival + U(low, high) * run time on `deadline_size`; (2, 4) are the relaxed deadlines"""
    deadline_size: int = 7
    """the slice size whose run time the deadline is counted in"""
    inference_frac: float = 0.8
    """share of inference jobs; the rest trains"""
    inference_mean_s: float = 3 * MINUTE_S
    """mean of the exponential run time of inference on 1g"""
    train_p05_s: float = 40 * MINUTE_S
    """5th percentile of the lognormal run time of training on 1g"""
    train_p95_s: float = 60 * MINUTE_S
    """95th percentile of the same"""
    bert_frac: float = 2 / 3
    """share of jobs with the BERT curve of their kind; the rest has ResNet-50's. Not used when `curves` are given"""
    linear_frac: float = 0.0
    """share of jobs whose curve is replaced by the linear one"""
    capped_frac: float = 0.0
    """share of jobs whose curve is replaced by the one that stops gaining at 3g"""
    curves: tuple[Curve, ...] = ()
    """draw each job's curve evenly from these instead of the published four: inference from those with `infer` in the
    name, training from those with `train`, or from all when no name says so"""

    def __post_init__(self) -> None:
        check_deadline(self.deadline, self.deadline_size)
        for name in ("inference_frac", "bert_frac", "linear_frac", "capped_frac"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}: got {getattr(self, name)}, allowed is a share from 0 to 1")
        if self.linear_frac + self.capped_frac > 1:
            raise InputError(
                f"linear_frac + capped_frac: got {self.linear_frac} + {self.capped_frac}, allowed is up to 1"
            )
        for name in ("inference_mean_s", "train_p05_s", "train_p95_s"):
            require_positive(name, getattr(self, name))
        if self.train_p05_s > self.train_p95_s:
            raise InputError(f"train_p05_s: got {self.train_p05_s}, above train_p95_s = {self.train_p95_s}")

    def bodies(self, rng: np.random.Generator, arrive_s: Floats) -> Jobs:
        """One job per arrival (sorted), named "0", "1", ...

        Draws, each for all jobs and whatever the knobs, so that changing one knob leaves the other draws alone:
        kind, inference run time, training run time, curve, replaced curve, deadline.
        """
        n = arrive_s.size
        infers = rng.random(n) < self.inference_frac
        inference_s = rng.standard_exponential(n) * self.inference_mean_s
        mu = (math.log(self.train_p05_s) + math.log(self.train_p95_s)) / 2
        sigma = (math.log(self.train_p95_s) - math.log(self.train_p05_s)) / _CENTRAL_90_WIDTH
        train_s = np.exp(mu + sigma * rng.standard_normal(n))
        curves, curve = self._curve_of(infers, rng.random(n))
        replaced = rng.random(n)
        curve[replaced < self.linear_frac] = len(curves)
        curve[replaced >= 1 - self.capped_frac] = len(curves) + 1
        low, high = self.deadline
        slack = low + (high - low) * rng.random(n)

        curves = (*curves, LINEAR, CAPPED)
        run_1g_s = np.maximum(np.where(infers, inference_s, train_s), _SHORTEST_RUN_S)
        run_s = run_times(run_1g_s, np.array([c.speedup for c in curves])[curve])
        return Jobs(
            job_id=np.arange(n).astype(np.str_),
            arrive_s=arrive_s,
            deadline_s=arrive_s + slack * size_run(run_s, self.deadline_size),
            run_s=run_s,
            kind=np.array([c.name for c in curves], dtype=np.str_)[curve],
            memory_gb=np.zeros(n),
        )

    def _curve_of(self, infers: np.ndarray, u: Floats) -> tuple[tuple[Curve, ...], np.ndarray]:
        """The curves to choose from, and which of them each job has, from one uniform number a job."""
        if not self.curves:
            published = {c.name: i for i, c in enumerate(published_curves())}
            bert = u < self.bert_frac
            infer = np.where(bert, published["bert-infer"], published["resnet50-infer"])
            train = np.where(bert, published["bert-train"], published["resnet50-train"])
            return published_curves(), np.where(infers, infer, train)
        infer_set = _tagged(self.curves, "infer")
        train_set = _tagged(self.curves, "train")
        infer = infer_set[(u * len(infer_set)).astype(np.int64)]
        train = train_set[(u * len(train_set)).astype(np.int64)]
        return self.curves, np.where(infers, infer, train)


def _tagged(curves: tuple[Curve, ...], tag: str) -> np.ndarray:
    """Indices of the curves with `tag` in their name; of all curves when there is none."""
    found = [i for i, curve in enumerate(curves) if tag in curve.name]
    return np.array(found or range(len(curves)), dtype=np.int64)


def size_run(run_s: Floats, size: int) -> Floats:
    """(n,) run time on `size`; where it does not fit, on the next larger size that does, else on the largest."""
    column = SLICE_SIZES.index(size)
    chosen = run_s[:, column].copy()
    for other in (*range(column + 1, len(SLICE_SIZES)), *range(column - 1, -1, -1)):
        open_mask = np.isinf(chosen)
        if not open_mask.any():
            break
        chosen[open_mask] = run_s[open_mask, other]
    return chosen


def require_positive(name: str, value: float) -> None:
    """Refuse a knob that is not a finite number above 0."""
    if not 0 < value < math.inf:
        raise InputError(f"{name}: got {value}, allowed is a number above 0")


def check_deadline(deadline: tuple[float, float], size: int) -> None:
    """Refuse deadline knobs that make no sense."""
    low, high = deadline
    if not 0 <= low <= high < math.inf:
        raise InputError(f"deadline: got {low}:{high}, allowed are 0 <= low <= high")
    if size not in SLICE_SIZES:
        raise InputError(f"deadline_size: got {size}, allowed are {', '.join(map(str, SLICE_SIZES))}")


def check_window(start_s: float, length_s: float) -> None:
    """Refuse a time window that makes no sense; its length may be inf."""
    if not math.isfinite(start_s):
        raise InputError(f"start_s: got {start_s}, allowed is a finite number")
    if not length_s > 0:
        raise InputError(f"length_s: got {length_s}, allowed is a number above 0")


def check_job_count(name: str, n_jobs: float) -> None:
    """Refuse a knob that asks for more jobs than memory holds, before the arrays are made."""
    if n_jobs > _MOST_JOBS:
        raise InputError(f"{name}: this makes about {n_jobs:.2g} jobs, at most {_MOST_JOBS:.0e} are allowed")


def parse_deadline(text: str, where: str = "deadline") -> tuple[float, float]:
    """`"1:1.5"` -> (1.0, 1.5), one number -> both ends. Raises `InputError` that names `where`."""
    low, colon, high = text.partition(":")
    try:
        ends = float(low), float(high if colon else low)
    except ValueError:
        raise InputError(f"{where}: got '{text}', allowed is LOW:HIGH, e.g. 1:1.5") from None
    if not 0 <= ends[0] <= ends[1] < math.inf:
        raise InputError(f"{where}: got '{text}', allowed are 0 <= LOW <= HIGH")
    return ends
