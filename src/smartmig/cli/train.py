"""`smartmig train`: policies of one's own."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Protocol

import typer

from smartmig.cli import STOPPED, complete
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.gang import GangFlags
from smartmig.cli.options import Gpus, Layouts, Preempt, Recut, RecutMode, rule_spec, with_flags
from smartmig.compare import Progress
from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.policy.placement.learned import weights_of
from smartmig.policy.policy_file import MEAN_FIELD, PRICES, SHIPPED, read_policy
from smartmig.policy.repartition.mean_field import shipped_name
from smartmig.scenario import placement_rule, repartition_rule
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.train.placement import PriceSearch
from smartmig.train.run_times import fit_jobs, write_run_times
from smartmig.train.settings import GangTraining, JointTraining, PlacementTraining, PriceTraining, Training
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.mix import parse_deadline

Told = Callable[[str, int, int, str], None]
"""(what is being done, steps done, steps in all, how it goes)"""

app = typer.Typer(help="Train policies of your own.", no_args_is_help=True)

CHECKPOINT_EVERY_S = 30.0


Output = Annotated[Path, typer.Option("-o", "--output", help="Policy file to write (.npz).")]
Multiplier = Annotated[float, typer.Option(help="Load of the training days (20 for 8 GPUs).")]
Slack = Annotated[str, typer.Option(help="LOW:HIGH slack of the deadlines.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Days run at once; default: one per core.")]
Device = Annotated[str, typer.Option(help="Where torch computes: auto, cpu or cuda.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint beside the output.")]


@app.command("repartition")
@with_flags(Training)
def repartition(
    to: Output,
    settings: Training,
    gpus: Gpus = "8xa100-40gb",
    placement: Annotated[
        str, typer.Option(help="Placement rule to train with.", autocompletion=complete.placements)
    ] = "shortest-work",
    teacher: Annotated[
        str, typer.Option(help="Rule to imitate first; none: begin from nothing.", autocompletion=complete.repartitions)
    ] = "slice-count",
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Multiplier = 20.0,
    deadline: Slack = "1:1.5",
    threads: Threads = None,
    device: Device = "auto",
    resume: Resume = False,
    json_output: Json = False,
) -> None:
    """Train a mean-field policy: imitate a rule, then improve it by PPO on whole days.

    A checkpoint lies beside the output (.ckpt); Ctrl-C keeps it and the best policy so far. TensorBoard's curves go to
    a folder beside it, where tensorboard is installed.
    """
    with needs_torch():
        from smartmig.sim.mig.batch import Setting
        from smartmig.train.repartition import Trainer
    prepare_place(to)
    cluster, jobs, world = _ground(gpus, None, multiplier, deadline, recut, preempt)
    rule = placement_rule(rule_spec(placement, "--placement"), "--placement")
    teaching = None if teacher == "none" else repartition_rule(rule_spec(teacher, "--teacher"), "--teacher")
    if teaching is not None and type(teaching).control is None:
        raise InputError(f"--teacher: '{teacher}' never re-cuts, there is nothing to imitate")
    computes = _torch_device(device)
    log(f"making {settings.pool + settings.validation_days} days and compiling ...")
    trainer = Trainer(Setting(cluster, rule, world), jobs, settings, teaching, computes, threads)
    run = TrainingRun(trainer, settings.iterations, to, resume, json_output)
    run.go(trainer.imitate, lambda: trainer.export(to, training_command(), placement))
    run.report("validation_et", trainer.best_et, trainer.curve, "updates")


@app.command("placement")
@with_flags(PlacementTraining)
def placement(
    to: Output,
    settings: PlacementTraining,
    gpus: Gpus = "8xa100-40gb",
    layouts: Layouts = None,
    repartition: Annotated[
        str, typer.Option(help="Repartition rule to train with.", autocompletion=complete.repartitions)
    ] = "static",
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Multiplier = 20.0,
    deadline: Slack = "1:1.5",
    threads: Threads = None,
    resume: Resume = False,
    json_output: Json = False,
) -> None:
    """Train a placing policy: find the prices of slices by cross-entropy search on whole days.

    A checkpoint lies beside the output (.ckpt); Ctrl-C keeps it and the best policy so far.
    """
    prepare_place(to)
    cluster, jobs, world = _ground(gpus, layouts, multiplier, deadline, recut, preempt)
    cutting = repartition_rule(rule_spec(repartition, "--repartition"), "--repartition")
    log(f"making {settings.pool + settings.validation_days} days and compiling ...")
    search = PriceSearch(cluster, cutting, world, jobs, settings, threads)
    run = TrainingRun(search, settings.generations, to, resume, json_output)
    run.go(None, lambda: search.export(to, training_command(), repartition))
    run.report("validation_score", search.best_score, search.curve, "rounds")


@app.command("prices")
@with_flags(PriceTraining)
def prices(
    to: Output,
    settings: PriceTraining,
    start: Annotated[str, typer.Option(help="Placing policy to begin with: a file, or a shipped one by name.")],
    gpus: Gpus = "8xa100-40gb",
    layouts: Layouts = None,
    repartition: Annotated[
        str, typer.Option(help="Repartition rule to train with.", autocompletion=complete.repartitions)
    ] = "static",
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Multiplier = 20.0,
    deadline: Slack = "1:1.5",
    threads: Threads = None,
    device: Device = "auto",
    resume: Resume = False,
    json_output: Json = False,
) -> None:
    """Train the network that sets a placing policy's prices from the state of the cluster, by PPO on whole days.

    A checkpoint lies beside the output (.ckpt); Ctrl-C keeps it and the best policy so far.
    """
    with needs_torch():
        from smartmig.train.prices import PriceTrainer
    prepare_place(to)
    begin = weights_of(start)
    cluster, jobs, world = _ground(gpus, layouts, multiplier, deadline, recut, preempt)
    cutting = repartition_rule(rule_spec(repartition, "--repartition"), "--repartition")
    computes = _torch_device(device)
    log(f"making {settings.pool + settings.validation_days} days and compiling ...")
    trainer = PriceTrainer(cluster, cutting, world, jobs, settings, begin, computes, threads)
    run = TrainingRun(trainer, settings.iterations, to, resume, json_output)
    run.go(None, lambda: trainer.export(to, training_command(), repartition))
    run.report("validation_et", trainer.best_et, trainer.curve, "updates")


@app.command("joint")
@with_flags(JointTraining)
def joint(
    to: Output,
    settings: JointTraining,
    start: Annotated[
        Path | None, typer.Option(help="Joint policy to begin with; default: the shipped cuts and prices of the mode.")
    ] = None,
    gpus: Gpus = "8xa100-40gb",
    recut: RecutMode = Recut.paper,
    preempt: Preempt = True,
    multiplier: Multiplier = 20.0,
    deadline: Slack = "1:1.5",
    threads: Threads = None,
    device: Device = "auto",
    resume: Resume = False,
    json_output: Json = False,
) -> None:
    """Train cutting and placing together: cuts by PPO, prices by search, in turn and against one ET.

    A checkpoint lies beside the output (.ckpt); Ctrl-C keeps it and the best pair so far.
    """
    with needs_torch():
        from smartmig.train.joint import JointTrainer
    prepare_place(to)
    cluster, jobs, world = _ground(gpus, None, multiplier, deadline, recut, preempt)
    if start is not None:
        pair = read_policy(start, MEAN_FIELD).weights, read_policy(start, PRICES).weights
    else:
        cuts = read_policy(SHIPPED / shipped_name(len(cluster.gpus), world.drain)).weights
        pair = cuts, weights_of("drain" if world.drain else "paper" if preempt else "tight")
    computes = _torch_device(device)
    log(f"making {2 * (settings.pool + settings.validation_days)} days and compiling ...")
    trainer = JointTrainer(cluster, world, jobs, settings, pair, computes, threads)
    run = TrainingRun(trainer, settings.steps, to, resume, json_output)
    run.go(None, lambda: trainer.export(to, training_command()))
    run.report("validation_et", trainer.best_et, trainer.curve, "steps")


def _ground(
    gpus: str, layouts: str | None, multiplier: float, deadline: str, recut: Recut, preempt: bool
) -> tuple[Cluster, Callable[[int], Jobs], Settings]:
    """Where a policy is trained: the cluster, the jobs of a day by its seed, and how the world behaves."""
    cards = parse_gpus(gpus, "--gpus")
    cluster = Cluster(cards, None if layouts is None else parse_layouts(layouts, cards, "--layouts"))
    day = DiurnalDay(multiplier=multiplier, deadline=parse_deadline(deadline, "--deadline"))
    return cluster, day.jobs, Settings(preempt=preempt, drain=recut is Recut.drain)


def training_command() -> str:
    """The command line that is running, but for how it was resumed."""
    return shlex.join(["smartmig", *(word for word in sys.argv[1:] if word != "--resume")])


@contextmanager
def needs_torch(extra: str = "train") -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"training needs {error.name}: pip install 'smartmig[{extra}]'") from None


def _torch_device(device: str) -> str:
    import torch

    if device not in ("auto", "cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device: got '{device}', allowed are auto, cpu and, where there is one, cuda")
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


Trace = Annotated[str, typer.Option(help="File of whole-GPU jobs (helios, philly, swf, sacct, csv ...).")]
MaxGpus = Annotated[int, typer.Option(min=0, help="Leave out jobs with more GPUs; 0 keeps all.")]
Since = Annotated[str, typer.Option("--from", help="First day of the training part, e.g. 2020-04-01 (UTC).")]
Before = Annotated[str, typer.Option("--to", help="The day after its last.")]
Requests = Annotated[str, typer.Option(help="Made-up requested times where the trace has none, e.g. menu-1h.")]


@app.command("gang")
@with_flags(GangTraining)
def gang(
    to: Output,
    trace: Trace,
    settings: GangTraining,
    nodes: Annotated[str, typer.Option(help="nodes x GPUs, as for simulate.")] = "30x8",
    max_gpus: MaxGpus = 0,
    since: Since = "",
    before: Before = "",
    tune_to: Annotated[str, typer.Option(help="The tuning part goes from --to to the day before this one.")] = "",
    requests: Requests = "",
    threads: Threads = None,
    resume: Resume = False,
    json_output: Json = False,
) -> None:
    """Train the two agents of a whole-GPU cluster: search a rule's numbers, then PPO on both networks.

    With --predictor the run times they expect are written beside the policy. A checkpoint lies beside the output
    (.ckpt); Ctrl-C keeps it and the best agents so far. TensorBoard's curves go to a folder beside it.
    """
    with needs_torch():
        from smartmig.train.gang import GangTrainer
    prepare_place(to)
    if not before or not tune_to:
        raise InputError("--to and --tune-to: training needs the day its part ends, and the day its tuning part ends")
    flags = GangFlags(trace=trace, nodes=nodes, max_gpus=max_gpus, since=since, before=before, requests=requests)
    training, tuning = flags.scenario(), replace(flags, since=before, before=tune_to).scenario()
    if not requests:
        settings = replace(settings, request_seeds=1, validation_seeds=1)
    log("reading the trace, running the baselines and compiling ...")
    trainer = GangTrainer(training.jobs, tuning.jobs, training.cluster(), settings, threads)
    run = TrainingRun(trainer, trainer.total, to, resume, json_output)
    run.go(None, lambda: trainer.export(to, training_command(), nodes))
    run.report("validation_score", trainer.best_score, trainer.curve, "rounds")


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
    write_run_times(to, fit_jobs(jobs), training_command())
    output().print(f"{to}: run times of {sum(len(one) for one in jobs):,} jobs")


class Trainable(Protocol):
    """What can be trained round by round."""

    iteration: int

    def update(self) -> dict[str, float]: ...

    def save(self, path: Path) -> None: ...

    def load(self, path: Path) -> None: ...


class TrainingRun:
    """A trainer at work until all rounds are done or somebody presses Ctrl-C, with checkpoints."""

    def __init__(self, trainer: Trainable, total: int, to: Path, resume: bool, json_output: bool) -> None:
        self.trainer, self.total, self.to, self.json_output = trainer, total, to, json_output
        self.checkpoint = to.with_suffix(".ckpt")
        self.stopped: list[int] = []
        if resume:
            trainer.load(self.checkpoint)

    def go(self, prepare: Callable[[Told], None] | None, export: Callable[[], None]) -> None:
        """`prepare` comes before the rounds, `export` after them, whether they are all done or not."""
        with interruptible() as self.stopped, progress_bar() as tell:
            if prepare is not None:
                prepare(lambda what, done, of, how: tell(f"{what} {how}", done, of))
            self._rounds(tell)
            export()

    def _rounds(self, tell: Progress) -> None:
        saved_s = time.monotonic()
        best = ""
        with _tensorboard(self.to) as board:
            while self.trainer.iteration < self.total and not self.stopped:
                row = self.trainer.update()
                now, validated = (row.get(f"{days}_et", row.get(f"{days}_score")) for days in ("train", "validation"))
                best = best if validated is None else f", {validated:.4f} on validation days"
                what = "ET" if "train_et" in row else "score"
                tell(f"{what} {now:.3f}{best}", self.trainer.iteration, self.total)
                if board is not None:
                    for name, value in row.items():
                        board.add_scalar(name, value, self.trainer.iteration)
                if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
                    self.trainer.save(self.checkpoint)
                    saved_s = time.monotonic()
        self.trainer.save(self.checkpoint)

    def report(self, name: str, score: float, curve: list[dict[str, float]], rounds: str) -> None:
        """Print how it went; ends the program where somebody stopped it."""
        n_rounds = self.trainer.iteration
        if self.json_output:
            print_json({name: score, rounds: n_rounds, "policy_file": str(self.to), "curve": curve})
        else:
            what = "ET" if name.endswith("et") else "score"
            output().print(f"{self.to}: {what} {score:.4f} on validation days after {n_rounds} {rounds}")
        if self.stopped:
            log(f"stopped; --resume goes on from {self.checkpoint}")
            raise SystemExit(STOPPED)


@contextmanager
def interruptible() -> Iterator[list[int]]:
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
