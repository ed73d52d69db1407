"""`smartmig train`: policies of one's own."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smartmig.cli import STOPPED
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import Gpus, Preempt, Recut, RecutMode, rule_spec, with_flags
from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus
from smartmig.scenario import placement_rule, repartition_rule
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.settings import Training
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.mix import parse_deadline

if TYPE_CHECKING:
    from smartmig.train.repartition import Trainer

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
    with _interruptible() as stopped:
        _train(trainer, to, checkpoint, command, placement, stopped)
    if json_output:
        scores = {"validation_et": trainer.best_et, "updates": trainer.iteration, "policy_file": str(to)}
        print_json({**scores, "curve": trainer.curve})
    else:
        output().print(f"{to}: ET {trainer.best_et:.4f} on validation days after {trainer.iteration} updates")
    if stopped:
        log(f"stopped; --resume goes on from {checkpoint}")
        raise SystemExit(STOPPED)


def _train(trainer: Trainer, to: Path, checkpoint: Path, command: str, placement: str, stopped: list[int]) -> None:
    total = trainer.training.iterations
    saved_s = time.monotonic()
    with progress_bar() as tell, _tensorboard(to) as board:
        trainer.imitate(lambda what, done, of, how: tell(f"{what} {how}", done, of))
        while trainer.iteration < total and not stopped:
            row = trainer.update()
            what = f"ET {row['train_et']:.3f}, best on validation {trainer.best_et:.4f}"
            tell(what, trainer.iteration, total)
            if board is not None:
                for name, value in row.items():
                    board.add_scalar(name, value, trainer.iteration)
            if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
                trainer.save(checkpoint)
                saved_s = time.monotonic()
    trainer.save(checkpoint)
    trainer.export(to, command, placement)


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
