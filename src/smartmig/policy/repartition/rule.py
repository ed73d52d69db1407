"""What a repartition rule is made of.

The engine asks the rule at fixed times or every so many events which configuration each GPU should have; how the GPU
gets there (down for a while, or drained instance by instance) is the engine's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from smartmig.hardware.cluster import parse_layout
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import GpuModel
from smartmig.policy.plain import PlainView
from smartmig.policy.view import Kernel, World
from smartmig.types import Floats, Layout


class RepartitionRule(Protocol):
    """A rule's knobs, its compiled half and its plain twin."""

    control: ClassVar[Kernel | None]
    """(world, jobs, state, knobs) -> None; writes the wanted configuration of each GPU into `state.target`
    (-1 = keep); None for a rule that never re-cuts"""

    counted: ClassVar[bool]
    """whether `control` reads the running counts (`policy/encoding.py`)"""

    def period_s(self) -> float:
        """Ask at multiples of this; inf = never by time."""
        ...

    def every_events(self, n_gpus: int) -> int:
        """Ask at every so many-th event on a cluster of this size; 0 = never by events."""
        ...

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        """How the GPUs are cut at time 0 unless the user says so."""
        ...

    def knobs(self, cuts: CutTable, world: World) -> Floats:
        """What `control` reads."""
        ...

    def reachable(self, cuts: CutTable) -> tuple[int, ...]:
        """Configurations the rule may ask for, besides those at time 0."""
        ...

    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:
        """Wanted configuration of each GPU (-1 = keep), given the present ones."""
        ...


class Fixed:
    """The parts of rules that never re-cut."""

    control: ClassVar[Kernel | None] = None
    counted: ClassVar[bool] = False

    def period_s(self) -> float:
        return math.inf

    def every_events(self, n_gpus: int) -> int:  # noqa: ARG002
        return 0

    def knobs(self, cuts: CutTable, world: World) -> Floats:  # noqa: ARG002
        return np.zeros(1)

    def reachable(self, cuts: CutTable) -> tuple[int, ...]:  # noqa: ARG002
        return ()

    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:  # noqa: ARG002
        return [-1] * len(config)


def cut_for(gpu: GpuModel, cut: str, where: str) -> Layout:
    """A cut by configuration number or profile names; a number past the card's last configuration means the last, so
    that one rule serves cards with fewer of them."""
    if cut.isdigit() and int(cut) > 0:
        cut = str(min(int(cut), len(configurations(gpu))))
    return parse_layout(gpu, cut, where)
