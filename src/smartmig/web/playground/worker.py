"""`python -m smartmig.web.playground.worker FOLDER`: runs the wish in a folder, in a process of its own.

It says how far it is on stdout, one JSON object a line, and leaves `result.json`, `figure-N.json` and `report.html`.
The work is that of `smartmig compare`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from smartmig.atomic import atomic_write
from smartmig.compare import Progress, compare, drawn_policies, n_workers, refuse_early, sample_day
from smartmig.errors import SmartmigError
from smartmig.gang_compare import compare_gangs
from smartmig.report.gang_page import gang_parts
from smartmig.report.page import Section, comparison_page, comparison_parts, figure_data, write_page
from smartmig.web.playground.wish import GangWish, MigWish, Wish, scenario_text

NICENESS = 10
"""The controller decides first."""


def main() -> int:
    folder = Path(sys.argv[1])
    _stand_back()
    try:
        wish: MigWish | GangWish = TypeAdapter(Wish).validate_json((folder / "wish.json").read_bytes())
        if isinstance(wish, MigWish):
            run_mig(wish, folder, say)
        else:
            run_gang(wish, folder, say)
    except SmartmigError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return error.exit_code
    return 0


def say(what: str, done: int, total: int) -> None:
    print(json.dumps({"what": what, "done": done, "total": total}), flush=True)


def run_mig(wish: MigWish, folder: Path, progress: Progress) -> None:
    scenario = wish.scenario()
    refuse_early(scenario)
    # Every policy's first day is drawn, and the report is written, after the comparison.
    n_after = len(scenario.policies) + 1

    def days(what: str, done: int, total: int) -> None:
        progress(what, done, total + n_after)

    result = compare(scenario, days, _n_processes())
    n_days = len(scenario.policies) * scenario.seeds
    samples = []
    for at, policy in enumerate(scenario.policies):
        progress("pictures", n_days + at, n_days + n_after)
        samples.append(sample_day(scenario, policy))
    progress("report", n_days + n_after - 1, n_days + n_after)
    shown = drawn_policies(result)
    comparison_page(folder / "report.html", result, [one for one in samples if one.policy in shown])
    intro, sections = comparison_parts(result, samples)
    keep(folder, result.title, intro, sections, scenario_text(scenario))


def run_gang(wish: GangWish, folder: Path, progress: Progress) -> None:
    policies = wish.scenario()
    scenario = wish.trace(folder)
    for policy in policies:
        policy.policy()
    result = compare_gangs(scenario, policies, tuple(range(wish.days)), progress, _n_processes(), drawn=True)
    intro, sections = gang_parts(result)
    title = f"A made-up day of {len(scenario.jobs(0)):,} jobs on {wish.nodes}"
    write_page(folder / "report.html", title, intro, sections)
    keep(folder, title, intro, sections, "")


def keep(folder: Path, title: str, intro: str, sections: Sequence[Section], scenario: str) -> None:
    """The run as the page shows it; figures lie apart, so that each is fetched when it comes into view."""
    parts: list[dict[str, Any]] = []
    for section in sections:
        part: dict[str, Any] = {"title": section.title, "text": section.text, "figure": None}
        if section.table_rows is not None:
            part |= {"rows": [list(row) for row in section.table_rows], "strong_row": section.strong_row}
        if section.figure is not None:
            content, height, narrow = figure_data(section.figure)
            part |= {"figure": len(parts), "height_px": height, "narrow_height_px": narrow}
            _write(folder / f"figure-{len(parts)}.json", content)
        parts.append(part)
    _write(folder / "result.json", {"title": title, "intro": intro, "parts": parts, "scenario": scenario})


def _write(path: Path, content: Any) -> None:
    with atomic_write(path) as stream:
        json.dump(content, stream, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _n_processes() -> int:
    """One core stays free for the controller, where there are several."""
    return max(1, n_workers() - 1)


def _stand_back() -> None:
    os.nice(NICENESS)
    # When memory runs out the kernel ends us, not the controller that started us.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(main())
