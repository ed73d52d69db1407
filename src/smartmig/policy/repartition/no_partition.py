"""No partition: every GPU stays whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import GpuModel
from smartmig.policy.repartition.rule import Fixed
from smartmig.types import Layout


@dataclass(frozen=True)
class NoPartition(Fixed):
    """Every GPU stays whole."""

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        return tuple(configurations(gpu)[0] for gpu in gpus)
