"""How large a report is and how soon its first figure stands in Chromium."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from bench.measure import Outcome

TRIES = 5


def _page(path: Path, n_gpus: int, preempt: bool, recut: str) -> int:
    """The report of a day; how many jobs it has."""
    from smartmig.compare import n_compute_slices, sample_day
    from smartmig.metrics.summary import summarise
    from smartmig.report.comparison import Comparison, PolicyRuns
    from smartmig.report.page import comparison_page
    from smartmig.scenario import ClusterSpec, PolicySpec, Scenario

    policy = PolicySpec("shortest-work", "slice-count", preempt=preempt, recut=recut)
    load = {"id": "day", "multiplier": 2.5 * n_gpus}
    cluster = ClusterSpec(f"{n_gpus}xa100-40gb")
    plan = Scenario(version=1, title="A day", cluster=cluster, workload=load, policies=(policy,), first_seed=1)
    day = sample_day(plan, policy)
    summary = summarise(day.jobs, day.run, n_compute_slices(plan.cluster_for(policy)))
    runs = (PolicyRuns(day.policy, (summary,)),)
    comparison_page(path, Comparison("A day", (1,), runs, bound_energy_j=(0.8 * summary.energy_j,)), [day])
    return len(day.jobs)


def _opens(n_gpus: int, preempt: bool, recut: str, at_most: float) -> Outcome:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tools:
        path = Path(folder) / "day.html"
        begun = time.perf_counter()
        n_jobs = _page(path, n_gpus, preempt, recut)
        written_s = time.perf_counter() - begun
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        first, single = [], []
        for _ in range(TRIES):
            begun = time.perf_counter()
            page.goto(path.as_uri())
            page.locator(".plot .main-svg").first.wait_for()
            first.append(time.perf_counter() - begun)
            section = page.locator("section").filter(has=page.locator(".zoom")).first
            section.scroll_into_view_if_needed()
            section.locator("output", has_text="stretches").wait_for()
            for _ in range(6):
                section.get_by_role("button", name="Zoom in").click()
            begun = time.perf_counter()
            section.get_by_role("button", name="Zoom in").click()
            section.locator(".bars .point").first.wait_for()
            single.append(time.perf_counter() - begun)
        browser.close()
        size_mb = path.stat().st_size / 1e6
    told = f"{n_jobs:,} jobs, {size_mb:.2f} MB, made in {written_s:.1f} s; single jobs {min(single):.2f} s after a zoom"
    return Outcome(min(first), "s", told, at_most=at_most)


BENCHMARKS = {
    "report-day": lambda: _opens(8, True, "paper", 2.0),
    "report-large": lambda: _opens(192, False, "drain", 4.0),
}
