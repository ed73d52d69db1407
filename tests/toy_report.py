"""A comparison and a day small enough to check by hand, for tests of what is drawn from them."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from smartmig.metrics.summary import Summary
from smartmig.report.comparison import Comparison, PolicyRuns, SampleDay
from smartmig.types import Cuts, Jobs, Run, Segments

WATTS = (50.0, 100.0, 140.0, 170.0, 190.0, 200.0, 205.0, 208.0)


def segments(*rows: tuple[int, int, int, int, int, float, float]) -> Segments:
    job, gpu, start, size, span, from_s, to_s = zip(*rows, strict=True)
    whole = [np.array(column, dtype=np.int64) for column in (job, gpu, start, size, span)]
    return Segments(*whole, np.array(from_s), np.array(to_s))


def toy_day(policy: str = "toy") -> SampleDay:
    """Two GPUs, three jobs: job 0 is stopped for a while, job 1 is late, job 2 waits 40 s for its slice."""
    rows = [
        (0, 0, 0, 4, 4, 0.0, 100.0),
        (1, 0, 4, 3, 4, 10.0, 250.0),
        (0, 0, 0, 4, 4, 160.0, 200.0),
        (2, 1, 0, 7, 8, 60.0, 300.0),
    ]
    jobs = Jobs(
        job_id=np.array(["a", "b", "c"]),
        arrive_s=np.array([0.0, 10.0, 20.0]),
        deadline_s=np.array([500.0, 100.0, 400.0]),
        run_s=np.full((3, 5), 60.0),
        kind=np.array(["train", "infer", ""]),
        memory_gb=np.zeros(3),
    )
    # GPU 0: 4 slices 10 s, 7 for 90 s, 3 for 60 s, 7 for 40 s, 3 for 50 s, none for 50 s; GPU 1: 7 for 240 of 300 s.
    first = WATTS[4] * 10 + WATTS[7] * 90 + WATTS[3] * 60 + WATTS[7] * 40 + WATTS[3] * 50 + WATTS[0] * 50
    second = WATTS[0] * 60 + WATTS[7] * 240
    run = Run(
        first_start_s=np.array([0.0, 10.0, 60.0]),
        finish_s=np.array([200.0, 250.0, 300.0]),
        n_starts=np.array([2, 1, 1]),
        energy_j=np.array([first, second]),
        busy_slice_s=np.array([4 * 140.0 + 3 * 240.0, 7 * 240.0]),
        makespan_s=300.0,
        n_events=6,
        n_repartitions=0,
        n_preemptions=1,
        config_s={"a100-40gb:4g+3g": 300.0, "a100-40gb:7g": 300.0},
        segments=segments(*rows),
        instances=segments((-1, 0, 0, 4, 4, 0, 300), (-1, 0, 4, 3, 4, 0, 300), (-1, 1, 0, 7, 8, 0, 300)),
        cuts=Cuts(np.arange(2), np.arange(2), np.zeros(2), np.full(2, 300.0), ("a100-40gb:4g+3g", "a100-40gb:7g")),
    )
    return SampleDay(policy, jobs, run, ("a100-40gb", "a100-40gb"), (WATTS, WATTS), (8, 8))


def toy_summary(et: float, energy_kwh: float = 40.0, configs: int = 2) -> Summary:
    return Summary(
        n_jobs=100,
        energy_j=energy_kwh * 3.6e6,
        energy_kwh=energy_kwh,
        energy_per_job_j=energy_kwh * 3.6e4,
        mean_tardiness_s=60.0 * et,
        p95_tardiness_s=300.0 * et,
        max_tardiness_s=900.0 * et,
        late_frac=0.25,
        et=et,
        utilisation_frac=0.8,
        makespan_s=86400.0,
        n_repartitions=3,
        n_preemptions=9,
        n_events=400,
        config_frac={f"a100-40gb:{index}g": 1 / configs for index in range(configs)},
    )


def toy_comparison(n_seeds: int = 3, bound: bool = False, configs: int = 2) -> Comparison:
    return Comparison(
        title="Toys & <others>",
        seeds=tuple(range(n_seeds)),
        policies=(
            PolicyRuns("first", tuple(toy_summary(2.0 + 0.1 * seed, 41.0, configs) for seed in range(n_seeds))),
            PolicyRuns("second", tuple(toy_summary(1.5 + 0.1 * seed, 42.0, configs) for seed in range(n_seeds))),
        ),
        notes=("A note with <b>tags</b>.",),
        bound_energy_j=tuple(36.0 * 3.6e6 for _ in range(n_seeds)) if bound else None,
    )


def shown(table: object, width: int = 140) -> str:
    out = io.StringIO()
    Console(width=width, file=out).print(table)
    return out.getvalue()
