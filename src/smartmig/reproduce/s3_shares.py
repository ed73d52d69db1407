"""S3's Fig. 13: how much of the time GPUs spend in each configuration under the learned policy, by how jobs scale."""

from __future__ import annotations

import math
from collections.abc import Mapping

from smartmig.compare import Shard
from smartmig.reproduce.reproduction import Metric, Reproduction, Row
from smartmig.scenario import PolicySpec, RuleSpec
from smartmig.sim.mig.run import cuts_of, simulate
from smartmig.workload.curves import sublinearity

LEARNED = PolicySpec("categorical-edf", "mean-field")

BARS = {"1": (1,), "2": (2,), "3": (3,), "4": (4,), "5": (5,), "6": (6,), "7": (7,), "8-12": (8, 9, 10, 11, 12)}
"""The figure's bars: configuration numbers."""

PUBLISHED = dict(zip(BARS, ("29", "27", "14", "6", "3", "6", "10", "5"), strict=True))

SUBLINEARITY = Metric("sublinearity", "sublinearity", lambda _: math.nan, 2)


def _metric(bar: str) -> Metric:
    return Metric(f"share_{bar}_pct", f"configuration {bar} (%)", lambda _: math.nan, 1)


def shares(shard: Shard) -> Mapping[str, float]:
    """Share of GPU time in each configuration; metric id -> per cent."""
    cluster = shard.scenario.cluster_for(shard.policy)
    policy = shard.policy.policy()
    jobs = shard.scenario.jobs(shard.seed)
    run = simulate(jobs, cluster, policy, shard.policy.settings(seed=shard.seed))
    cuts = cuts_of(cluster, policy.repartition)
    number = {f"{cuts.models[config.model].id}:{config.text}": config.number for config in cuts.configs}
    total = sum(run.config_s.values())
    found = {SUBLINEARITY.id: sublinearity(jobs.run_s)}
    for bar, numbers in BARS.items():
        spent = sum(seconds for name, seconds in run.config_s.items() if number[name] in numbers)
        found[_metric(bar).id] = 100 * spent / total
    return found


def figure_13() -> Reproduction:
    mixes: dict[str, RuleSpec] = {
        "linear jobs only": {"id": "day", "linear_frac": 1.0},
        "half linear": {"id": "day", "linear_frac": 0.5},
        "the papers' mix": "day",
        "ResNet-50 only": {"id": "day", "bert_frac": 0.0},
        "half capped at 3g": {"id": "day", "capped_frac": 0.5},
    }
    published = {_metric(bar).id: share for bar, share in PUBLISHED.items()}
    return Reproduction(
        id="s3-fig13",
        title="Share of GPU time in each configuration, by how jobs scale",
        source="S3, Fig. 13: more small slices as jobs get more sublinear",
        metrics=(SUBLINEARITY, *(_metric(bar) for bar in BARS)),
        rows=tuple(
            Row(label, LEARNED, published if workload == "day" else {}, workload=workload, measure=shares)
            for label, workload in mixes.items()
        ),
        differs="The figure's loads are not public: ours keep x20 days whatever the jobs, and the policy was trained "
        "on the papers' mix only. Sublinearity: slope of the mean throughput curve against linear, 1 = linear.",
        days=20,
        parts_of_whole=True,
    )
