"""What matters when placing is learned a step at a time: S1's ablations, and its algorithm against others.

Every variant is trained on the same budget of placings, as often as asked, and run on the same test days, beside
Largest-First.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from smartmig.metrics.study import Row
from smartmig.metrics.summary import summarise
from smartmig.policy.placement.largest_first import LargestFirst
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.train.placer import Placer, read_placer, write_placer
from smartmig.train.settings import StepTraining
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.seeds import TEST_FIRST

RELAXED = (2.0, 4.0)
UPDATES = 24
"""S1's 500,000 placings make some thirty updates; a smaller budget is cut into about as many"""

Trainer = Callable[..., list[tuple[int, Placer]]]
"""`stepwise.train_placer`"""
Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Variant:
    """One thing changed."""

    group: str
    label: str
    settings: StepTraining
    deadline: tuple[float, float] = RELAXED


def on_budget(steps: int, seed: int = 0) -> StepTraining:
    """S1's settings, with updates and minibatches as much smaller as the number of steps is."""
    if steps >= StepTraining().steps:
        return StepTraining(steps=steps, seed=seed)
    update = max(64, steps // UPDATES)
    return StepTraining(steps=steps, update_steps=update, batch=max(16, update // 4), lanes=16, seed=seed)


def ablations(steps: int, seed: int = 0) -> list[Variant]:
    """S1's list: deadline slack, observation, reward timing, depth of the network, steps."""
    base = on_budget(steps, seed)
    return [
        Variant("as S1", "all as S1", base),
        Variant("deadline slack", "U(1, 1.5)", base, (1.0, 1.5)),
        Variant("deadline slack", "U(4, 8)", base, (4.0, 8.0)),
        Variant("observation", "ours", replace(base, observation="ours")),
        Variant("observation", "ours, may wait", replace(base, observation="ours", wait=True)),
        Variant("reward", "at the end only", replace(base, reward="final")),
        Variant("reward", "exact increments of ET", replace(base, reward="et")),
        Variant("network", "one layer of 64", replace(base, layers="64")),
        Variant("network", "five layers of 256", replace(base, layers="256,256,256,256,256")),
        Variant("steps", f"{steps // 4:,}", on_budget(steps // 4, seed)),
        Variant("steps", f"{steps * 2:,}", on_budget(steps * 2, seed)),
    ]


def algorithms(steps: int, seed: int = 0) -> list[Variant]:
    base = on_budget(steps, seed)
    named = {"ppo": "PPO, clipped", "kl": "PPO, KL target", "grpo": "GRPO-style groups", "dqn": "DQN"}
    return [Variant("algorithm", label, replace(base, algorithm=name)) for name, label in named.items()]


def largest_first(cluster: Cluster, jobs: Sequence[Jobs], variant: Variant) -> Row:
    policy, n_compute = Policy(LargestFirst(), Static()), sum(gpu.n_compute for gpu in cluster.gpus)
    runs = [summarise(day, simulate(day, cluster, policy, Settings(preempt=False)), n_compute) for day in jobs]
    low, high = variant.deadline
    label = "Largest-First" if variant.deadline == RELAXED else f"Largest-First, U({low:g}, {high:g})"
    return Row(variant.group, label, 0, 0.0, [runs])


def run_study(
    train: Trainer,
    cluster: Cluster,
    variants: Sequence[Variant],
    n_days: int,
    n_trainings: int,
    multiplier: float,
    tell: Told,
    shares: Sequence[float] = (),
    kept: Path | None = None,
) -> list[Row]:
    """Train every variant with several seeds, run each on the test days; `shares`: of the budget, where policies on
    the way count too.

    `kept`: a folder for what was trained. What lies there already is not trained again.
    """
    rows: list[Row] = []
    total = n_trainings * sum(variant.settings.steps for variant in variants)
    before = 0
    slacks: set[tuple[float, float]] = set()
    for variant in variants:
        day = DiurnalDay(multiplier=multiplier, deadline=variant.deadline)
        jobs = [day.jobs(TEST_FIRST + at) for at in range(n_days)]
        if variant.deadline not in slacks:
            slacks.add(variant.deadline)
            rows.append(largest_first(cluster, jobs, variant))
        stages = [*(round(share * variant.settings.steps) for share in shares), variant.settings.steps]
        trained: dict[int, list[Placer]] = {}
        for at in range(n_trainings):
            settings = replace(variant.settings, seed=variant.settings.seed + at)

            def told(steps: int, name: str = variant.label, before: int = before) -> None:
                tell(f"placings learned from ({name})", before + steps, total)

            for steps, placer in _trained(train, cluster, day, settings, told, stages, kept):
                trained.setdefault(steps, []).append(placer)
            before += settings.steps
        for steps, placers in trained.items():
            played = [placer.run(cluster, jobs) for placer in placers]
            runs = [[one.summary for one in days] for days in played]
            earned = fmean(one.earned for days in played for one in days)
            train_s = fmean(placer.train_s for placer in placers)
            rows.append(Row(variant.group, variant.label, steps, train_s, runs, earned))
    tell("placings learned from", total, total)
    return rows


def _trained(
    train: Trainer,
    cluster: Cluster,
    day: DiurnalDay,
    settings: StepTraining,
    told: Callable[[int], None],
    stages: Sequence[int],
    kept: Path | None,
) -> list[tuple[int, Placer]]:
    """The policies at each stage of a training, from their files where they have some."""
    if kept is None:
        return train(cluster, day.jobs, settings, told, stages[:-1])
    about = repr((cluster, day, settings))
    paths = {steps: kept / f"{hashlib.sha256(about.encode()).hexdigest()[:16]}-{steps}.npz" for steps in stages}
    if not paths[settings.steps].exists():  # the last one to be written
        for steps, placer in train(cluster, day.jobs, settings, told, stages[:-1]):
            write_placer(paths[steps], placer)
    # From the files even if just written: half the precision, whether it was interrupted or not. A small budget may end
    # before an early stage is looked at.
    return [(steps, read_placer(path)) for steps, path in paths.items() if path.exists()]
