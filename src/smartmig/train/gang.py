"""Training the two agents of a whole-GPU cluster: search a hand-made rule's numbers, then PPO on both networks.

The search (cross-entropy) runs the whole training part under every candidate, which takes less than a second, and so
finds what no gradient does: how many nodes to keep free, and for whom. PPO starts from there. Each stretch of the trace
is played several times with different draws (*siblings*); an agent's advantage at a moment is what its stretch cost
from then on, less what it cost the siblings: they saw the same jobs. Both agents get the same return.

A second of waiting costs what it costs on average for jobs of its cell (`RunTimes.urgency`): true run times would bring
in the noise of jobs that ran for seconds, and nothing an agent could know.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smartmig.errors import InputError
from smartmig.hardware.nodes import NodeCluster
from smartmig.policy import gang_encoding
from smartmig.policy.allocation.best_fit import BestFit
from smartmig.policy.gang_encoding import DAY_S, N_CLUSTER, N_SIZES, cells
from smartmig.policy.gang_network import (
    AT_AGE,
    AT_LENT,
    AT_NEED_LARGE,
    AT_ORDER,
    AT_PATIENCE,
    AT_QUIET,
    AT_RELIEF,
    N_RULE,
    deaf_to,
    hand_made,
)
from smartmig.policy.policy_file import GANG, About, PolicyFile, write_policy
from smartmig.policy.run_times import RunTimes
from smartmig.policy.selection.fcfs import Fcfs
from smartmig.policy.selection.sjf import Sjf
from smartmig.sim.gang.batch import Stretches, Tape, cost_to_go
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.train.gang_network import GangNet, choice_log_probability
from smartmig.train.ppo import read_checkpoint, write_checkpoint
from smartmig.train.run_times import fit_jobs, write_run_times
from smartmig.train.settings import GangTraining
from smartmig.types import Floats, GangJobs
from smartmig.workload.order import taken

KEEP = 0.3
"""of the last round's mean and spread"""
LEAST_SPREAD = 0.01
GRID_S = 60.0
WARM_DAYS = 2.0
MINIBATCH = 2048
OUTLIER = 5.0
"""Advantages beyond so many standard deviations are cut off: accidents of a crowded hour."""
SMOOTHING = 0.8
"""Of the weights that are validated and kept, per update."""
LONGEST_S = 6.75 * DAY_S
"""Who waits longer counts as starved in training: a quarter of a day before it is true."""
RECORDS = 6000


def start(goal: str = "slowdown") -> Floats:
    """The rule the search begins with: small jobs leave idle nodes whole, and, for the slowdown, one is kept for short
    jobs while such come. Its numbers come from a longer search on Helios Venus, April to July 2020 (docs/gang.md)."""
    if goal == "wait":
        return hand_made(
            order=(1.28, 0.32, 0.59, 0.21, -0.3, 0.0),
            age=(0.27, 0.58, 3.38),
            need_large=(-0.75, -0.52, -0.98, -0.7),
            need_small=(-0.34, 1.3, 1.33, 0.83),
            relief=(0.08, 0.45),
            quiet=(-0.05, 0.16, 0.43),
            patience=(0.65, 0.51, 0.13, 0.4),
            lent=0.27,
        )
    return hand_made(
        order=(1.3, 0.18, 0.37, 0.1, -0.27, 0.0),
        age=(0.4, 0.57, 4.24),
        need_large=(-0.5, 0.14, 0.63, 0.79),
        need_small=(-0.43, 1.68, 1.56, 1.23),
        relief=(0.02, 0.11),
        quiet=(0.42, 0.35, 0.22),
        patience=(0.56, 0.55, 0.18, 0.48),
        lent=0.27,
    )


def first_spread() -> Floats:
    spread = np.zeros(N_RULE)
    spread[AT_ORDER] = 0.1
    spread[AT_ORDER + 1 : AT_ORDER + N_SIZES] = 0.15
    spread[AT_AGE : AT_AGE + 3] = (0.1, 0.15, 0.5)
    spread[AT_NEED_LARGE:AT_RELIEF] = 0.25
    spread[AT_RELIEF:AT_QUIET] = 0.1
    spread[AT_QUIET : AT_QUIET + 3] = (0.2, 0.2, 0.1)
    spread[AT_PATIENCE:AT_LENT] = 0.3
    spread[AT_LENT] = 0.1
    return spread


class Judge:
    """What a set of waiting times is worth, against shortest-request-first and FCFS with EASY on the same jobs."""

    def __init__(self, jobs: GangJobs, cluster: NodeCluster, times: RunTimes, goal: str, slack: float) -> None:
        self.urgency = times.urgency[cells(jobs.limit_s, jobs.n_gpus)]
        self.goal, self.slack = goal, slack
        sjf, fcfs = (
            simulate(jobs, cluster, GangPolicy(rule, BestFit(), Backfill.easy)).start_s - jobs.submit_s
            for rule in (Sjf(), Fcfs())
        )
        self.slowdown, self.wait_s = self._slowdown(sjf), max(float(sjf.mean()), 1.0)
        self.worst_s = max(_worst(fcfs), 3600.0)

    def _slowdown(self, wait_s: Floats) -> float:
        """Expected: a job's run time is that of its cell."""
        return 1.0 + float((wait_s * self.urgency).mean())

    def score(self, wait_s: Floats) -> float:
        """Lower is better; 0 is what shortest-request-first does."""
        slower = float(np.log(self._slowdown(wait_s) / self.slowdown))
        longer = float(np.log((wait_s.mean() + 1.0) / (self.wait_s + 1.0)))
        unfair = max(0.0, float(np.log(_worst(wait_s) / self.worst_s)))
        starved = float((wait_s > LONGEST_S).sum())
        if self.goal == "wait":
            return longer + 0.1 * max(slower, -0.5) + 0.8 * unfair + 0.02 * starved
        return slower + 0.5 * longer + 4.0 * max(0.0, longer - self.slack) + 0.8 * unfair + 0.02 * starved

    def rate(self) -> Floats:
        """(n,) what a second of each job's waiting costs, over what all cost per job under shortest-request-first."""
        by_wait = np.full(self.urgency.size, 1.0 / self.wait_s)
        by_slowdown = self.urgency / self.slowdown
        return by_wait + 0.1 * by_slowdown if self.goal == "wait" else by_slowdown + 2.0 * by_wait


def _worst(wait_s: Floats) -> float:
    return float(np.sort(wait_s)[-max(1, wait_s.size // 100) :].mean()) + 1.0


def squeezed(jobs: GangJobs, factor: float) -> GangJobs:
    """The same jobs in less time."""
    return replace(jobs, submit_s=jobs.submit_s * factor)


def cut(jobs: GangJobs, from_s: float, days: float) -> GangJobs:
    """The jobs of a stretch of time; time of day and of week stay what they were."""
    mine = (jobs.submit_s >= from_s) & (jobs.submit_s < from_s + days * DAY_S)
    part = taken(jobs, mine)
    week_s = float(from_s // (7 * DAY_S) * 7 * DAY_S)
    return replace(part, submit_s=part.submit_s - week_s, origin_s=part.origin_s + week_s)


class GangTrainer:
    """A training run that can be stopped after any round and goes on exactly as if it had not been."""

    def __init__(
        self,
        jobs: Callable[[int], GangJobs],
        tuning: Callable[[int], GangJobs],
        cluster: NodeCluster,
        training: GangTraining,
        n_threads: int | None = None,
    ) -> None:
        """`jobs`, `tuning`: the training and the tuning part with the requests of a seed."""
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
        self.training, self.cluster, self.n_threads = training, cluster, n_threads
        self.whole = [jobs(seed) for seed in range(training.request_seeds)]
        first = self.whole[0]
        if float(first.submit_s[-1] - first.submit_s[0]) < training.stretch_days * DAY_S:
            raise InputError(f"the training part is shorter than --stretch-days {training.stretch_days:g}")
        self.times = fit_jobs(self.whole)
        self.whole += [squeezed(one, training.heavy) for one in self.whole]
        self.search = self._stretches(self.whole)
        self.judges: dict[int, Judge] = {}
        validation = [tuning(seed) for seed in range(training.validation_seeds)]
        self.validation = self._stretches(validation)
        self.validators = [self._judge(one) for one in validation]
        self.rng = np.random.default_rng(training.seed)
        self.torch_rng = torch.Generator().manual_seed(training.seed)
        self.net = GangNet(training.seed)
        self.optimiser = torch.optim.Adam([p for p in self.net.parameters() if p.requires_grad], training.learning_rate)
        self.mean, self.spread = start(training.goal)[:N_RULE], first_spread()
        self.iteration = 0
        self.best_score = np.inf
        self.best = self.smooth = start(training.goal)
        self.curve: list[dict[str, float]] = []
        self._validate(self.best)

    @property
    def total(self) -> int:
        return self.training.generations + self.training.updates

    def _stretches(self, jobs: list[GangJobs]) -> Stretches:
        times = self.times if self.training.predictor else None
        guard = self.training.guard_days * DAY_S, self.training.guard_pause_s
        return Stretches(jobs, self.cluster, times, guard, self.n_threads)

    def _judge(self, jobs: GangJobs) -> Judge:
        return Judge(jobs, self.cluster, self.times, self.training.goal, self.training.wait_slack)

    def update(self) -> dict[str, float]:
        """One round of the search, or one PPO update."""
        began = time.perf_counter()
        searching = self.iteration < self.training.generations
        row = self._search() if searching else self._improve()
        self.iteration += 1
        row = {"iteration": float(self.iteration), **row, "seconds": time.perf_counter() - began}
        last = self.iteration in (self.training.generations, self.total)
        if last or self.iteration % self.training.validate_every == 0:
            row["validation_score"] = self._validate(self._rule(self.mean) if searching else self.smooth)
        self.curve.append(row)
        return row

    def _rule(self, numbers: Floats) -> Floats:
        weights = start()
        weights[:N_RULE] = numbers
        return weights

    def _search(self) -> dict[str, float]:
        training = self.training
        noise = self.rng.standard_normal((training.candidates, N_RULE))
        noise[0] = 0.0
        numbers = self.mean + self.spread * noise
        seed = self.iteration % training.request_seeds
        scores = np.zeros(training.candidates)
        for at in (seed, seed + training.request_seeds):
            if at not in self.judges:
                self.judges[at] = self._judge(self.whole[at])
            rules = [self._rule(one) for one in numbers]
            waits = self.search.waits([at] * training.candidates, rules)
            scores += [self.judges[at].score(wait_s) / 2 for wait_s in waits]
        best = np.argsort(scores, kind="stable")[: training.elite]
        self.mean = KEEP * self.mean + (1 - KEEP) * numbers[best].mean(axis=0)
        self.spread = KEEP * self.spread + (1 - KEEP) * (numbers[best].std(axis=0) + LEAST_SPREAD * (self.spread > 0))
        return {"train_score": float(scores[0]), "elite_score": float(scores[best].mean())}

    def _improve(self) -> dict[str, float]:
        training = self.training
        if self.iteration == training.generations:
            # From the best rule of the search, with networks that add nothing yet.
            self.net.start_from(self.best)
            self.smooth = self.net.vector()
        families = [self._stretch() for _ in range(training.families)]
        played = self._stretches(families)
        which = [at for at in range(training.families) for _ in range(training.siblings)]
        seeds = [self.iteration * 1000 + at + 1 for at in range(len(which))]
        from_s = WARM_DAYS * DAY_S + min(one.submit_s[0] for one in families)
        tape = Tape(RECORDS, RECORDS, training.kept_share, from_s, training.temperature)
        runs = played.play(which, self.net.vector(), seeds, tape)
        gains: tuple[list[Floats], list[Floats]] = ([], [])
        scores = []
        for family, jobs in enumerate(families):
            judge = self._judge(jobs)
            mine = runs[family * training.siblings : (family + 1) * training.siblings]
            curves = [cost_to_go(jobs, run.start_s, judge.rate(), training.horizon_s, GRID_S) for run in mine]
            mean = np.mean([to_go for _, to_go in curves], axis=0)
            scores += [judge.score(run.start_s - jobs.submit_s) for run in mine]
            for run, (grid_s, to_go) in zip(mine, curves, strict=True):
                better = (mean - to_go) * training.siblings / (training.siblings - 1)
                gains[0].append(np.interp(run.slot_s, grid_s, better))
                gains[1].append(np.interp(run.kind_s, grid_s, better))
        row = self._learn(
            torch.tensor(np.concatenate([run.slots for run in runs])),
            torch.tensor(np.concatenate([run.kinds for run in runs])),
            *(_standard(np.concatenate(gain)) for gain in gains),
        )
        self.smooth = SMOOTHING * self.smooth + (1 - SMOOTHING) * self.net.vector()
        return {"train_score": float(np.mean(scores)), **row}

    def _stretch(self) -> GangJobs:
        whole = self.whole[int(self.rng.integers(len(self.whole)))]
        days = self.training.stretch_days
        last_s = float(whole.submit_s[-1]) - days * DAY_S
        return cut(whole, float(np.floor(self.rng.uniform(0, max(last_s, 0.0)) / DAY_S)) * DAY_S, days)

    def _learn(self, slots: Tensor, kinds: Tensor, slot_gain: Tensor, kind_gain: Tensor) -> dict[str, float]:
        """PPO on both agents' tapes."""
        training = self.training
        done = (self.iteration - training.generations) / max(1, training.updates)
        for group in self.optimiser.param_groups:
            group["lr"] = training.learning_rate * (1 - 0.9 * done)
        moved: dict[str, list[float]] = {"selector": [], "allocator": []}
        entropies = {"selector": 0.0, "allocator": 0.0}
        agents = (("selector", slots, slot_gain, self.net.slots), ("allocator", kinds, kind_gain, self.net.kinds))
        for _ in range(training.epochs):
            for name, records, gain, scores_of in agents:
                if moved[name] and moved[name][-1] > training.kl_limit:
                    continue
                order = torch.randperm(len(records), generator=self.torch_rng)
                for batch in order.split(MINIBATCH):
                    log_p, entropy = choice_log_probability(
                        scores_of(records[batch]), records[batch], training.temperature
                    )
                    log_ratio = log_p - records[batch, 3]
                    ratio = log_ratio.exp()
                    clipped = ratio.clamp(1 - training.clip, 1 + training.clip)
                    surrogate = torch.minimum(ratio * gain[batch], clipped * gain[batch]).mean()
                    loss = -surrogate - training.entropy * (1 - done) * entropy
                    self.optimiser.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                    self.optimiser.step()
                    moved[name].append(float(((ratio - 1) - log_ratio).mean().detach()))
                    entropies[name] = float(entropy.detach())
        return {
            **{f"{name}_kl": float(np.mean(values or [0.0])) for name, values in moved.items()},
            **{f"{name}_entropy": value for name, value in entropies.items()},
            "decisions": float(len(slots) + len(kinds)),
        }

    def _validate(self, weights: Floats) -> float:
        which = range(self.training.validation_seeds)
        waits = self.validation.waits(which, [weights] * len(which))
        score = float(np.mean([judge.score(wait_s) for judge, wait_s in zip(self.validators, waits, strict=True)]))
        if score < self.best_score:
            self.best_score, self.best = score, weights.copy()
        return score

    def save(self, path: Path) -> None:
        """A checkpoint, written atomically."""
        state = {
            "training": asdict(self.training),
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "rng": self.rng.bit_generator.state,
            "torch_rng": self.torch_rng.get_state(),
            "iteration": self.iteration,
            "best_score": self.best_score,
            "arrays": {name: torch.tensor(getattr(self, name)) for name in ("mean", "spread", "best", "smooth")},
            "curve": self.curve,
        }
        write_checkpoint(path, state)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint of the same training; raises `InputError` for another's."""
        state = read_checkpoint(path, "cpu", asdict(self.training), may_differ="updates")
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rng.bit_generator.state = state["rng"]
        self.torch_rng.set_state(state["torch_rng"])
        self.iteration, self.best_score, self.curve = state["iteration"], state["best_score"], state["curve"]
        for name, values in state["arrays"].items():
            setattr(self, name, values.numpy())

    def export(self, path: Path, command: str, nodes: str) -> None:
        """The best agents so far, as a policy file; the run times they expect, if any, as another beside it."""
        predictor = ""
        if self.training.predictor:
            times = path.with_name(f"{path.stem}-run-times.npz")
            write_run_times(times, self.times, command)
            predictor = times.name
        about = About(
            kind=GANG,
            encoding=gang_encoding.VERSION,
            gpus=(nodes,),
            placement="",
            preempt=False,
            drain=False,
            command=command,
            settings={**asdict(self.training), "run_times": predictor},
            scores={"validation_score": self.best_score, "rounds": float(self.iteration)},
        )
        ranges = self._ranges()
        # A network has learned nothing of what never moved, such as a second GPU model: let it not look.
        still = (ranges[:, :N_CLUSTER] == 0.0).all(axis=0)
        ranges[0, :N_CLUSTER][still], ranges[1, :N_CLUSTER][still] = -np.inf, np.inf
        write_policy(path, PolicyFile(about, deaf_to(self.best, still), ranges))

    def _ranges(self) -> Floats:
        """(2, N_OUTLINE) of what the best agents saw of the training part, as it came and squeezed."""
        low, high = zip(*(self.search.outlines(at, self.best) for at in (0, len(self.whole) // 2)), strict=True)
        return np.stack([np.min(low, axis=0), np.max(high, axis=0)])


def _standard(gain: Floats) -> Tensor:
    """Around 0, spread 1, without outliers."""
    usual = np.clip(gain / (gain.std() + 1e-9), -OUTLIER, OUTLIER)
    return torch.tensor(usual - usual.mean(), dtype=torch.float32)
