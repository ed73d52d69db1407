"""Small runs worked out by hand, on the fast engine and on its plain twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.hardware.cuts import CutTable
from smartmig.jit import kernel
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.repartition.twice_daily import TwiceDaily
from smartmig.policy.view import JobArrays, Kernel, State, World, copy_state
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED
from smartmig.sim.mig.reference import simulate_plainly
from smartmig.sim.mig.run import Cluster, cuts_of, open_gpus, simulate, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats, Jobs, Run
from smartmig.workload.diurnal import DiurnalDay
from strategies import policies

Simulate = Callable[..., Run]
ENGINES = pytest.mark.parametrize("engine", [simulate, simulate_plainly])
LINEAR = np.array([1, 2, 3, 4, 7])


def make_jobs(*rows: tuple[float, float, float], memory_gb: float = 0.0) -> Jobs:
    """(arrival, deadline, run time on 1g), linear in the slice size."""
    table = np.array(rows, dtype=float)
    n = len(rows)
    run_s = table[:, 2:3] / LINEAR
    return Jobs(np.arange(n).astype(str), table[:, 0], table[:, 1], run_s, np.full(n, ""), np.full(n, memory_gb))


def one_gpu(cut: str, gpu: str = "a100-40gb") -> Cluster:
    gpus = parse_gpus(gpu)
    return Cluster(gpus, parse_layouts(cut, gpus))


@ENGINES
def test_engine__charges_idle_and_busy_power(engine: Simulate) -> None:
    run = engine(make_jobs((10, 100, 70)), one_gpu("7g"), policies("largest-first", "static"), Settings(preempt=False))
    assert run.finish_s == pytest.approx([20.0])
    assert run.energy_j.sum() == pytest.approx(10 * 40 + 10 * 248.5)


@ENGINES
def test_engine__keeps_a_started_job_without_preemption(engine: Simulate) -> None:
    # The second job is more urgent but comes when the only slice is taken.
    jobs = make_jobs((0, 1000, 70), (1, 2, 7))
    run = engine(jobs, one_gpu("7g"), policies("largest-first", "static"), Settings(preempt=False))
    assert run.finish_s == pytest.approx([10.0, 11.0])


@ENGINES
def test_engine__gives_way_with_preemption_and_keeps_progress(engine: Simulate) -> None:
    jobs = make_jobs((0, 1000, 70), (1, 2, 7))
    run = engine(jobs, one_gpu("7g"), policies("categorical-edf", "static"), Settings(preempt=True))
    assert run.finish_s == pytest.approx([11.0, 2.0])
    assert run.n_preemptions == 1


@ENGINES
def test_engine__charges_every_restart(engine: Simulate) -> None:
    jobs = make_jobs((0, 1000, 70), (1, 2, 7))
    run = engine(jobs, one_gpu("7g"), policies("categorical-edf", "static"), Settings(preempt=True, restart_s=3.0))
    assert run.finish_s == pytest.approx([14.0, 2.0])


@ENGINES
def test_engine__carries_progress_between_slice_sizes(engine: Simulate) -> None:
    # 5 s on the 4g (5/7 done), 1 s on the 3g while the urgent job has the 4g, then back to the 4g for the rest.
    jobs = make_jobs((0, 7, 28), (5, 6, 4))
    run = engine(jobs, one_gpu("4g+3g"), policies("categorical-edf", "static"), Settings(preempt=True))
    assert run.finish_s == pytest.approx([6 + (2 / 7 - 1 / (28 / 3)) * 28 / 4, 6.0])


@ENGINES
def test_engine__edf_takes_the_slowest_slice_in_time(engine: Simulate) -> None:
    jobs = make_jobs((0, 12, 12), (0, 3.5, 12))
    run = engine(jobs, one_gpu("4g+2g+1g"), policies("edf-most-packed", "static"), Settings(preempt=False))
    # The urgent one (deadline 3.5) needs the 4g (3 s); the other meets 12 on the 1g exactly.
    assert run.finish_s == pytest.approx([12.0, 3.0])


@ENGINES
def test_engine__paper_recut_takes_the_gpu_down(engine: Simulate) -> None:
    # Whole by night; at 04:00 the default twice-daily rule cuts it into 2g+1g+1g+3g: 4 s down at idle power.
    jobs = make_jobs((14_390, 20_000, 140))
    run = engine(jobs, one_gpu("7g"), policies("categorical-edf", "twice-daily"), Settings(preempt=False))
    assert run.n_repartitions == 2  # at the first look the rule also wants its night cut, 4g+3g
    done_by_night = 10 / (140 / 3)  # on the 3g, which meets the deadline
    assert run.finish_s == pytest.approx([14_404 + (1 - done_by_night) * 140 / 1])


@ENGINES
def test_engine__drain_recut_leaves_running_work_alone(engine: Simulate) -> None:
    jobs = make_jobs((14_390, 20_000, 140))
    mode = Settings(preempt=False, drain=True)
    run = engine(jobs, one_gpu("7g"), policies("categorical-edf", "twice-daily"), mode)
    assert run.finish_s == pytest.approx([14_390 + 140 / 3])
    assert run.n_preemptions == 0


@ENGINES
def test_engine__memory_need_excludes_small_slices(engine: Simulate) -> None:
    jobs = make_jobs((0, 100, 70), (0, 100, 70), memory_gb=15.0)
    run = engine(jobs, one_gpu("3g+2g+1g"), policies("smallest-first", "static"), Settings(preempt=False))
    # Only the 3g (20 GB) is large enough: one after the other.
    assert run.finish_s == pytest.approx([70 / 3, 140 / 3])


@ENGINES
def test_engine__refuses_a_job_that_fits_nowhere(engine: Simulate) -> None:
    jobs = make_jobs((0, 1, 1), memory_gb=41.0)
    with pytest.raises(InputError, match=r"job '0' fits no slice.*needs 41 GB"):
        engine(jobs, one_gpu("7g"), policies("largest-first", "static"), Settings())


@ENGINES
def test_engine__says_when_the_policy_never_cuts_what_a_job_needs(engine: Simulate) -> None:
    # The night cut could serve the job, but this rule never makes it: the path's whole GPU comes only when idle.
    jobs = replace(make_jobs((0, 1, 70), (0, 1, 70)), memory_gb=np.array([35.0, 0.0]))
    cluster = one_gpu("3g+3g")
    policy = policies("largest-first", "slice-count")
    policy = replace(policy, repartition=replace(policy.repartition, base=5.0))  # type: ignore[type-var]
    with pytest.raises(SimulationError, match="never cut"):
        engine(jobs, cluster, policy, Settings(preempt=False))


@ENGINES
@pytest.mark.parametrize("preempt", [True, False])
def test_engine__gives_up_on_a_job_that_no_later_cut_serves(engine: Simulate, preempt: bool) -> None:
    # Only the first cut has a slice with 39 GB; twice a day the GPU comes back without one.
    jobs = make_jobs((4 * 3600.0, 5 * 3600.0, 70), memory_gb=39.0)
    with pytest.raises(SimulationError, match="never cut"):
        engine(jobs, one_gpu("7g"), policies("largest-first", "twice-daily"), Settings(preempt=preempt))


@ENGINES
def test_engine__waits_for_a_long_job_that_is_stopped_every_day(engine: Simulate) -> None:
    jobs = make_jobs((0, 86_400.0, 10 * 86_400.0))
    run = engine(jobs, one_gpu("7g"), policies("largest-first", "twice-daily"), Settings(recut_s=600.0))
    assert run.n_preemptions >= 5
    assert np.isfinite(run.finish_s).all()


def test_engine__can_be_paused_and_copied_at_any_event() -> None:
    jobs = DiurnalDay(multiplier=2).jobs(seed=1)
    cluster = Cluster(parse_gpus("2xa100-40gb"))
    policy = policies("categorical-edf", "slice-count")
    mode = Settings()
    whole = simulate(jobs, cluster, policy, mode)
    cuts = cuts_of(cluster, policy.repartition)
    world = build_world(cuts, policy.placement, mode)
    go_on = stepper(
        world, build_jobs(jobs, cuts, policy.placement, mode, policy.repartition.reachable(cuts)), policy, cuts
    )
    state = fresh_state(world, len(jobs), cuts)
    open_gpus(world, state, policy.placement)
    events, status = 0, CHECK_DUE
    while status == CHECK_DUE:
        events += 7
        fork = copy_state(state)
        status = go_on(state, events)
        assert go_on(fork, events) == status
        assert fork.job.tobytes() == state.job.tobytes()
    assert status == FINISHED
    np.testing.assert_array_equal(state.job["finish_s"], whole.finish_s)


def test_engine__reports_progress() -> None:
    jobs = make_jobs((0, 1, 70), (1, 2, 70))
    seen: list[int] = []
    simulate(jobs, one_gpu("7g"), policies("largest-first", "static"), Settings(), on_progress=seen.append)
    assert seen[-1] == 2


@kernel
def always_slot_0(world: World, jobs: JobArrays, state: State, job: int) -> int:  # noqa: ARG001
    return 0


@dataclass(frozen=True)
class Stubborn(EarliestDeadlineFirst):
    """A broken rule: it wants the first slice even when that is taken."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, always_slot_0)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:  # noqa: ARG002
        return view.gpus[0].slices[0]


@pytest.mark.parametrize("preempt", [True, False])
def test_engine__stops_a_rule_that_takes_what_is_taken(preempt: bool) -> None:
    jobs = make_jobs((0, 1, 70), (0, 2, 70))
    policy = replace(policies("largest-first", "static"), placement=Stubborn())
    with pytest.raises(SimulationError, match="Stubborn chose a slice that is taken"):
        simulate(jobs, one_gpu("4g+3g"), policy, Settings(preempt=preempt))


@kernel
def the_other_one(world: World, jobs: JobArrays, state: State, knobs: Floats) -> None:  # noqa: ARG001
    for gpu in range(world.n_gpus):
        at_first = state.gpu[gpu].config == int(knobs[0])
        state.gpu[gpu].target = int(knobs[1] if at_first else knobs[0])


@dataclass(frozen=True)
class Restless(TwiceDaily):
    """A broken rule: at every event it wants the cut that it has not."""

    control: ClassVar[Kernel | None] = the_other_one

    def every_events(self, n_gpus: int) -> int:  # noqa: ARG002
        return 1

    def knobs(self, cuts: CutTable, world: World) -> Floats:  # noqa: ARG002
        return np.array(self.reachable(cuts), dtype=float)


@pytest.mark.parametrize(("recut_s", "why"), [(0.0, "Restless re-cuts in circles: no job came"), (4.0, "never cut")])
def test_engine__stops_a_rule_that_recuts_in_circles(recut_s: float, why: str) -> None:
    jobs = make_jobs((0, 1, 70), memory_gb=39.0)
    policy = replace(policies("largest-first", "static"), repartition=Restless())
    with pytest.raises(SimulationError, match=why):
        simulate(jobs, one_gpu("7g"), policy, Settings(recut_s=recut_s, preempt=False))


@ENGINES
def test_engine__records_every_cut_of_forty_quiet_days(engine: Simulate) -> None:
    """More rows than any event leaves room for: nothing happens but re-cuts between the two jobs."""
    gpus = parse_gpus("2xa100-40gb")
    jobs = make_jobs((0, 1000, 70), (40 * 86_400, 41 * 86_400, 70))
    run = engine(jobs, Cluster(gpus), policies("categorical-edf", "twice-daily"), Settings(record=True))
    assert run.n_repartitions == 2 * 2 * 40
    assert run.cuts is not None
    assert run.instances is not None
    lasts_s = run.cuts.to_s - run.cuts.from_s
    assert len(lasts_s) == run.n_repartitions + 2
    assert np.bincount(run.cuts.gpu, lasts_s) == pytest.approx([run.makespan_s] * 2)
    down_s = 4.0 * run.n_repartitions
    # Both cuts of the rule hold all eight memory slices of a card that is not down.
    held_s = run.instances.span @ (run.instances.to_s - run.instances.from_s)
    assert held_s == pytest.approx(8 * (2 * run.makespan_s - down_s))
