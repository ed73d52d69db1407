"""From nouns to arrays: a cluster, jobs and a placement rule become `World`, `JobArrays` and a fresh `State`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from smartmig.errors import NoSliceFits
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.layouts import sizes
from smartmig.hardware.model import GpuModel
from smartmig.policy.encoding import AT_CONFIG
from smartmig.policy.placement.rule import PlacementRule, throughput_class
from smartmig.policy.view import (
    CONFIG,
    END,
    GPU,
    JOB,
    JOB_SPEC,
    NOW,
    SLICE_CLASS,
    SLOT,
    SLOTS,
    WAIT,
    JobArrays,
    State,
    World,
)
from smartmig.types import SLICE_SIZES, Floats, Ints, Jobs

A100_IDLE_W, A100_FULL_W = 40.0, 248.5
"""what World.card compares with (S3's power curve)"""


@dataclass(frozen=True)
class Settings:
    """How the simulated cluster behaves."""

    preempt: bool = True
    """decide every slice anew at every event; a stopped job keeps its progress"""
    drain: bool = False
    """re-cut like a real card: idle instances only, beside running work; otherwise as in the papers: the GPU is down"""
    recut_s: float = 4.0
    """how long a GPU is down in the papers' mode (S3)"""
    restart_s: float = 0.0
    """what a stopped job pays when it starts again"""
    estimated_speed: bool = False
    """scale run times by each GPU model's estimated speed against A100-40GB; otherwise they hold on every model"""
    charge_after_release: bool = False
    """S1's energy accounting, which misses the last interval of every job; only to reproduce its table"""
    record: bool = False
    """keep every stretch a job ran and how every GPU was cut"""
    seed: int = 0
    """of the policy's own draws"""


def build_world(cuts: CutTable, rule: PlacementRule, settings: Settings, counted: bool = False) -> World:
    """`counted`: keep the running counts that learned policies read."""
    models = cuts.models
    power_w = np.zeros((len(models), SLOTS))
    share_level = np.zeros((len(models), SLOTS), dtype=np.int64)
    shares = sorted({Fraction(b, m.n_compute) for m in models for b in range(m.n_compute + 1)}, reverse=True)
    for index, model in enumerate(models):
        power_w[index, : model.n_compute + 1] = model.power.watts
        for busy in range(model.n_compute + 1):
            share_level[index, busy] = shares.index(Fraction(busy, model.n_compute))
    size_level = np.zeros((SLOTS, SLOTS), dtype=np.int64)
    pairs = [(total, n) for n in range(1, SLOTS) for total in range(n, SLOTS)]
    means = sorted({Fraction(total, n) for total, n in pairs}, reverse=True)
    for total, n in pairs:
        size_level[total, n] = means.index(Fraction(total, n))
    variants = [(index, variant) for index, config in enumerate(cuts.configs) for variant in config.variants]
    cut_class = np.full((len(variants), SLOTS), -1, dtype=np.int64)
    widest = max(len(config.variants) for config in cuts.configs)
    config_cut = np.full((len(cuts.configs), widest), -1, dtype=np.int64)
    filled = [0] * len(cuts.configs)
    for cut, (of_config, layout) in enumerate(variants):
        for placement in layout:
            cut_class[cut, placement.start] = cuts.class_of(cuts.configs[of_config].model, placement.profile)
        config_cut[of_config, filled[of_config]] = cut
        filled[of_config] += 1
    config_sizes = np.zeros((len(cuts.configs), len(SLICE_SIZES)), dtype=np.int64)
    for index, config in enumerate(cuts.configs):
        for size in sizes(models[config.model], config.variants[0]):
            config_sizes[index, SLICE_SIZES.index(size)] += 1
    classes = np.zeros(len(cuts.classes), dtype=SLICE_CLASS)
    for index, (of_model, profile) in enumerate(cuts.classes):
        gpu = models[of_model]
        times = gpu.create_s[profile.compute], gpu.destroy_s[profile.compute]
        classes[index] = (profile.compute, profile.memory_slices, of_model, *times)
    world = World(
        n_gpus=len(cuts.gpu_model),
        preempt=settings.preempt,
        drain=settings.drain,
        charge_after_release=settings.charge_after_release,
        record=settings.record,
        counted=counted or rule.counted,
        seed=settings.seed,
        restart_s=float(settings.restart_s),
        recut_s=float(settings.recut_s),
        power_w=power_w,
        card=np.array([card_of(model, settings) for model in models]),
        share_level=share_level,
        size_level=size_level,
        slice_class=classes,
        config=np.array([(c.model, c.n_slices) for c in cuts.configs], dtype=CONFIG),
        config_cut=config_cut,
        config_sizes=config_sizes,
        config_compute=np.array([models[c.model].n_compute for c in cuts.configs]),
        cut_class=cut_class,
        knobs=np.zeros(1),
    )
    return world._replace(knobs=np.array(rule.knobs(world) or (0.0,), dtype=np.float64))


def card_of(model: GpuModel, settings: Settings) -> list[float]:
    """A row of World.card."""
    speed = model.speed[SLICE_SIZES.index(max(profile.compute for profile in model.profiles))]
    idle_w, full_w = model.power.watts[0], model.power.watts[-1]
    return [
        math.log(speed) if settings.estimated_speed else 0.0,
        math.log(max(idle_w, 1.0) / A100_IDLE_W),
        math.log(max(full_w, 1.0) / A100_FULL_W),
    ]


def build_jobs(
    jobs: Jobs, cuts: CutTable, rule: PlacementRule, settings: Settings, reachable: Sequence[int]
) -> JobArrays:
    """Run times per slice class; refuses a job that fits no slice of the `reachable` configurations."""
    run_s = class_times(jobs, cuts, settings)
    offered = offered_classes(cuts, reachable)
    homeless = np.flatnonzero((class_bits(run_s) & offered) == 0)
    if homeless.size:
        first = int(homeless[0])
        raise NoSliceFits(str(jobs.job_id[first]), _why_homeless(jobs, cuts, first, offered, int(homeless.size)))
    return job_arrays(jobs, run_s, rule)


def class_times(jobs: Jobs, cuts: CutTable, settings: Settings) -> Floats:
    """(n, n_classes) seconds on a slice of the class; inf = does not fit."""
    run_s = np.full((len(jobs), len(cuts.classes)), np.inf)
    for index, (model, profile) in enumerate(cuts.classes):
        column = SLICE_SIZES.index(profile.compute)
        speed = cuts.models[model].speed[column] if settings.estimated_speed else 1.0
        run_s[:, index] = np.where(jobs.memory_gb <= profile.memory_gb, jobs.run_s[:, column] / speed, np.inf)
    return run_s


def class_bits(run_s: Floats) -> Ints:
    """(n,) bit = slice class that fits."""
    bits: Ints = np.isfinite(run_s) @ (1 << np.arange(run_s.shape[1]))
    return bits


def offered_classes(cuts: CutTable, configs: Sequence[int]) -> int:
    """Slice classes (bits) of these configurations."""
    offered = 0
    for index in configs:
        config = cuts.configs[index]
        for placement in config.variants[0]:
            offered |= 1 << cuts.class_of(config.model, placement.profile)
    return offered


def job_arrays(jobs: Jobs, run_s: Floats, rule: PlacementRule) -> JobArrays:
    """What rules and engine read, for jobs that take so long on each slice class."""
    finite = np.isfinite(jobs.run_s)
    rows = np.arange(len(jobs))
    spec = np.zeros(len(jobs), dtype=JOB_SPEC)
    spec["fits"] = class_bits(run_s)
    spec["group"] = rule.groups(jobs.run_s)
    spec["arrive_s"] = jobs.arrive_s
    spec["deadline_s"] = jobs.deadline_s
    spec["whole_s"] = jobs.run_s[rows, len(SLICE_SIZES) - 1 - np.argmax(finite[:, ::-1], axis=1)]
    spec["single_s"] = jobs.run_s[rows, np.argmax(finite, axis=1)]
    by_deadline = np.argsort(jobs.deadline_s, kind="stable")
    spec["scaling"] = throughput_class(jobs.run_s) - 1
    spec["deadline_rank"][by_deadline] = rows
    return JobArrays(spec, run_s, by_deadline)


def _why_homeless(jobs: Jobs, cuts: CutTable, job: int, offered: int, n_homeless: int) -> str:
    slices = sorted({p.name for i, (_, p) in enumerate(cuts.classes) if offered >> i & 1})
    sizes = [f"{size}g" for size, run in zip(SLICE_SIZES, jobs.run_s[job], strict=True) if np.isfinite(run)]
    need = f"runs on {'/'.join(sizes)} only"
    if jobs.memory_gb[job] > 0:
        need += f" and needs {jobs.memory_gb[job]:g} GB"
    others = f" (and {n_homeless - 1} more jobs)" if n_homeless > 1 else ""
    return f"fits no slice{others}: it {need}; this cluster is cut into {', '.join(slices) or 'nothing'}"


def fresh_state(world: World, n_jobs: int, cuts: CutTable) -> State:
    """Time 0: nothing has arrived, every GPU is idle and cut as the table says, none is open for jobs yet."""
    n_gpus, n_classes = world.n_gpus, world.slice_class.size
    n_slots = n_gpus * SLOTS
    n_levels = int(max(world.share_level.max(), world.size_level.max())) + 1
    job = np.zeros(n_jobs, dtype=JOB)
    job["slot"] = job["next_slot"] = job["cell"] = job["wait_bin"] = -1
    job["left"] = job["left_at_start"] = 1.0
    job["first_start_s"] = job["finish_s"] = np.nan
    slot = np.zeros(n_slots, dtype=SLOT)
    slot["slice_class"] = slot["job"] = -1
    for gpu, layout in enumerate(cuts.layouts):
        for placement in layout:
            at = gpu * SLOTS + placement.start
            slot[at]["slice_class"] = cuts.class_of(cuts.gpu_model[gpu], placement.profile)
    slot["wanted_class"] = slot["slice_class"]
    gpus = np.zeros(n_gpus, dtype=GPU)
    gpus["model"] = cuts.gpu_model
    gpus["config"] = cuts.start
    gpus["target"] = -1
    end = np.zeros(n_slots + n_gpus, dtype=END)
    end["place"] = -1
    now = np.zeros(1, dtype=NOW)
    now["next_end_s"] = np.inf
    tally = np.zeros(AT_CONFIG + 2 * len(cuts.configs), dtype=np.int64)
    tally[AT_CONFIG : AT_CONFIG + len(cuts.configs)] = np.bincount(cuts.start, minlength=len(cuts.configs))
    return State(
        now=now,
        job=job,
        slot=slot,
        gpu=gpus,
        class_bits=np.zeros((n_gpus, n_classes), dtype=np.int64),
        open_gpus=np.zeros((n_levels, n_classes, (n_gpus + 63) // 64), dtype=np.int64),
        n_open=np.zeros((n_levels, n_classes), dtype=np.int64),
        open_levels=np.zeros(n_classes, dtype=np.int64),
        end=end,
        wait=np.zeros(n_jobs, dtype=WAIT),
        aside=np.zeros(n_jobs, dtype=np.int64),
        placed=np.zeros(n_slots, dtype=np.int64),
        running=np.zeros(n_slots, dtype=np.int64),
        config_s=np.zeros(len(cuts.configs)),
        tally=tally,
        flow=np.zeros(3),
        segment=np.zeros((12 * n_slots + 2 * n_jobs if world.record else 0, 4)),
    )
