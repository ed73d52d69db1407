"""What a rule's plain twin sees: ordinary Python objects, looked at one by one.

The twins say what each rule means in the fewest words; the reference simulator runs them, and the compiled rules must
agree with them on every cluster and job set.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smartmig.policy.view import SLOTS
from smartmig.types import Floats, Ints


@dataclass
class PlainSlice:
    """One MIG instance."""

    gpu: int
    start: int
    size: int
    slice_class: int
    job: int | None = None
    """who is on it, within the present decision pass"""
    end_s: float = 0.0
    """when that job will finish"""
    draining: bool = False
    """takes no new job: it will be destroyed"""

    @property
    def slot(self) -> int:
        return self.gpu * SLOTS + self.start


@dataclass
class PlainGpu:
    """One card and its instances, left to right."""

    index: int
    model: int
    n_compute: int
    watts: Floats
    slices: list[PlainSlice] = field(default_factory=list)
    down: bool = False

    @property
    def usable(self) -> list[PlainSlice]:
        return [] if self.down else [s for s in self.slices if not s.draining]

    @property
    def busy(self) -> int:
        return sum(s.size for s in self.slices if s.job is not None)

    @property
    def mean_size(self) -> float:
        return sum(s.size for s in self.usable) / len(self.usable) if self.usable else 0.0


@dataclass
class PlainView:
    """The cluster at one moment, as a rule may see it."""

    now_s: float
    gpus: list[PlainGpu]
    arrive_s: Floats
    deadline_s: Floats
    run_s: Floats  # (n, n_classes)
    whole_s: Floats  # (n,)
    single_s: Floats  # (n,)
    group: Ints  # (n,)
    left: list[float]  # (n,) share still to do
    in_system: list[int]
    """jobs that have arrived and are not done"""
    seed: int
    draws: int = 0
    booked_s: dict[int, float] = field(default_factory=dict)
    """slot -> end of its last booking; scratch of rules that plan ahead within a pass"""

    def time_on(self, job: int, piece: PlainSlice) -> float:
        return float(self.left[job] * self.run_s[job, piece.slice_class])

    def tardiness(self, job: int, piece: PlainSlice) -> float:
        return max(0.0, self.now_s + self.time_on(job, piece) - float(self.deadline_s[job]))

    def slices(self, job: int) -> list[PlainSlice]:
        """Every slice that may take jobs and fits this one, busy or not, by slot."""
        return [s for g in self.gpus for s in g.usable if self.run_s[job, s.slice_class] != float("inf")]

    def free(self, job: int) -> list[PlainSlice]:
        """The free ones of these."""
        return [s for s in self.slices(job) if s.job is None]
