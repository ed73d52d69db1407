"""The plain twin of the engine: ordinary objects, every slice looked at, nothing clever.

It says what the simulator means. `kernel.py` must give the same numbers to 1e-9 on every cluster, job set and mode; the
rules' plain twins (`plain_choose`, `plain_control`) stand in for the compiled ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from smartmig.errors import SimulationError
from smartmig.policy.plain import PlainGpu, PlainSlice, PlainView
from smartmig.sim.mig.kernel import PATIENCE_S, SAME_INSTANT_S
from smartmig.sim.mig.run import Cluster, Policy, config_names, config_seconds, cuts_of
from smartmig.sim.mig.world import Settings, build_jobs
from smartmig.types import Cuts, Jobs, Layout, Run, Segments


@dataclass
class Stretch:
    """A job on a slice, from one start to its end or its next stop."""

    piece: PlainSlice
    began_s: float
    progress_from_s: float
    left_at_start: float
    end_s: float


@dataclass
class Recut:
    """What a GPU is busy with besides jobs."""

    due_s: float
    destroy: PlainSlice | None = None
    create: PlainSlice | None = None


@dataclass
class ReferenceSimulator:
    """One run, event by event."""

    jobs: Jobs
    cluster: Cluster
    policy: Policy
    settings: Settings
    record: list[tuple[int, PlainSlice, float, float]] = field(default_factory=list)
    """who ran where, from when to when"""
    lives: list[tuple[int, PlainSlice, float, float]] = field(default_factory=list)
    """the same of instances, without a job"""
    cut_record: list[tuple[int, int, float, float]] = field(default_factory=list)
    """GPU, configuration, from when to when"""

    def __post_init__(self) -> None:
        self.cuts = cuts_of(self.cluster, self.policy.repartition)
        reachable = (*self.cuts.start, *self.policy.repartition.reachable(self.cuts))
        arrays = build_jobs(self.jobs, self.cuts, self.policy.placement, self.settings, reachable)
        n_jobs, n_gpus = len(self.jobs), len(self.cuts.gpu_model)
        gpus = [
            PlainGpu(
                index=index,
                model=model,
                n_compute=self.cuts.models[model].n_compute,
                watts=np.array(self.cuts.models[model].power.watts),
                slices=self._instances(index, layout),
            )
            for index, (model, layout) in enumerate(zip(self.cuts.gpu_model, self.cuts.layouts, strict=True))
        ]
        self.view = PlainView(
            now_s=0.0,
            gpus=gpus,
            arrive_s=arrays.spec["arrive_s"],
            deadline_s=arrays.spec["deadline_s"],
            run_s=arrays.run_s,
            whole_s=arrays.spec["whole_s"],
            single_s=arrays.spec["single_s"],
            group=arrays.spec["group"],
            left=[1.0] * n_jobs,
            in_system=[],
            seed=self.settings.seed,
        )
        self.stretch: dict[int, Stretch] = {}
        self.recut: dict[int, Recut] = {}
        self.wanted: list[Layout] = list(self.cuts.layouts)
        self.config = list(self.cuts.start)
        self.cut_since_s = [0.0] * n_gpus
        self.born = [(piece, 0.0) for gpu in gpus for piece in gpu.slices]
        self.config_s = [0.0] * len(self.cuts.configs)
        self.first_start_s = [math.nan] * n_jobs
        self.finish_s = [math.nan] * n_jobs
        self.n_starts = [0] * n_jobs
        self.energy_j = [0.0] * n_gpus
        self.busy_slice_s = [0.0] * n_gpus
        self.n_events = self.n_repartitions = self.n_preemptions = self.n_arrived = 0
        self.last_job_s = 0.0

    def _instances(self, gpu: int, layout: Layout) -> list[PlainSlice]:
        return [self._instance(gpu, place.start, place.profile) for place in layout]

    def _instance(self, gpu: int, start: int, profile: str) -> PlainSlice:
        slice_class = self.cuts.class_of(self.cuts.gpu_model[gpu], profile)
        return PlainSlice(gpu, start, self.cuts.classes[slice_class][1].compute, slice_class)

    # ------------------------------------------------------------------------------------------------------- time

    def go_to(self, time_s: float) -> None:
        """Let time pass: energy, configuration shares and progress."""
        view = self.view
        passed_s = time_s - view.now_s
        finishing = {job for job, stretch in self.stretch.items() if stretch.end_s <= time_s + SAME_INSTANT_S}
        for gpu in view.gpus:
            busy = gpu.busy
            self.busy_slice_s[gpu.index] += busy * passed_s
            if self.settings.charge_after_release:
                busy -= sum(s.size for s in gpu.slices if s.job in finishing)
            self.energy_j[gpu.index] += float(gpu.watts[busy]) * passed_s
            self.config_s[self.config[gpu.index]] += passed_s
        view.now_s = time_s
        for job, stretch in self.stretch.items():
            ran_s = max(0.0, time_s - stretch.progress_from_s)
            run_s = float(view.run_s[job, stretch.piece.slice_class])
            view.left[job] = max(0.0, stretch.left_at_start - ran_s / run_s)

    def start(self, job: int, piece: PlainSlice) -> None:
        now_s = self.view.now_s
        if self.n_starts[job] == 0:
            self.first_start_s[job] = now_s
            progress_from_s = now_s
        else:
            progress_from_s = now_s + self.settings.restart_s
        self.n_starts[job] += 1
        left = self.view.left[job]
        end_s = progress_from_s + left * float(self.view.run_s[job, piece.slice_class])
        self.stretch[job] = Stretch(piece, now_s, progress_from_s, left, end_s)
        piece.job, piece.end_s = job, end_s

    def stop(self, job: int) -> None:
        stretch = self.stretch.pop(job)
        self.record.append((job, stretch.piece, stretch.began_s, self.view.now_s))
        self.last_job_s = self.view.now_s

    # --------------------------------------------------------------------------------------------------- decisions

    def rank(self, job: int) -> tuple[int, float, float, int]:
        key = self.policy.placement.plain_key(self.view, job)
        return int(self.view.group[job]), key, float(self.view.deadline_s[job]), job

    def decide(self) -> None:
        """One decision pass."""
        view, rule = self.view, self.policy.placement
        rule.plain_prepare(view)
        before = {job: stretch.piece for job, stretch in self.stretch.items()}
        if self.settings.preempt:
            for gpu in view.gpus:
                for piece in gpu.slices:
                    piece.job = None
            candidates = list(view.in_system)
        else:
            candidates = [job for job in view.in_system if job not in before]
        after: dict[int, PlainSlice] = {}
        for job in sorted(candidates, key=self.rank):
            if not any(piece.job is None for gpu in view.gpus for piece in gpu.usable):
                break
            chosen = rule.plain_choose(view, job)
            if chosen is not None:
                chosen.job, chosen.end_s = job, view.now_s + view.time_on(job, chosen)
                after[job] = chosen
        if self.settings.preempt:
            for job, piece in before.items():
                if after.get(job) is not piece:
                    self.n_preemptions += 1
                    self.stop(job)
                else:
                    piece.end_s = self.stretch[job].end_s
        for job, piece in after.items():
            if job not in self.stretch:
                self.start(job, piece)
        for gpu in view.gpus:
            self.go_on_draining(gpu)

    # --------------------------------------------------------------------------------------------------- re-cutting

    def _bury(self, pieces: Sequence[PlainSlice]) -> None:
        """Write down the instances that are there no more."""
        for piece, since_s in self.born:
            if any(piece is one for one in pieces) and since_s < self.view.now_s:
                self.lives.append((-1, piece, since_s, self.view.now_s))
        self.born = [(piece, since_s) for piece, since_s in self.born if not any(piece is one for one in pieces)]

    def _close_cut(self, gpu: int) -> None:
        since_s, self.cut_since_s[gpu] = self.cut_since_s[gpu], self.view.now_s
        if since_s < self.view.now_s:
            self.cut_record.append((gpu, self.config[gpu], since_s, self.view.now_s))

    def begin_recut(self, gpu: PlainGpu, config: int) -> None:
        self.n_repartitions += 1
        self._close_cut(gpu.index)
        self.config[gpu.index] = config
        variants = self.cuts.configs[config].variants
        if self.settings.drain:
            self.wanted[gpu.index] = max(variants, key=lambda layout: self._kept(gpu, layout))
            self._mark_draining(gpu)
            self.go_on_draining(gpu)
            return
        for piece in gpu.slices:
            if piece.job is not None:
                self.n_preemptions += 1
                self.stop(piece.job)
        self._bury(gpu.slices)
        gpu.slices = self._instances(gpu.index, variants[0])
        self.born += [(piece, self.view.now_s + self.settings.recut_s) for piece in gpu.slices]
        gpu.down = True
        self.recut[gpu.index] = Recut(self.view.now_s + self.settings.recut_s)

    def _wanted_classes(self, gpu: PlainGpu, layout: Layout) -> dict[int, int]:
        return {place.start: self.cuts.class_of(gpu.model, place.profile) for place in layout}

    def _kept(self, gpu: PlainGpu, layout: Layout) -> tuple[int, int]:
        wanted = self._wanted_classes(gpu, layout)
        stay = [piece for piece in gpu.slices if wanted.get(piece.start) == piece.slice_class]
        busy = sum(piece.job is not None for piece in stay)
        return busy, len(stay) - busy

    def _mark_draining(self, gpu: PlainGpu) -> None:
        wanted = self._wanted_classes(gpu, self.wanted[gpu.index])
        pending = self.recut.get(gpu.index)
        for piece in gpu.slices:
            leaving = pending is not None and pending.destroy is piece
            piece.draining = leaving or wanted.get(piece.start) != piece.slice_class

    def go_on_draining(self, gpu: PlainGpu) -> None:
        """One operation at a time: destroy idle instances that must go, then create what there is room for."""
        if not self.settings.drain or gpu.index in self.recut:
            return
        model = self.cuts.models[gpu.model]
        now_s = self.view.now_s
        for piece in gpu.slices:
            if piece.draining and piece.job is None:
                self.recut[gpu.index] = Recut(now_s + model.destroy_s[piece.size], destroy=piece)
                return
        held = {slot for piece in gpu.slices for slot in self._memory(piece)}
        present = {piece.start for piece in gpu.slices}
        for place in self.wanted[gpu.index]:
            piece = self._instance(gpu.index, place.start, place.profile)
            if place.start not in present and not held & set(self._memory(piece)):
                self.recut[gpu.index] = Recut(now_s + model.create_s[piece.size], create=piece)
                return

    def _memory(self, piece: PlainSlice) -> range:
        return range(piece.start, piece.start + self.cuts.classes[piece.slice_class][1].memory_slices)

    def finish_operation(self, gpu: PlainGpu) -> None:
        done = self.recut.pop(gpu.index)
        gpu.down = False
        if done.destroy is not None:
            gpu.slices.remove(done.destroy)
            self._bury([done.destroy])
        if done.create is not None:
            gpu.slices.append(done.create)
            self.born.append((done.create, self.view.now_s))
            gpu.slices.sort(key=lambda piece: piece.start)
            self._mark_draining(gpu)

    # ------------------------------------------------------------------------------------------------------- events

    def next_event_s(self) -> float:
        times = [stretch.end_s for stretch in self.stretch.values()] + [recut.due_s for recut in self.recut.values()]
        if self.n_arrived < len(self.jobs):
            times.append(float(self.view.arrive_s[self.n_arrived]))
        return min(times, default=math.inf)

    def apply_event(self) -> None:
        view = self.view
        limit_s = view.now_s + SAME_INSTANT_S
        for job in [job for job, stretch in self.stretch.items() if stretch.end_s <= limit_s]:
            piece = self.stretch[job].piece
            self.stop(job)
            piece.job = None
            view.left[job] = 0.0
            view.in_system.remove(job)
            self.finish_s[job] = view.now_s
        for gpu in view.gpus:
            if gpu.index in self.recut and self.recut[gpu.index].due_s <= limit_s:
                self.finish_operation(gpu)
            self.go_on_draining(gpu)
        while self.n_arrived < len(self.jobs) and view.arrive_s[self.n_arrived] <= limit_s:
            view.in_system.append(self.n_arrived)
            self.n_arrived += 1
            self.last_job_s = view.now_s
        self.n_events += 1

    def run(self) -> Run:
        rule = self.policy.repartition
        next_check_s = rule.period_s() if rule.control is not None else math.inf
        while True:
            event_s = self.next_event_s()
            if event_s <= next_check_s and event_s < math.inf:
                self.go_to(max(event_s, self.view.now_s))
                self.apply_event()
                if self.n_arrived == len(self.jobs) and not self.view.in_system:
                    return self.result()
                every = rule.every_events(len(self.view.gpus))
                if rule.control is not None and every > 0 and self.n_events % every == 0:
                    self.control()
                self.decide()
            elif next_check_s < math.inf and not self.hopeless(next_check_s):
                self.go_to(next_check_s)
                next_check_s += rule.period_s()
                if self.control():
                    self.decide()
            else:
                raise SimulationError(f"{len(self.view.in_system)} jobs wait for a slice the policy never cut")

    def hopeless(self, check_s: float) -> bool:
        """All have arrived, nobody runs, and nobody has for as long as a rule may take to make room."""
        all_came = self.n_arrived == len(self.jobs)
        return all_came and not self.stretch and check_s - self.last_job_s > PATIENCE_S

    def control(self) -> bool:
        wishes = self.policy.repartition.plain_control(self.view, self.cuts, list(self.config))
        changes = [(gpu, want) for gpu, want in enumerate(wishes) if want >= 0 and want != self.config[gpu]]
        for gpu, want in changes:
            self.begin_recut(self.view.gpus[gpu], want)
        return bool(changes)

    def result(self) -> Run:
        self._bury([piece for gpu in self.view.gpus for piece in gpu.slices])
        for gpu in range(len(self.config)):
            self._close_cut(gpu)
        gpus, configs, from_s, to_s = np.array(self.cut_record).reshape(-1, 4).T
        cuts = Cuts(gpus.astype(np.int64), configs.astype(np.int64), from_s, to_s, config_names(self.cuts))
        return Run(
            first_start_s=np.array(self.first_start_s),
            finish_s=np.array(self.finish_s),
            n_starts=np.array(self.n_starts),
            energy_j=np.array(self.energy_j),
            busy_slice_s=np.array(self.busy_slice_s),
            makespan_s=self.view.now_s,
            n_events=self.n_events,
            n_repartitions=self.n_repartitions,
            n_preemptions=self.n_preemptions,
            config_s=config_seconds(self.cuts, np.array(self.config_s)),
            segments=self._segments(self.record) if self.settings.record else None,
            instances=self._segments(self.lives) if self.settings.record else None,
            cuts=cuts if self.settings.record else None,
        )

    def _segments(self, rows: Sequence[tuple[int, PlainSlice, float, float]]) -> Segments:
        pieces = [piece for _, piece, _, _ in rows]
        return Segments(
            job=np.array([job for job, *_ in rows], dtype=np.int64),
            gpu=np.array([piece.gpu for piece in pieces], dtype=np.int64),
            start=np.array([piece.start for piece in pieces], dtype=np.int64),
            size=np.array([piece.size for piece in pieces], dtype=np.int64),
            span=np.array([len(self._memory(piece)) for piece in pieces], dtype=np.int64),
            from_s=np.array([from_s for _, _, from_s, _ in rows]),
            to_s=np.array([to_s for *_, to_s in rows]),
        )


def simulate_plainly(jobs: Jobs, cluster: Cluster, policy: Policy, settings: Settings) -> Run:
    """`run.simulate`, slowly."""
    return ReferenceSimulator(jobs, cluster, policy, settings).run()
