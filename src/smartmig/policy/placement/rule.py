"""What a placement rule is made of.

At every decision the engine takes the waiting jobs (with preemption: the running ones too) in the order
(group, key, deadline, index), asks the rule for a free slice for each, and stops when no slice is free.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import JobArrays, Kernel, State, World, no_preparation, single_level
from smartmig.types import SLICE_SIZES, Floats, Ints


class Kernels(NamedTuple):
    """A rule's compiled half."""

    key: Kernel
    """(world, jobs, state, job) -> float: rank within the group; may depend on the job and what is left of it"""
    choose: Kernel
    """(world, jobs, state, job) -> slot that is free and fits, or -1 to leave the job waiting"""
    level: Kernel = single_level
    """(world, state, gpu) -> where the rule ranks a GPU now"""
    prepare: Kernel = no_preparation
    """(world, jobs, state): called once before every decision pass"""


class PlacementRule(Protocol):
    """A rule's knobs, its compiled half and its plain twin."""

    kernels: ClassVar[Kernels]

    counted: ClassVar[bool]
    """whether the rule reads the running counts of `policy/encoding.py`"""

    def knobs(self, world: World) -> tuple[float, ...]:
        """Numbers the kernels read from `World.knobs`; the world given has none yet."""
        ...

    def groups(self, run_s: Floats) -> Ints:
        """Group of every job, from its (n, 5) run times."""
        ...

    def plain_key(self, view: PlainView, job: int) -> float: ...

    def plain_prepare(self, view: PlainView) -> None: ...

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None: ...


class EarliestDeadlineFirst:
    """The parts most rules share: jobs by deadline, one group, no knobs."""

    counted: ClassVar[bool] = False

    def knobs(self, world: World) -> tuple[float, ...]:  # noqa: ARG002
        return ()

    def groups(self, run_s: Floats) -> Ints:
        return np.zeros(len(run_s), dtype=np.int64)

    def plain_key(self, view: PlainView, job: int) -> float:
        return float(view.deadline_s[job])

    def plain_prepare(self, view: PlainView) -> None:  # noqa: ARG002
        return


@kernel
def by_deadline(world: World, jobs: JobArrays, state: State, job: int) -> float:  # noqa: ARG001
    return jobs.spec[job].deadline_s


def throughput_class(run_s: Floats) -> Ints:
    """S3's job classes 1..4: the smallest slice that still gives 80 % of the whole GPU's throughput.

    1: not even 4g does; 2: 4g does, 2g does not; 3: 2g does, 1g does not; 4: 1g does.
    """
    speed = 1.0 / run_s
    largest = len(SLICE_SIZES) - 1 - np.argmax(np.isfinite(run_s[:, ::-1]), axis=1)
    enough = 0.8 * speed[np.arange(len(run_s)), largest]
    too_slow = [speed[:, SLICE_SIZES.index(size)] < enough for size in (4, 2, 1)]
    return np.select(too_slow, [1, 2, 3], default=4).astype(np.int64)
