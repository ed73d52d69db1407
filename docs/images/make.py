"""Makes the pictures of README and docs with the program itself and headless Chromium (`apt-get install chromium`)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import plotly.graph_objects as go
from playwright.sync_api import sync_playwright

from smartmig.cli.demo import DEMO
from smartmig.compare import compare, learned_preferences, sample_day, sample_days
from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import gpu_model
from smartmig.report.page import Section, comparison_page, write_page
from smartmig.report.preferences import preference_bars
from smartmig.report.theme import ramp, template
from smartmig.report.timeline import slice_timeline
from smartmig.scenario import ClusterSpec, PolicySpec, Scenario

HERE = Path(__file__).parent

MORNING = Scenario(
    version=1,
    cluster=ClusterSpec("4xa100-40gb"),
    workload={"id": "fixed-rate", "n_jobs": 260, "rate_per_min": 1.5, "deadline": (1.5, 4.0)},
    policies=(PolicySpec("shortest-work", "slice-count", recut="drain", preempt=False),),
    first_seed=4,
)
"""Few enough jobs to see each of them."""

EVALUATED = Scenario(version=1, policies=(PolicySpec("shortest-work", "mean-field"),), seeds=20)


def shoot(page: Path, width: int, height: int, picture: str) -> None:
    # A picture has no use for buttons.
    bare = "<style>.zoom,.modebar{display:none!important}</style></head>"
    page.write_text(page.read_text(encoding="utf-8").replace("</head>", bare, 1), encoding="utf-8")
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking hide-scrollbars"
    subprocess.run(
        [
            "chromium",
            *(f"--{flag}" for flag in flags.split()),
            f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={width},{height}",
            "--virtual-time-budget=9000",
            f"--screenshot={HERE / picture}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
    )


def shoot_report(folder: Path) -> None:
    """The first screens of the demo's report, of its timeline zoomed in, and of the cuts by the hour."""
    page = folder / "demo.html"
    result = compare(DEMO, lambda *_: None)
    comparison_page(page, result, sample_days(DEMO, result))
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1100, "height": 1150})
        tab.goto(page.as_uri())
        tab.wait_for_selector(".plot .main-svg")
        tab.wait_for_timeout(1500)
        tab.screenshot(path=HERE / "report.png")
        zoomed = tab.locator("section").filter(has=tab.locator(".zoom")).last
        zoomed.scroll_into_view_if_needed()
        zoomed.locator("output", has_text="stretches").wait_for()
        for _ in range(5):
            zoomed.get_by_role("button", name="Zoom in").click()
        zoomed.locator(".bars .point").first.wait_for()
        tab.wait_for_timeout(1000)
        zoomed.screenshot(path=HERE / "zoomed.png")
        hours = tab.locator("section", has_text="Cuts by the hour").last
        hours.scroll_into_view_if_needed()
        hours.locator(".main-svg").first.wait_for()
        tab.wait_for_timeout(1000)
        hours.screenshot(path=HERE / "hours.png")
        browser.close()


def layouts_figure() -> go.Figure:
    """Every configuration of an A100, an instance as a block over its memory slices."""
    model = gpu_model("a100-40gb")
    figure = go.Figure(layout={"template": template(), "height": 520, "barmode": "overlay", "showlegend": False})
    for number, layout in enumerate(configurations(model), start=1):
        for place in layout:
            profile = model.profile(place.profile)
            figure.add_bar(
                orientation="h",
                base=[place.start + 0.04],
                x=[profile.memory_slices - 0.08],
                y=[number],
                width=0.8,
                text=[profile.name],
                textposition="inside",
                insidetextanchor="middle",
                textfont={"color": "#ffffff" if profile.compute in (1, 7) else "#1c2128"},
                marker={"color": ramp(7 - profile.compute, 7)},
            )
    figure.update_xaxes(title_text="memory slice", range=[0, model.n_memory], dtick=1, showgrid=True)
    figure.update_yaxes(title_text="configuration", autorange="reversed", dtick=1, showgrid=False, ticks="")
    return figure


def shoot_dashboard(folder: Path) -> None:
    """A simulated cluster with learned cuts, a minute after its start; and what the playground proposes, run."""
    log = folder / "log"
    command = [Path(sys.executable).with_name("smartmig"), "serve", "--port", "0", "--mode", "act"]
    with log.open("w") as stream:
        server = subprocess.Popen(
            [*command, "--repartition", "mean-field"], stderr=stream, env={**os.environ, "SMARTMIG_HOME": str(folder)}
        )
    try:
        while not (url := re.search(r'"url": "(http://[^"]+)"', log.read_text())):
            if server.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.5)
        token = re.search(r"shown once: (\S+)", log.read_text())
        assert token is not None
        time.sleep(60)
        with sync_playwright() as tools:
            browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1440, "height": 1500})
            page.goto(url[1])
            page.fill("#token", token[1])
            page.press("#token", "Enter")
            page.wait_for_selector("#effect .bar", timeout=60_000)
            page.screenshot(path=HERE / "dashboard.png")
            page.goto(f"{url[1]}/playground")
            page.click("#go:enabled", timeout=60_000)
            page.wait_for_selector(".plot .main-svg", timeout=600_000)
            page.wait_for_timeout(1000)
            page.screenshot(path=HERE / "playground.png")
            browser.close()
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    """All pictures, or all but the dashboard's, which needs a minute of a running server (`--no-dashboard`)."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        figure = slice_timeline(sample_day(MORNING, MORNING.policies[0]))
        text = "Each band is a GPU and its memory slices; a block is a job on its instance, red where it ended late."
        write_page(page, "Three busy hours on four A100s, re-cut beside running work", text, [Section("", "", figure)])
        shoot(page, 1100, 730, "timeline.png")
        text = "An instance is a block over the memory slices it holds; its name is NVIDIA's: compute slices, memory."
        write_page(page, "The ways to cut an A100-40GB", text, [Section("", "", layouts_figure())])
        shoot(page, 1000, 720, "layouts.png")
        figure = preference_bars(learned_preferences(EVALUATED, EVALUATED.policies[0]))
        text = "Share of eight A100s in each configuration, mean over 20 days; blue: few slices, brown: many."
        write_page(page, "What the learned policy prefers", text, [Section("", "", figure)])
        shoot(page, 1100, 640, "preferences.png")
        shoot_report(Path(folder))
        if "--no-dashboard" not in sys.argv[1:]:
            shoot_dashboard(Path(folder))


if __name__ == "__main__":
    main()
