"""The settings of training runs; apart from the trainers, so that the command line knows its flags without torch."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.errors import InputError


def _check_least(settings: object, **least_of: int) -> None:
    for name, least in least_of.items():
        if getattr(settings, name) < least:
            raise InputError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(settings, name)}")


@dataclass(frozen=True)
class Ppo:
    """What all PPO trainers are told."""

    iterations: int = 200
    """PPO updates"""
    days: int = 64
    """days played per update, siblings included"""
    siblings: int = 8
    """times each day is played with different draws"""
    pool: int = 384
    """different training days"""
    horizon_s: float = 14_400.0
    """costs this far ahead weigh 1/e; a shorter one teaches to leave work for later"""
    learning_rate: float = 5e-4
    """at the beginning; falls to a tenth"""
    epochs: int = 2
    """passes over an update's sample"""
    sample_share: float = 0.3
    """of the decisions played, drawn anew for every pass"""
    clip: float = 0.2
    """PPO's bound on how far a probability may move in one update"""
    kl_limit: float = 0.05
    """an update stops once the policy moved this far"""
    validation_days: int = 40
    """days the best policy is chosen on"""
    validate_every: int = 10
    """updates between two looks at them"""
    seed: int = 0
    """of weights and draws"""

    def __post_init__(self) -> None:
        _check_least(self, iterations=0, days=2, siblings=2, pool=1, epochs=1)
        if self.days % self.siblings:
            raise InputError(f"--days must be a multiple of --siblings ({self.siblings}), got {self.days}")
        if self.pool < self.days // self.siblings:
            raise InputError(f"--pool must hold at least {self.days // self.siblings} days, got {self.pool}")
        if not 0 < self.sample_share <= 1:
            raise InputError(f"--sample-share must lie in (0, 1], got {self.sample_share:g}")


@dataclass(frozen=True)
class Training(Ppo):
    """How a mean-field policy is trained."""

    entropy: float = 0.002
    """reward for undecided rows at the beginning; falls to 0"""
    top: int = 3
    """entries of a row that are sampled from (S3)"""
    events_per_gpu: float = 0.5
    """events between two decisions, per GPU; fewer and weightier ones than in use are easier to learn from"""
    teacher_days: int = 64
    """days of the teacher to imitate first; 0: none"""
    teacher_epochs: int = 12
    """passes over them"""


@dataclass(frozen=True)
class PlacementTraining:
    """How the prices of a placing policy are found: by cross-entropy search over whole days."""

    generations: int = 60
    """rounds of the search"""
    candidates: int = 32
    """sets of prices tried in each"""
    elite: int = 8
    """of these, the best shape the next round"""
    days: int = 12
    """days each is tried on, the same for all of a round"""
    pool: int = 128
    """different training days"""
    spread: float = 0.5
    """of the logarithms at the beginning; those of waiting and of the queue's order begin with three times as much"""
    late_weight: float = 0.0
    """what a late job costs beside ET, per share of all jobs"""
    validation_days: int = 40
    """days the best prices are chosen on"""
    validate_every: int = 5
    """rounds between two looks at them"""
    seed: int = 0
    """of the draws"""

    def __post_init__(self) -> None:
        _check_least(self, generations=0, candidates=4, elite=2, days=1, pool=1)
        if self.elite > self.candidates:
            raise InputError(f"--elite must be at most --candidates ({self.candidates}), got {self.elite}")
        if self.days > self.pool:
            raise InputError(f"--days must be at most --pool ({self.pool}), got {self.days}")
        if not self.spread > 0:
            raise InputError(f"--spread must be above 0, got {self.spread:g}")


@dataclass(frozen=True)
class PriceTraining(Ppo):
    """How the network that sets prices is trained by PPO, from prices that are there already."""

    every_events: int = 8
    """events between two price lists"""
    noise: float = 0.15
    """of the logarithms of the prices"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, every_events=1)
        if not self.noise > 0:
            raise InputError(f"--noise must be above 0, got {self.noise:g}")


@dataclass(frozen=True)
class JointTraining:
    """How cuts and prices are trained together: in turn, each with what the other has become, against one ET."""

    rounds: int = 2
    """turns of both"""
    cut_updates: int = 80
    """PPO updates of the cuts in each turn"""
    price_rounds: int = 15
    """rounds of the search for prices in each turn"""
    days: int = 64
    """days played per update of the cuts, siblings included"""
    siblings: int = 8
    """times each of them is played with different draws"""
    pool: int = 384
    """different training days"""
    learning_rate: float = 3e-4
    """of the cuts, at the beginning; falls to a tenth"""
    epochs: int = 3
    """passes over an update's decisions"""
    candidates: int = 32
    """price lists tried in each round"""
    elite: int = 8
    """of these, the best shape the next round"""
    price_days: int = 12
    """days each list is tried on"""
    spread: float = 0.3
    """of the logarithms of the prices at the beginning of each turn"""
    validation_days: int = 40
    """days the best pair is chosen on"""
    validate_every: int = 10
    """updates between two looks at them; a search looks twice as often"""
    seed: int = 0
    """of weights and draws"""

    def __post_init__(self) -> None:
        _check_least(self, rounds=1, cut_updates=1, price_rounds=1)
        self.cuts()
        self.prices()

    @property
    def steps(self) -> int:
        """updates and rounds in all"""
        return self.rounds * (self.cut_updates + self.price_rounds)

    def cuts(self) -> Training:
        return Training(
            iterations=self.rounds * self.cut_updates,
            days=self.days,
            siblings=self.siblings,
            pool=self.pool,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            sample_share=1.0,
            teacher_days=0,
            validation_days=self.validation_days,
            validate_every=self.validate_every,
            seed=self.seed,
        )

    def prices(self) -> PlacementTraining:
        return PlacementTraining(
            generations=self.rounds * self.price_rounds,
            candidates=self.candidates,
            elite=self.elite,
            days=self.price_days,
            pool=self.pool,
            spread=self.spread,
            validation_days=self.validation_days,
            validate_every=max(1, self.validate_every // 2),
            seed=self.seed,
        )


@dataclass(frozen=True)
class GangTraining:
    """How the two agents of a whole-GPU cluster are trained: a search over a rule's numbers, then PPO on both."""

    goal: str = "slowdown"
    """what to make small: slowdown (mean bounded slowdown, waiting kept in check) or wait (mean waiting)"""
    generations: int = 10
    """rounds of the search"""
    candidates: int = 12
    """rules tried in each"""
    elite: int = 4
    """of these, the best shape the next round"""
    updates: int = 20
    """PPO updates after the search"""
    families: int = 4
    """stretches of the trace played per update"""
    siblings: int = 8
    """times each is played with different draws"""
    stretch_days: float = 10.0
    """length of one; the first two days only fill the cluster"""
    request_seeds: int = 4
    """different draws of made-up requests"""
    heavy: float = 0.91
    """half of all jobs come with their gaps this much shorter: heavier load than the training part has"""
    wait_slack: float = 0.0
    """goal slowdown: mean waiting may be this much above that of shortest-request-first with EASY, as a share"""
    horizon_s: float = 14_400.0
    """costs this far ahead weigh 1/e"""
    learning_rate: float = 1e-3
    """at the beginning; falls to a tenth"""
    epochs: int = 4
    """passes over an update's tape"""
    kept_share: float = 0.25
    """of the decisions played go on the tape"""
    temperature: float = 0.02
    """how freely the agents draw while they learn; they decide without draws"""
    clip: float = 0.2
    """PPO's bound on how far a probability may move in one update"""
    entropy: float = 0.0
    """reward for undecided choices at the beginning; falls to 0"""
    kl_limit: float = 0.03
    """an update stops once the agents moved this far"""
    guard_days: float = 6.5
    """of the starvation guard while training"""
    guard_pause_s: float = 3600.0
    """its pause"""
    predictor: bool = True
    """let the agents see expected run times, fitted on the training part"""
    validate_every: int = 4
    """rounds or updates between two looks at the tuning part"""
    validation_seeds: int = 4
    """request seeds the best agents are chosen on"""
    seed: int = 0
    """of weights and draws"""

    def __post_init__(self) -> None:
        if self.goal not in ("slowdown", "wait"):
            raise InputError(f"--goal: got '{self.goal}', allowed are slowdown and wait")
        _check_least(self, generations=0, candidates=4, elite=2, updates=0, families=1, siblings=2, epochs=1)
        _check_least(self, request_seeds=1, validate_every=1, validation_seeds=1)
        if self.elite > self.candidates:
            raise InputError(f"--elite must be at most --candidates ({self.candidates}), got {self.elite}")
        for name in ("kept_share", "heavy"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"--{name.replace('_', '-')} must lie in (0, 1], got {getattr(self, name):g}")
        for name in ("stretch_days", "horizon_s", "guard_days", "learning_rate", "temperature"):
            if not getattr(self, name) > 0:
                raise InputError(f"--{name.replace('_', '-')} must be above 0, got {getattr(self, name):g}")


@dataclass(frozen=True)
class StepTraining:
    """How a policy that places one job a step is trained; as S1 has it unless said otherwise."""

    steps: int = 500_000
    """placings learned from"""
    observation: str = "s1"
    """what is seen: s1 or ours"""
    reward: str = "s1"
    """s1 (every placing, and the day's ET at its end), final (the latter only) or et (what each step cost)"""
    wait: bool = False
    """whether a job that fits a free slice may wait"""
    layers: str = "256,256,128"
    """widths of the hidden layers, of actor and critic each"""
    algorithm: str = "ppo"
    """ppo (clipping), kl (no clipping: an update ends where it has gone too far), grpo (siblings, no critic) or dqn"""
    learning_rate: float = 3e-4
    """at the beginning"""
    last_learning_rate: float = 1e-5
    """at the end, linear in between"""
    entropy: float = 0.02
    """weight of the entropy at the beginning"""
    last_entropy: float = 0.001
    """at the end, linear in between"""
    clip: float = 0.15
    """of the probability ratio"""
    batch: int = 4096
    """placings in a minibatch"""
    epochs: int = 10
    """passes over an update's placings"""
    update_steps: int = 16_384
    """placings between two updates"""
    lanes: int = 64
    """days under way at once"""
    target_kl: float = 0.02
    """where an update of `kl` ends"""
    siblings: int = 8
    """lanes with the same day at the same time, for `grpo`"""
    gamma: float = 0.99
    """discount per placing"""
    pool: int = 64
    """different training days"""
    seed: int = 0
    """of everything drawn"""

    def __post_init__(self) -> None:
        for name, allowed in (
            ("observation", ("ours", "s1")),
            ("reward", ("et", "s1", "final")),
            ("algorithm", ("ppo", "kl", "grpo", "dqn")),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name}: got '{getattr(self, name)}', allowed are {', '.join(allowed)}")
        _check_least(self, steps=1, batch=1, epochs=1, update_steps=1, lanes=1, siblings=1, pool=1)
        if not all(width.strip().isdigit() and int(width) > 0 for width in self.layers.split(",")):
            raise InputError(f"layers: got '{self.layers}', needed are widths such as 256,256,128")

    @property
    def widths(self) -> list[int]:
        return [int(width) for width in self.layers.split(",")]

    def at(self, steps: int) -> tuple[float, float]:
        """Learning rate and weight of the entropy after so many steps."""
        share = min(1.0, steps / self.steps)
        rate = self.learning_rate + share * (self.last_learning_rate - self.learning_rate)
        return rate, self.entropy + share * (self.last_entropy - self.entropy)
