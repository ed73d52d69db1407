"""Twice daily (S2): one cut for the day, another for the night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.model import GpuModel
from smartmig.jit import kernel
from smartmig.policy.plain import PlainView
from smartmig.policy.repartition.rule import cut_for
from smartmig.policy.view import JobArrays, Kernel, State, World
from smartmig.types import Floats, Layout

DAY_S = 86_400.0


@kernel
def control(world: World, jobs: JobArrays, state: State, knobs: Floats) -> None:  # noqa: ARG001
    # knobs: day from, day until (seconds of the day), then per model the day's and the night's configuration
    of_day_s = state.now[0].time_s % DAY_S
    offset = 2 if knobs[0] <= of_day_s < knobs[1] else 3
    for gpu in range(world.n_gpus):
        state.gpu[gpu].target = int(knobs[offset + 2 * state.gpu[gpu].model])


@dataclass(frozen=True)
class TwiceDaily:
    """One cut by day, another by night, on every GPU (S2)."""

    day_cut: str = "7"
    """cut between the two hours, as a configuration number or profile names"""
    night_cut: str = "2"
    """cut for the rest of the day"""
    day_from_h: float = 4.0
    """hour of the morning change"""
    day_until_h: float = 17.0
    """hour of the evening change"""

    control: ClassVar[Kernel | None] = control
    counted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.day_from_h < self.day_until_h <= 24:
            raise InputError(
                "twice-daily: the day must begin before it ends, within 0..24 h; "
                f"got day_from_h {self.day_from_h:g}, day_until_h {self.day_until_h:g}"
            )

    def period_s(self) -> float:
        return 60.0

    def every_events(self, n_gpus: int) -> int:  # noqa: ARG002
        return 0

    def _cuts(self, gpu: GpuModel) -> tuple[Layout, Layout]:
        day = cut_for(gpu, self.day_cut, "twice-daily.day_cut")
        return day, cut_for(gpu, self.night_cut, "twice-daily.night_cut")

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        return tuple(self._cuts(gpu)[0 if self.day_from_h == 0 else 1] for gpu in gpus)

    def reachable(self, cuts: CutTable) -> tuple[int, ...]:
        return tuple(cuts.config_of(m, layout) for m, gpu in enumerate(cuts.models) for layout in self._cuts(gpu))

    def knobs(self, cuts: CutTable, world: World) -> Floats:  # noqa: ARG002
        return np.array([self.day_from_h * 3600, self.day_until_h * 3600, *self.reachable(cuts)])

    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:  # noqa: ARG002
        hour = view.now_s % DAY_S / 3600
        by_day = self.day_from_h <= hour < self.day_until_h
        wanted = [self._cuts(gpu)[0 if by_day else 1] for gpu in cuts.models]
        return [cuts.config_of(gpu.model, wanted[gpu.model]) for gpu in view.gpus]
