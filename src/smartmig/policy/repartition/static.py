"""Static: cut once, never again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smartmig.errors import InputError
from smartmig.hardware.model import GpuModel
from smartmig.policy.repartition.rule import Fixed, cut_for
from smartmig.types import Layout


@dataclass(frozen=True)
class Static(Fixed):
    """The cuts at time 0 for ever; without any given, S3's mix, repeated over the cluster."""

    mix: tuple[str, ...] = ("1", "1", "2", "3", "3", "5", "5", "10")
    """S3's cuts of eight A100-40GB (Fig. 12), as configuration numbers or profile names"""

    def __post_init__(self) -> None:
        if not self.mix:
            raise InputError("static.mix is empty; it needs at least one cut")

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        cuts = [self.mix[index % len(self.mix)] for index in range(len(gpus))]
        return tuple(cut_for(gpu, cut, "static.mix") for gpu, cut in zip(gpus, cuts, strict=True))
