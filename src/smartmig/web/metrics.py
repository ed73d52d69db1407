"""Prometheus metrics: base units, names by its conventions. Read from the loop when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from smartmig.control.books import load_of
from smartmig.control.loop import Loop
from smartmig.control.switch import Mode

DECISION_BUCKETS_S = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0)


class LoopMetrics(Collector):
    """What the loop has counted."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def collect(self) -> Iterator[Metric]:
        counts, books = self.loop.counts, self.loop.books
        for name, text, value in (
            ("observations", "looks at the cluster", counts.observations),
            ("decisions", "decisions of the policy", counts.decisions),
            ("starts", "jobs started", counts.starts),
            ("repartitions", "cards cut anew", counts.cuts),
            ("actions_refused", "actions the guard refused", counts.refused),
            ("actions_failed", "actions the cluster did not accept", counts.failed),
            ("starts_lost", "accepted starts that were never seen running", counts.lost),
            ("fallbacks", "decisions made by the plain rule instead", counts.fallbacks),
            ("errors", "failed turns of the loop", counts.errors),
            ("kills", "times the kill switch was thrown", counts.kills),
            ("jobs_submitted", "jobs seen for the first time", books.n_submitted),
            ("jobs_finished", "jobs seen to end", books.n_finished),
            ("jobs_late", "finished after their deadline", books.n_late),
            ("wait_seconds", "time jobs waited before they started", books.waited_s),
            ("late_seconds", "time jobs finished after their deadline", books.late_s),
            ("energy_joules", "energy of all cards by their power curves (attributed)", books.energy_j),
            ("gpu_busy_seconds", "GPUs in use, times seconds", books.busy_gpu_s),
        ):
            yield CounterMetricFamily(f"smartmig_{name}", text, value=float(value))
        state = self.loop.seen
        if state is not None:
            watts, busy, there = load_of(state)
            yield GaugeMetricFamily("smartmig_power_watts", "all cards now, by their power curves", value=watts)
            yield GaugeMetricFamily("smartmig_gpus", "GPUs that are there", value=there)
            yield GaugeMetricFamily("smartmig_gpus_busy", "GPUs in use", value=busy)
            yield GaugeMetricFamily("smartmig_jobs_queued", "jobs that wait", value=len(state.queued))
            yield GaugeMetricFamily("smartmig_jobs_running", "jobs that run", value=len(state.running))
        modes = GaugeMetricFamily("smartmig_mode", "1 for the present mode", labels=["mode"])
        for mode in Mode:
            modes.add_metric([mode.value], float(mode is self.loop.mode))
        yield modes
        yield GaugeMetricFamily("smartmig_in_charge", "1 while we schedule", value=float(self.loop.in_charge))
        yield GaugeMetricFamily("smartmig_killed", "1 while the kill switch is on", value=float(self.loop.killed))


class Metrics:
    """The registry of one server, and the histogram that listens to decisions."""

    def __init__(self, loop: Loop) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LoopMetrics(loop))
        self.decision_s = Histogram(
            "smartmig_decision_duration_seconds",
            "time from a state to a guarded plan",
            registry=self.registry,
            buckets=DECISION_BUCKETS_S,
        )

    def hear(self, event: str, body: dict[str, Any]) -> None:
        if event == "decision":
            self.decision_s.observe(body["took_s"])
