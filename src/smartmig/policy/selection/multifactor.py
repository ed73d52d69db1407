"""A priority made of several factors, after Slurm's multifactor plug-in.

Slurm, priority/multifactor: weighted sum of factors between 0 and 1. Age grows to 1 within `max_age_s`; size is the
share of the cluster; fair share is 2^(-use / share), with use decayed by half every `half_life_s` (Slurm's classic
formula) and every user entitled to the same share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import called_kernel, kernel
from smartmig.policy.gang_plain import PlainGang
from smartmig.policy.gang_view import JobArrays, State, World, usage
from smartmig.policy.selection.rule import Ordered
from smartmig.policy.view import Kernel


@called_kernel
def fair_share(world: World, state: State, user: int) -> float:
    n_users = state.user.size - 1
    everyone = usage(world, state, n_users)
    use = usage(world, state, user) / everyone if everyone > 0.0 else 0.0
    return 2.0 ** (-use * n_users)


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int) -> float:
    spec = jobs.spec[job]
    age_s = min(state.now[0].time_s - spec.submit_s, world.selection_knobs[3])
    size = spec.n_gpus / world.n_gpus
    # Use changes with time only, and a user has many jobs in the queue.
    if state.user[spec.user].factor_s != state.now[0].time_s:
        state.user[spec.user].factor = fair_share(world, state, spec.user)
        state.user[spec.user].factor_s = state.now[0].time_s
    fair = state.user[spec.user].factor
    return -(world.selection_knobs[0] * age_s + world.selection_knobs[1] * size + world.selection_knobs[2] * fair)


@dataclass(frozen=True)
class Multifactor(Ordered):
    """Most weighted age + size + fair share first, as Slurm's multifactor priority."""

    age_weight: float = 1.0
    size_weight: float = 0.5
    fair_weight: float = 1.0
    max_age_s: float = 7 * 86_400.0
    """waiting longer than this counts no more"""
    half_life_s: float = 7 * 86_400.0
    """after which past use counts half"""

    key: ClassVar[Kernel | None] = score

    @property
    def usage_half_life_s(self) -> float:
        return self.half_life_s

    def knobs(self) -> tuple[float, ...]:
        return (self.age_weight / self.max_age_s, self.size_weight, self.fair_weight, self.max_age_s)

    def plain_key(self, view: PlainGang, job: int) -> float:
        age_s = min(view.now_s - float(view.jobs.submit_s[job]), self.max_age_s)
        size = int(view.jobs.n_gpus[job]) / view.n_gpus
        everyone = view.everyone.usage(view.now_s, self.half_life_s)
        mine = view.users[view.jobs.user[job]].usage(view.now_s, self.half_life_s)
        use = mine / everyone if everyone > 0 else 0.0
        fair = 2.0 ** (-use * len(view.users))
        return -(self.age_weight / self.max_age_s * age_s + self.size_weight * size + self.fair_weight * fair)
