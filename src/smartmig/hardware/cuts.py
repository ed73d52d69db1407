"""The cuts a cluster's GPUs may take, numbered once for all models: what repartition rules choose from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from smartmig.errors import InputError
from smartmig.hardware.layouts import configurations, layout_text, maximal_sets, multiset
from smartmig.hardware.model import GpuModel, Profile
from smartmig.types import Layout


@dataclass(frozen=True)
class Config:
    """One way to cut one model: a multiset of profiles and the placements that realise it."""

    model: int
    """index into CutTable.models"""
    number: int | None
    """the card's configuration number (S3's on A100-40GB); None for other cuts"""
    text: str
    """e.g. `4g+2g+1g`"""
    variants: tuple[Layout, ...]
    """placements, the preferred one first"""

    @property
    def n_slices(self) -> int:
        return len(self.variants[0])


@dataclass(frozen=True)
class CutTable:
    """Models, slice classes (profiles of models) and configurations of one cluster."""

    models: tuple[GpuModel, ...]
    gpu_model: tuple[int, ...]
    """model of every GPU"""
    classes: tuple[tuple[int, Profile], ...]
    """(model, profile), small to large within a model"""
    configs: tuple[Config, ...]
    start: tuple[int, ...]
    """configuration of every GPU at time 0"""
    layouts: tuple[Layout, ...]
    """exact placements of every GPU at time 0"""

    def class_of(self, model: int, profile: str) -> int:
        """Index of the slice class of a model's profile name."""
        return next(i for i, (m, p) in enumerate(self.classes) if m == model and p.name == profile)

    def config_of(self, model: int, layout: Layout) -> int:
        """Index of the configuration with the layout's multiset of profiles."""
        wanted = multiset(self.models[model], layout)
        for index, config in enumerate(self.configs):
            if config.model == model and multiset(self.models[model], config.variants[0]) == wanted:
                return index
        text = layout_text(self.models[model], layout)
        raise InputError(f"cut {text} of {self.models[model].id} is not in this cluster's table of configurations")


@lru_cache(maxsize=64)
def cut_table(gpus: tuple[GpuModel, ...], layouts: tuple[Layout, ...]) -> CutTable:
    """Every configuration of every model in the cluster, plus the cuts of `layouts` that are none."""
    models = tuple(dict.fromkeys(gpus))
    model_of = {model: index for index, model in enumerate(models)}
    gpu_model = tuple(model_of[gpu] for gpu in gpus)
    configs: list[Config] = []
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    for index, model in enumerate(models):
        maximal = maximal_sets(model)
        for number, layout in enumerate(configurations(model), start=1):
            names = multiset(model, layout)
            variants = (layout, *(other for other in maximal if other != layout and multiset(model, other) == names))
            known[index, names] = len(configs)
            configs.append(Config(index, number, layout_text(model, layout), variants))
    start = []
    for index, layout in zip(gpu_model, layouts, strict=True):
        at = (index, multiset(models[index], layout))
        if at not in known:
            known[at] = len(configs)
            configs.append(Config(index, None, layout_text(models[index], layout), (layout,)))
        start.append(known[at])
    used = {(c.model, placement.profile) for c in configs for v in c.variants for placement in v}
    classes = tuple(
        (index, profile)
        for index, model in enumerate(models)
        for profile in sorted(model.profiles, key=lambda p: (p.compute, p.memory_slices, p.media))
        if (index, profile.name) in used
    )
    if len(classes) > 62:
        raise InputError(
            f"--gpus: {len(models)} GPU models give {len(classes)} kinds of slices; at most 62 are allowed"
        )
    return CutTable(models, gpu_model, classes, tuple(configs), tuple(start), tuple(layouts))
