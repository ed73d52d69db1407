"""Categorical EDF (S3): jobs that gain most from large slices first, onto the GPUs with the largest slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.policy.placement.deadline_fit import first_that_meets_deadline, plain_deadline_fit
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline, throughput_class
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import slice_size_level
from smartmig.types import Floats, Ints


@dataclass(frozen=True)
class CategoricalEdf(EarliestDeadlineFirst):
    """Jobs by (throughput class, deadline); GPUs by mean slice size, largest first; slices as in EDF (S3)."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, first_that_meets_deadline, slice_size_level)

    def groups(self, run_s: Floats) -> Ints:
        return throughput_class(run_s)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        largest_first = sorted(view.gpus, key=lambda gpu: (-gpu.mean_size, gpu.index))
        return plain_deadline_fit(view, job, largest_first)
