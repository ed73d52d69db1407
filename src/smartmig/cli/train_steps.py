"""`smartmig train steps`: a policy that places one job a step, S1's way."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from smartmig.cli import STOPPED
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import Gpus, Layouts, with_flags
from smartmig.cli.train import Multiplier, Output, Resume, Slack, interruptible, needs_torch, training_command
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.metrics.objective import minutes, watt_minutes
from smartmig.sim.mig.run import Cluster
from smartmig.train.placer import write_placer
from smartmig.train.settings import StepTraining
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.mix import parse_deadline
from smartmig.workload.seeds import VALIDATION_FIRST


@with_flags(StepTraining)
def steps(
    to: Output,
    settings: StepTraining,
    gpus: Gpus = "8xa100-40gb",
    layouts: Layouts = None,
    multiplier: Multiplier = 20.0,
    deadline: Slack = "2:4",
    validation_days: Annotated[int, typer.Option(min=2, help="Days the result is told of.")] = 20,
    resume: Resume = False,
    json_output: Json = False,
) -> None:
    """Train a policy that places one job a step, as S1 does, by MaskablePPO, and tell how it does.

    For comparison: `train placement` makes a better one in less time. Needs stable-baselines3 and sb3-contrib. A
    checkpoint lies beside the output (.ckpt); Ctrl-C keeps it.
    """
    with needs_torch("sb3"):
        from smartmig.train.stepwise import train_placer
    prepare_place(to)
    cards = parse_gpus(gpus, "--gpus")
    day = DiurnalDay(multiplier=multiplier, deadline=parse_deadline(deadline, "--deadline"))
    cluster = Cluster(cards, None if layouts is None else parse_layouts(layouts, cards, "--layouts"))
    checkpoint = to.with_suffix(".ckpt")
    with interruptible() as stopped, progress_bar() as tell:
        kept = train_placer(
            cluster,
            day.jobs,
            settings,
            lambda done: tell("placings learned from", done, settings.steps),
            checkpoint=checkpoint,
            resume=resume,
            stop=lambda: stopped,
        )
    if not kept:
        log(f"stopped; --resume goes on from {checkpoint}")
        raise SystemExit(STOPPED)
    [(_, found)] = kept
    write_placer(to, replace(found, command=training_command()))
    played = found.run(cluster, [day.jobs(VALIDATION_FIRST + at) for at in range(validation_days)])
    row = {
        name: sum(getattr(one.summary, name) for one in played) / len(played)
        for name in ("late_frac", "mean_tardiness_s", "energy_j", "et")
    }
    if json_output:
        print_json({**row, "steps": settings.steps, "train_s": found.train_s, "policy_file": str(to)})
    else:
        energy = f"{watt_minutes(row['energy_j']) / 1e6:.2f} (1e6 W·min)"
        output().print(
            f"{to}: after {settings.steps:,} placings {100 * row['late_frac']:.1f} % late, tardiness "
            f"{minutes(row['mean_tardiness_s']):.2f} min, energy {energy}, ET {row['et']:.3f} on {validation_days} "
            "validation days"
        )
