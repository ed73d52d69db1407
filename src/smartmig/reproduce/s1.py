"""S1: Hisaria, Vij, Srivastava, MIG scheduling with RL (Columbia, December 2025; slides)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from smartmig.compare import Shard
from smartmig.reproduce.reproduction import ENERGY, LATE, TARDINESS, Reproduction, Row
from smartmig.scenario import PolicySpec

# S1 numbers all 19 placements: its [1,1,2,2,3,3,12,12] are these cuts, by S3's numbers.
LAYOUTS = "1,1,2,2,3,3,9,9"


PPO = Path(__file__).parent / "data" / "s1-ppo.npz"
"""MaskablePPO with S1's settings on our environment; `read_placer` tells the command that made it"""


def learned_day(shard: Shard) -> Mapping[str, float]:
    """A day placed by the policy in PPO."""
    # Imported here: only this row needs the environment's engine.
    from smartmig.train.placer import read_placer

    policy = shard.policy
    cluster = shard.scenario.cluster_for(policy)
    played = read_placer(PPO).run(cluster, [shard.scenario.jobs(shard.seed)], policy.settings(seed=shard.seed))
    return {metric.id: metric.of(played[0].summary) for metric in (LATE, TARDINESS, ENERGY)}


def _row(
    label: str,
    placement: str,
    late: str,
    tardiness: str,
    energy: str,
    measure: Callable[[Shard], Mapping[str, float]] | None = None,
) -> Row:
    policy = PolicySpec(placement=placement, layouts=LAYOUTS, preempt=False, charge_after_release=True)
    published = {LATE.id: late, TARDINESS.id: tardiness, ENERGY.id: energy}
    relaxed = {"id": "day", "deadline": (2.0, 4.0)}
    return Row(label, policy, published, gpus="8xa100-40gb@s1", workload=relaxed, measure=measure)


def table() -> Reproduction:
    return Reproduction(
        id="s1-table",
        title="S1's placing: eight statically cut A100s, no preemption, relaxed deadlines",
        source="S1, results table",
        metrics=(LATE, TARDINESS, ENERGY),
        rows=(
            _row("EFT", "earliest-finish", "42.7 ± 5.7", "1.02 ± .73", "2.51 ± .05"),
            _row("Largest-First", "largest-first", "42.7 ± 5.7", "1.02 ± .73", "2.51 ± .05"),
            _row("Smallest-First", "smallest-first", "54.3 ± 4.7", "1.21 ± .58", "2.42 ± .05"),
            _row("Random", "random-slice", "50.1 ± 4.7", "1.13 ± .57", "2.49 ± .04"),
            _row("RL: MaskablePPO", "largest-first", "37.9 ± 6.5", "1.01 ± .61", "2.44 ± .05", learned_day),
        ),
        differs="RL: trained here on 500,000 placings with S1's settings; its reward is our reading. S1 frees a slice "
        "before charging its last interval (done here too: energy is 1.5-2.2 % low) and keeps time in float32 (not "
        "done here); its spread is over days, ours is the interval of the mean.",
    )
