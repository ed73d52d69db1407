"""The settings of training runs; apart from the trainers, so that the command line knows its flags without torch."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.errors import InputError


@dataclass(frozen=True)
class Training:
    """How a mean-field policy is trained."""

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
    entropy: float = 0.002
    """reward for undecided rows at the beginning; falls to 0"""
    kl_limit: float = 0.05
    """an update stops once the policy moved this far"""
    top: int = 3
    """entries of a row that are sampled from (S3)"""
    events_per_gpu: float = 0.5
    """events between two decisions, per GPU; fewer and weightier ones than in use are easier to learn from"""
    teacher_days: int = 64
    """days of the teacher to imitate first; 0: none"""
    teacher_epochs: int = 12
    """passes over them"""
    validation_days: int = 40
    """days the best policy is chosen on"""
    validate_every: int = 10
    """updates between two looks at them"""
    seed: int = 0
    """of weights and draws"""

    def __post_init__(self) -> None:
        for name, least in (("iterations", 0), ("days", 2), ("siblings", 2), ("pool", 1), ("epochs", 1)):
            if getattr(self, name) < least:
                raise InputError(f"--{name} must be at least {least}, got {getattr(self, name)}")
        if self.days % self.siblings:
            raise InputError(f"--days must be a multiple of --siblings ({self.siblings}), got {self.days}")
        if self.pool < self.days // self.siblings:
            raise InputError(f"--pool must hold at least {self.days // self.siblings} days, got {self.pool}")
        if not 0 < self.sample_share <= 1:
            raise InputError(f"--sample-share must lie in (0, 1], got {self.sample_share:g}")
