"""`smartmig train`: policies of one's own."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Protocol

import typer

from smartmig.cli import STOPPED
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.gang import GangFlags
from smartmig.cli.options import Gpus, Layouts, Preempt, Recut, RecutMode, rule_spec, with_flags
from smartmig.compare import Progress
from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.scenario import placement_rule, repartition_rule
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.placement import PriceSearch
from smartmig.train.run_times import fit_jobs, write_run_times
from smartmig.train.settings import GangTraining, PlacementTraining, Training
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.mix import parse_deadline

app = typer.Typer(help="Train policies of your own.", no_args_is_help=True)

CHECKPOINT_EVERY_S = 30.0


@app.command("repartition")
@with_flags(Training)
def repartition(
    to: Annotated[Path, typer.Option("-o", "--output", help="Policy file to write (.npz).")],
    settings: Training,
    gpus: Gpus = "8xa100-40gb",
    placement: Annotated[str, typer.Option(help="Placement rule to train with.")] = "shortest-work",
    teacher: Annotated[str, typer.Option(help="Rule to imitate first; none: begin from nothing.")] = "slice-count",
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Annotated[float, typer.Option(help="Load of the training days (20 for 8 GPUs).")] = 20.0,
    deadline: Annotated[str, typer.Option(help="LOW:HIGH slack of the deadlines.")] = "1:1.5",
    threads: Annotated[int | None, typer.Option(min=1, help="Days played at once; default: one per core.")] = None,
    device: Annotated[str, typer.Option(help="Where torch computes: auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint beside the output.")] = False,
    json_output: Json = False,
) -> None:
    """Train a mean-field policy: imitate a rule, then improve it by PPO on whole days.

    A checkpoint lies beside the output (.ckpt); Ctrl-C keeps it and the best policy so far. TensorBoard's curves go to
    a folder beside it, where tensorboard is installed.
    """
    try:
        import torch

        from smartmig.sim.mig.batch import Setting
        from smartmig.train.repartition import Trainer
    except ModuleNotFoundError as error:
        raise InputError(f"training needs {error.name}: pip install 'smartmig[train]'") from None
    prepare_place(to)
    cards = parse_gpus(gpus, "--gpus")
    day = DiurnalDay(multiplier=multiplier, deadline=parse_deadline(deadline, "--deadline"))
    rule = placement_rule(rule_spec(placement, "--placement"), "--placement")
    teaching = None if teacher == "none" else repartition_rule(rule_spec(teacher, "--teacher"), "--teacher")
    if teaching is not None and type(teaching).control is None:
        raise InputError(f"--teacher: '{teacher}' never re-cuts, there is nothing to imitate")
    if device not in ("auto", "cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device: got '{device}', allowed are auto, cpu and, where there is one, cuda")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    world = Settings(preempt=preempt, drain=recut is Recut.drain)
    checkpoint = to.with_suffix(".ckpt")
    log(f"making {settings.pool + settings.validation_days} days and compiling ...")
    trainer = Trainer(Setting(Cluster(cards), rule, world), day.jobs, settings, teaching, device, threads)
    if resume:
        trainer.load(checkpoint)
    command = shlex.join(["smartmig", *(word for word in sys.argv[1:] if word != "--resume")])
    with _interruptible() as stopped, progress_bar() as tell:
        trainer.imitate(lambda what, done, of, how: tell(f"{what} {how}", done, of))
        _train(trainer, settings.iterations, to, tell, stopped)
        trainer.export(to, command, placement)
    if json_output:
        scores = {"validation_et": trainer.best_et, "updates": trainer.iteration, "policy_file": str(to)}
        print_json({**scores, "curve": trainer.curve})
    else:
        output().print(f"{to}: ET {trainer.best_et:.4f} on validation days after {trainer.iteration} updates")
    if stopped:
        log(f"stopped; --resume goes on from {checkpoint}")
        raise SystemExit(STOPPED)


@app.command("placement")
@with_flags(PlacementTraining)
def placement(
    to: Annotated[Path, typer.Option("-o", "--output", help="Policy file to write (.npz).")],
    settings: PlacementTraining,
    gpus: Gpus = "8xa100-40gb",
    layouts: Layouts = None,
    repartition: Annotated[str, typer.Option(help="Repartition rule to train with.")] = "static",
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Annotated[float, typer.Option(help="Load of the training days (20 for 8 GPUs).")] = 20.0,
    deadline: Annotated[str, typer.Option(help="LOW:HIGH slack of the deadlines.")] = "1:1.5",
    threads: Annotated[int | None, typer.Option(min=1, help="Days run at once; default: one per core.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint beside the output.")] = False,
    json_output: Json = False,
) -> None:
    """Train a placing policy: find the prices of slices by cross-entropy search on whole days.

    A checkpoint lies beside the output (.ckpt); Ctrl-C keeps it and the best policy so far.
    """
    prepare_place(to)
    cards = parse_gpus(gpus, "--gpus")
    day = DiurnalDay(multiplier=multiplier, deadline=parse_deadline(deadline, "--deadline"))
    cutting = repartition_rule(rule_spec(repartition, "--repartition"), "--repartition")
    cluster = Cluster(cards, None if layouts is None else parse_layouts(layouts, cards, "--layouts"))
    world = Settings(preempt=preempt, drain=recut is Recut.drain)
    log(f"making {settings.pool + settings.validation_days} days and compiling ...")
    search = PriceSearch(cluster, cutting, world, day.jobs, settings, threads)
    if resume:
        search.load(to.with_suffix(".ckpt"))
    command = shlex.join(["smartmig", *(word for word in sys.argv[1:] if word != "--resume")])
    with _interruptible() as stopped, progress_bar() as tell:
        _train(search, settings.generations, to, tell, stopped)
        search.export(to, command, repartition)
    if json_output:
        scores = {"validation_score": search.best_score, "rounds": search.iteration, "policy_file": str(to)}
        print_json({**scores, "curve": search.curve})
    else:
        output().print(f"{to}: score {search.best_score:.4f} on validation days after {search.iteration} rounds")
    if stopped:
        log(f"stopped; --resume goes on from {to.with_suffix('.ckpt')}")
        raise SystemExit(STOPPED)


Trace = Annotated[str, typer.Option(help="File of whole-GPU jobs (helios, philly, swf, sacct, csv ...).")]
MaxGpus = Annotated[int, typer.Option(min=0, help="Leave out jobs with more GPUs; 0 keeps all.")]
Since = Annotated[str, typer.Option("--from", help="First day of the training part, e.g. 2020-04-01 (UTC).")]
Before = Annotated[str, typer.Option("--to", help="The day after its last.")]
Requests = Annotated[str, typer.Option(help="Made-up requested times where the trace has none, e.g. menu-1h.")]


@app.command("gang")
@with_flags(GangTraining)
def gang(
    to: Annotated[Path, typer.Option("-o", "--output", help="Policy file to write (.npz).")],
    trace: Trace,
    settings: GangTraining,
    nodes: Annotated[str, typer.Option(help="nodes x GPUs, as for simulate.")] = "30x8",
    max_gpus: MaxGpus = 0,
    since: Since = "",
    before: Before = "",
    tune_to: Annotated[str, typer.Option(help="The tuning part goes from --to to the day before this one.")] = "",
    requests: Requests = "",
    threads: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint beside the output.")] = False,
    json_output: Json = False,
) -> None:
    """Train the two agents of a whole-GPU cluster: search a rule's numbers, then PPO on both networks.

    With --predictor the run times they expect are written beside the policy. A checkpoint lies beside the output
    (.ckpt); Ctrl-C keeps it and the best agents so far. TensorBoard's curves go to a folder beside it.
    """
    try:
        from smartmig.train.gang import GangTrainer
    except ModuleNotFoundError as error:
        raise InputError(f"training needs {error.name}: pip install 'smartmig[train]'") from None
    prepare_place(to)
    if not before or not tune_to:
        raise InputError("--to and --tune-to: training needs the day its part ends, and the day its tuning part ends")
    flags = GangFlags(trace=trace, nodes=nodes, max_gpus=max_gpus, since=since, before=before, requests=requests)
    training, tuning = flags.scenario(), replace(flags, since=before, before=tune_to).scenario()
    if not requests:
        settings = replace(settings, request_seeds=1, validation_seeds=1)
    log("reading the trace, running the baselines and compiling ...")
    trainer = GangTrainer(training.jobs, tuning.jobs, training.cluster(), settings, threads)
    if resume:
        trainer.load(to.with_suffix(".ckpt"))
    command = shlex.join(["smartmig", *(word for word in sys.argv[1:] if word != "--resume")])
    with _interruptible() as stopped, progress_bar() as tell:
        _train(trainer, trainer.total, to, tell, stopped)
        trainer.export(to, command, nodes)
    if json_output:
        scores = {"validation_score": trainer.best_score, "rounds": trainer.iteration, "policy_file": str(to)}
        print_json({**scores, "curve": trainer.curve})
    else:
        output().print(f"{to}: score {trainer.best_score:.4f} on the tuning part after {trainer.iteration} rounds")
    if stopped:
        log(f"stopped; --resume goes on from {to.with_suffix('.ckpt')}")
        raise SystemExit(STOPPED)


@app.command("run-times")
def run_times(
    to: Annotated[Path, typer.Option("-o", "--output", help="File to write (.npz).")],
    trace: Trace,
    max_gpus: MaxGpus = 0,
    since: Since = "",
    before: Before = "",
    requests: Requests = "",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of made-up requests.")] = 6,
) -> None:
    """Learn run times to expect from what was requested: by request class and size, on the training part only."""
    prepare_place(to)
    flags = GangFlags(trace=trace, max_gpus=max_gpus, since=since, before=before, requests=requests)
    scenario = flags.scenario()
    jobs = [scenario.jobs(seed) for seed in range(seeds if requests else 1)]
    command = shlex.join(["smartmig", *sys.argv[1:]])
    write_run_times(to, fit_jobs(jobs), command)
    output().print(f"{to}: run times of {sum(len(one) for one in jobs):,} jobs")


class Trainable(Protocol):
    """What can be trained round by round."""

    iteration: int

    def update(self) -> dict[str, float]: ...

    def save(self, path: Path) -> None: ...


def _train(trainer: Trainable, total: int, to: Path, tell: Progress, stopped: list[int]) -> None:
    """Go on until all rounds are done or somebody presses Ctrl-C, with a checkpoint now and then and at the end."""
    checkpoint = to.with_suffix(".ckpt")
    saved_s = time.monotonic()
    best = ""
    with _tensorboard(to) as board:
        while trainer.iteration < total and not stopped:
            row = trainer.update()
            now, validated = (row.get(f"{days}_et", row.get(f"{days}_score")) for days in ("train", "validation"))
            best = best if validated is None else f", {validated:.4f} on validation days"
            what = "ET" if "train_et" in row else "score"
            tell(f"{what} {now:.3f}{best}", trainer.iteration, total)
            if board is not None:
                for name, value in row.items():
                    board.add_scalar(name, value, trainer.iteration)
            if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
                trainer.save(checkpoint)
                saved_s = time.monotonic()
    trainer.save(checkpoint)


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Ctrl-C asks to stop after the update under way; twice stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        log("stopping after this update (again: at once) ...")

    # Who started us in the background with signals ignored (nohup, &) means it.
    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _tensorboard(to: Path) -> Iterator[Any]:
    """A writer of curves, or None where tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    with SummaryWriter(str(to.with_suffix(".tensorboard"))) as writer:
        yield writer
