"""The page, its figures and tables, on a toy cluster small enough to check by hand."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from smartmig.errors import InputError, UnknownName
from smartmig.metrics.statistics import Estimate, estimate, relative_change
from smartmig.metrics.summary import Summary, summarise
from smartmig.report import figures, published, timeline
from smartmig.report.comparison import Comparison, PolicyRuns, SampleDay
from smartmig.report.day import mean_power_w, mean_waiting, merge_segments, time_grid
from smartmig.report.packed import pack_integers
from smartmig.report.page import Section, comparison_page, write_page
from smartmig.report.tables import comparison_json, comparison_table, summary_table
from smartmig.report.timeline import slice_timeline
from smartmig.types import Cuts, Jobs, Run, Segments

WATTS = (50.0, 100.0, 140.0, 170.0, 190.0, 200.0, 205.0, 208.0)


def segments(*rows: tuple[int, int, int, int, int, float, float]) -> Segments:
    job, gpu, start, size, span, from_s, to_s = zip(*rows, strict=True)
    whole = [np.array(column, dtype=np.int64) for column in (job, gpu, start, size, span)]
    return Segments(*whole, np.array(from_s), np.array(to_s))


def toy_day(policy: str = "toy") -> SampleDay:
    """Two GPUs, three jobs: job 0 is stopped for a while, job 1 is late, job 2 waits 40 s for its slice."""
    rows = [
        (0, 0, 0, 4, 4, 0.0, 100.0),
        (1, 0, 4, 3, 4, 10.0, 250.0),
        (0, 0, 0, 4, 4, 160.0, 200.0),
        (2, 1, 0, 7, 8, 60.0, 300.0),
    ]
    jobs = Jobs(
        job_id=np.array(["a", "b", "c"]),
        arrive_s=np.array([0.0, 10.0, 20.0]),
        deadline_s=np.array([500.0, 100.0, 400.0]),
        run_s=np.full((3, 5), 60.0),
        kind=np.array(["train", "infer", ""]),
        memory_gb=np.zeros(3),
    )
    # GPU 0: 4 slices 10 s, 7 for 90 s, 3 for 60 s, 7 for 40 s, 3 for 50 s, none for 50 s; GPU 1: 7 for 240 of 300 s.
    first = WATTS[4] * 10 + WATTS[7] * 90 + WATTS[3] * 60 + WATTS[7] * 40 + WATTS[3] * 50 + WATTS[0] * 50
    second = WATTS[0] * 60 + WATTS[7] * 240
    run = Run(
        first_start_s=np.array([0.0, 10.0, 60.0]),
        finish_s=np.array([200.0, 250.0, 300.0]),
        n_starts=np.array([2, 1, 1]),
        energy_j=np.array([first, second]),
        busy_slice_s=np.array([4 * 140.0 + 3 * 240.0, 7 * 240.0]),
        makespan_s=300.0,
        n_events=6,
        n_repartitions=0,
        n_preemptions=1,
        config_s={"a100-40gb:4g+3g": 300.0, "a100-40gb:7g": 300.0},
        segments=segments(*rows),
        instances=segments((-1, 0, 0, 4, 4, 0, 300), (-1, 0, 4, 3, 4, 0, 300), (-1, 1, 0, 7, 8, 0, 300)),
        cuts=Cuts(np.arange(2), np.arange(2), np.zeros(2), np.full(2, 300.0), ("a100-40gb:4g+3g", "a100-40gb:7g")),
    )
    return SampleDay(policy, jobs, run, ("a100-40gb", "a100-40gb"), (WATTS, WATTS), (8, 8))


def toy_summary(et: float, energy_kwh: float = 40.0, configs: int = 2) -> Summary:
    return Summary(
        n_jobs=100,
        energy_j=energy_kwh * 3.6e6,
        energy_kwh=energy_kwh,
        energy_per_job_j=energy_kwh * 3.6e4,
        mean_tardiness_s=60.0 * et,
        p95_tardiness_s=300.0 * et,
        max_tardiness_s=900.0 * et,
        late_frac=0.25,
        et=et,
        utilisation_frac=0.8,
        makespan_s=86400.0,
        n_repartitions=3,
        n_preemptions=9,
        n_events=400,
        config_frac={f"a100-40gb:{index}g": 1 / configs for index in range(configs)},
    )


def toy_comparison(n_seeds: int = 3, bound: bool = False, configs: int = 2) -> Comparison:
    return Comparison(
        title="Toys & <others>",
        seeds=tuple(range(n_seeds)),
        policies=(
            PolicyRuns("first", tuple(toy_summary(2.0 + 0.1 * seed, 41.0, configs) for seed in range(n_seeds))),
            PolicyRuns("second", tuple(toy_summary(1.5 + 0.1 * seed, 42.0, configs) for seed in range(n_seeds))),
        ),
        notes=("A note with <b>tags</b>.",),
        bound_energy_j=tuple(36.0 * 3.6e6 for _ in range(n_seeds)) if bound else None,
    )


def shown(table: object, width: int = 140) -> str:
    out = io.StringIO()
    Console(width=width, file=out).print(table)
    return out.getvalue()


class Tags(HTMLParser):
    """Every start tag, and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def read_tags(path: Path) -> Tags:
    parser = Tags()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def numbers_of(trace: Any) -> list[np.ndarray]:
    fields = (trace[name] for name in ("x", "y", "base", "width") if name in trace and trace[name] is not None)
    filled = (field for field in fields if np.size(field))
    return [np.asarray(field, dtype=float) for field in filled if not isinstance(np.ravel(field)[0], str)]


# --- comparison ------------------------------------------------------------------------------------------------------


def test_comparison__gives_one_value_per_seed() -> None:
    np.testing.assert_allclose(toy_comparison().values("second", "et"), [1.5, 1.6, 1.7])


def test_comparison__names_the_nearest_policy() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'second'"):
        toy_comparison().values("secnd", "et")


def test_comparison__refuses_what_does_not_line_up() -> None:
    runs = PolicyRuns("p", (toy_summary(1.0),))
    with pytest.raises(InputError, match="1 runs for 2 seeds"):
        Comparison("t", (0, 1), (runs,))
    with pytest.raises(InputError, match="must differ"):
        Comparison("t", (0,), (runs, runs))
    with pytest.raises(InputError, match="at least one"):
        Comparison("t", (), ())
    with pytest.raises(InputError, match="2 bounds for 1 seeds"):
        Comparison("t", (0,), (runs,), bound_energy_j=(1.0, 2.0))


def test_sample_day__needs_segments() -> None:
    day = toy_day()
    bare = Run(**{**vars(day.run), "segments": None})
    with pytest.raises(InputError, match="recording"):
        SampleDay("p", day.jobs, bare, day.gpu_names, day.watts, day.memory_slices)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_comparison_table__shows_means_intervals_and_paired_change() -> None:
    comparison = toy_comparison(bound=True)
    text = shown(comparison_table(comparison))
    change = relative_change(comparison.values("second", "et"), comparison.values("first", "et"))
    et = estimate(comparison.values("second", "et"))
    for part in ("first", "second", "41.00", f"{et.mean:.3f}", f"± {et.half_width:.3f}", f"{change.mean * 100:+.1f}"):
        assert part in text
    assert "+16.7" in text, "42 kWh is 16.7 % above a bound of 36"
    assert "3 seeds, 95 % intervals, paired seeds" in " ".join(text.split())
    assert "2.0e-7 per W·min" in " ".join(text.split())


def test_comparison_table__bold_row_has_the_least_et() -> None:
    assert [row.style for row in comparison_table(toy_comparison()).rows] == ["", "bold"]


def test_comparison_table__fits_an_80_column_terminal() -> None:
    text = shown(comparison_table(toy_comparison(bound=True)), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_comparison_table__leaves_out_columns_on_a_narrow_terminal() -> None:
    wide, narrow = (comparison_table(toy_comparison(bound=True), width) for width in (140, 80))
    assert len(wide.columns) - len(narrow.columns) == 2
    assert len(wide.rows) == len(narrow.rows)


def test_comparison_table__has_no_intervals_for_one_seed() -> None:
    text = shown(comparison_table(toy_comparison(n_seeds=1)))
    assert "±" not in text
    assert "nan" not in text


def test_summary_table__shows_the_run() -> None:
    day = toy_day()
    text = shown(summary_table("toy", summarise(day.jobs, day.run, 14)))
    assert re.search(r"late jobs\s+33\.3\s+%", text)
    assert re.search(r"preemptions\s+1\b", text)


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_comparison_json__is_strict_json(n_seeds: int) -> None:
    comparison = toy_comparison(n_seeds, bound=True)
    back = json.loads(json.dumps(comparison_json(comparison), allow_nan=False))
    assert back["policies"][1]["estimates"]["et"]["mean"] == pytest.approx(comparison.values("second", "et").mean())
    assert (back["policies"][1]["et_change_frac"]["half_width"] is None) == (n_seeds == 1)
    assert len(back["policies"][0]["runs"]) == n_seeds


# --- the day ---------------------------------------------------------------------------------------------------------


def test_merge_segments__joins_neighbours_of_one_job_only() -> None:
    merged = merge_segments(
        segments(
            (0, 0, 0, 4, 4, 0.0, 10.0),
            (0, 0, 0, 4, 4, 10.5, 20.0),  # half a second later: the same stretch
            (0, 0, 0, 4, 4, 21.5, 30.0),  # a second and a half: a new one
            (1, 0, 0, 4, 4, 30.0, 40.0),  # another job
            (1, 0, 4, 3, 4, 40.0, 50.0),  # another slot
            (1, 1, 4, 3, 4, 50.0, 60.0),  # another GPU
            (1, 1, 4, 1, 1, 60.0, 70.0),  # another cut of the same place
        )
    )
    spans = list(zip(merged.from_s, merged.to_s, strict=True))
    assert spans == [(0, 20), (21.5, 30), (30, 40), (40, 50), (50, 60), (60, 70)]


def test_merge_segments__keeps_who_ran_in_between() -> None:
    merged = merge_segments(segments((0, 0, 0, 7, 8, 0.0, 1.0), (1, 0, 0, 7, 8, 1.0, 1.4), (0, 0, 0, 7, 8, 1.4, 2.0)))
    assert list(merged.job) == [0, 1, 0]


def test_mean_power__integrates_to_the_energy() -> None:
    day = toy_day()
    for max_points in (1440, 7):
        edges = time_grid(day.run.makespan_s, max_points)
        assert mean_power_w(day, edges) @ np.diff(edges) == pytest.approx(day.run.energy_j.sum())


def test_power_over_time__line_integrates_to_the_energy() -> None:
    day = toy_day()
    line = figures.power_over_time([day]).data[0]
    watts = np.asarray(line.y, dtype=float)[:-1] * 1000
    assert watts.size <= 1440
    assert watts.sum() * line.dx * 3600 == pytest.approx(day.run.energy_j.sum(), rel=1e-5)


def test_mean_waiting__counts_arrived_jobs_without_a_slice() -> None:
    waiting = mean_waiting(toy_day(), np.array([0.0, 20.0, 60.0, 100.0, 160.0, 200.0, 300.0]))
    # Job 2 waits from 20 to 60 s, job 0 is stopped from 100 to 160 s.
    np.testing.assert_allclose(waiting, [0, 1, 0, 1, 0, 0], atol=1e-9)


def test_time_grid__never_exceeds_its_points() -> None:
    assert time_grid(86400.0, 1440).size == 1441
    assert time_grid(0.0).size == 2
    assert time_grid(3.0).size == 4


# --- figures ---------------------------------------------------------------------------------------------------------


def unpacked(text: str) -> list[int]:
    """What the page's script makes of packed numbers."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8).reshape(4, -1)
    differences = np.ascontiguousarray(planes.T).view("<u4").ravel()
    return np.cumsum(differences, dtype=np.uint32).tolist()


@pytest.mark.parametrize("values", [[], [0], [7, 7, 3, 2**32 - 1, 0, 864_000]])
def test_pack_integers__come_back(values: list[int]) -> None:
    assert unpacked(pack_integers(values)) == values


@pytest.mark.parametrize("value", [-1, 2**32])
def test_pack_integers__refuses_what_does_not_fit(value: int) -> None:
    with pytest.raises(ValueError, match="0 to 2"):
        pack_integers([value])


def test_slice_timeline__holds_each_stretch_on_its_slices() -> None:
    zoom = slice_timeline(toy_day()).layout.meta["zoom"]
    columns = {name: unpacked(zoom["stretches"][name]) for name in ("job", "gpu", "start", "size", "from", "lasts")}
    assert list(zip(*columns.values(), strict=True)) == [
        (0, 0, 0, 4, 0, 1000),
        (0, 0, 0, 4, 1600, 400),
        (1, 0, 4, 3, 100, 2400),
        (2, 1, 0, 7, 600, 2400),
    ]
    assert zoom["tops"] == [0, 9], "the second GPU begins one slice below the first"
    jobs = zoom["jobs"]
    assert zlib.decompress(base64.b64decode(jobs["id"])).decode().split("\n") == ["a", "b", "c"]
    assert unpacked(jobs["late"]) == [0, 1500, 0]
    assert [jobs["kinds"][kind] for kind in unpacked(jobs["kind"])] == ["train", "infer", ""]
    assert unpacked(zoom["instances"]["gpu"]) == [0, 0, 1]


def test_slice_timeline__keeps_the_longest_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MIN_KEPT", 1)
    crowd = segments(*((at % 3, 0, 0, 7, 8, 10.0 * at, 10.0 * at + at) for at in range(9)))
    day = toy_day()
    many = SampleDay("p", day.jobs, Run(**{**vars(day.run), "segments": crowd}), day.gpu_names, day.watts, (8, 8))
    zoom = slice_timeline(many).layout.meta["zoom"]
    assert zoom["n_stretches"] == 9
    assert unpacked(zoom["stretches"]["lasts"]) == [30, 40, 50, 60, 70, 80], "two a job"


def test_slice_timeline__shows_the_whole_day_as_a_picture() -> None:
    picture = read_png(slice_timeline(toy_day()).layout.images[0].source)
    rows = picture.shape[0] // 18
    assert picture.shape == (18 * rows, 300)
    full_on_time, full_late = 10, 20
    assert picture[0, 50] == full_on_time, "job 0 on the first four slices"
    assert picture[0, 130] == 0, "stopped"
    assert picture[4 * rows, 50] == full_late, "job 1 below it"
    assert picture[4 * rows, 5] == 0, "not yet started"
    assert picture[4 * rows - 1, 50] == 0, "a line between the two instances"
    assert not picture[8 * rows : 9 * rows].any(), "air between GPUs"
    assert picture[9 * rows, 100] == full_on_time, "job 2 on the second GPU"


def test_slice_timeline__shows_busy_shares_of_many_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "SLICES_DRAWN", 1)
    picture = read_png(slice_timeline(toy_day()).layout.images[0].source)
    assert picture.shape == (18, 300)
    assert (picture[:8, 50] == 10).all(), "4g on time and 3g late: all seven busy, most of them on time"
    assert (picture[:8, 130] == 10 + 5).all(), "3 of 7, late: nearer to a half than to 40 %"
    assert not picture[8].any(), "air between GPUs"
    assert (picture[9:17, 100] == 10).all()


def test_cuts_by_hour__share_the_gpus() -> None:
    day = toy_day()
    bars = figures.cuts_by_hour(day).data
    assert [(bar.name, list(bar.y)) for bar in bars] == [("7g", [50.0]), ("4g+3g", [50.0])]


def test_pareto_front__leaves_out_who_is_beaten_in_both() -> None:
    assert figures.pareto_front([3.0, 1.0, 2.0, 2.5], [1.0, 5.0, 2.0, 3.0]) == [1, 2, 0]


def read_png(source: str) -> np.ndarray:
    raw = base64.b64decode(source.partition(",")[2])
    width, height = struct.unpack(">II", raw[16:24])
    at, packed = 8, b""
    while at < len(raw):
        (length,) = struct.unpack(">I", raw[at : at + 4])
        if raw[at + 4 : at + 8] == b"IDAT":
            packed += raw[at + 8 : at + 8 + length]
        at += length + 12
    rows = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(height, width + 1)
    assert (rows[:, 0] == 2).all()
    return np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8)


def test_figures__hold_no_nan() -> None:
    days = [toy_day("first"), toy_day("second")]
    for n_seeds in (1, 3):
        comparison = toy_comparison(n_seeds, configs=15)
        for figure in (
            figures.energy_tardiness_scatter(comparison),
            figures.policy_bars(comparison),
            figures.config_shares(comparison),
            slice_timeline(days[0]),
            figures.cuts_by_hour(days[0]),
            figures.power_over_time(days),
            figures.queue_over_time(days),
        ):
            json.dumps(json.loads(figure.to_json()), allow_nan=False)
            for trace in figure.data:
                assert all(np.isfinite(values).all() for values in numbers_of(trace))


def test_config_shares__add_up_with_the_rest_as_other() -> None:
    figure = figures.config_shares(toy_comparison(configs=15))
    assert len(figure.data) == figures.TOP_CONFIGS + 1
    assert figure.data[-1].name == "other (3)"
    assert sum(trace.x[0] for trace in figure.data) == pytest.approx(100, abs=0.2)


def test_lines__keep_the_colours_of_the_comparison() -> None:
    alone = figures.power_over_time([toy_day("second")]).data[0].line.color
    ordered = figures.power_over_time([toy_day("second")], order=("first", "second")).data[0].line.color
    assert (alone, ordered) == (figures.colour(0), figures.colour(1))


def test_scatter__uses_a_log_axis_only_when_it_helps() -> None:
    def kind(ets: tuple[float, float]) -> str | None:
        runs = tuple(PolicyRuns(f"p{et}", (toy_summary(et),)) for et in ets)
        return figures.energy_tardiness_scatter(Comparison("t", (0,), runs)).layout.yaxis.type

    assert kind((1.0, 20.0)) == "log"
    assert kind((1.0, 2.0)) is None
    assert kind((0.0, 20.0)) is None


def test_published__pairs_ours_with_theirs_in_one_colour() -> None:
    ours = {"edf": [Estimate(1.0, 0.1, 5), Estimate(2.0, float("nan"), 1)]}
    theirs = {"edf": [1.1, float("nan")], "only theirs": [3.0, 4.0]}
    bars = published.published_bars("t", ["a", "b"], ours, theirs, "ET")
    lines = published.published_lines("t", [1, 2], ours, {}, "load", "ET")
    assert [trace.name for trace in bars.data] == ["edf", "edf, published", "only theirs, published"]
    assert bars.data[0].marker.color == bars.data[1].marker.line.color
    assert bars.data[1].y == (1.1, None)
    assert [trace.name for trace in lines.data] == ["edf"]
    for figure in (bars, lines):
        json.dumps(json.loads(figure.to_json()), allow_nan=False)


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    comparison_page(path, toy_comparison(bound=True), [toy_day("second")])
    return path


def test_page__needs_no_network(page: Path) -> None:
    tags = read_tags(page).tags
    for tag, attributes in tags:
        assert tag not in ("link", "iframe", "img", "object")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_page__offers_no_upload_button(page: Path) -> None:
    ours = read_tags(page).scripts[-1]
    assert 'plotlyServerURL: ""' in ours
    assert "sendChartToCloud" in ours


def test_page__holds_plotly_once(page: Path) -> None:
    assert page.read_text(encoding="utf-8").count(get_plotlyjs()[:200]) == 1
    assert page.stat().st_size < 5_200_000


def test_page__contains_the_numbers_and_sections(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("41.00", "1.600", "16.7", "3 seeds, 95 % intervals, paired seeds", "The day under second", "Notes"):
        assert part in text
    assert "Toys &amp; &lt;others&gt;" in text
    assert "<b>tags</b>" not in text
    tags = read_tags(page).tags
    assert [tag for tag, _ in tags].count("h1") == 1
    assert ("th", {"scope": "row"}) in tags
    assert [tag for tag, _ in tags].count("caption") == [tag for tag, _ in tags].count("table")


def test_page__figures_are_strict_json(page: Path) -> None:
    found = [script for script in read_tags(page).scripts if script.startswith('{"')]
    assert len(found) == 8, "seven figures and the themes"
    for script in found:
        json.loads(script, parse_constant=lambda name: pytest.fail(f"{name} in a figure"))


def test_page__leaves_no_temporary_file(page: Path) -> None:
    assert [entry.name for entry in page.parent.iterdir()] == ["report.html"]


def test_page__keeps_the_old_one_when_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_page(tmp_path / "missing" / "page.html", "t", "", [])
    assert list(tmp_path.iterdir()) == []


def test_page__without_figures_has_no_plotly(tmp_path: Path) -> None:
    write_page(tmp_path / "p.html", "t", "Hello.\n\nTwice.", [Section("s", "- one\n- two", table_rows=[["a"], ["b"]])])
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert len(text) < 10_000
    assert "<li>one</li><li>two</li>" in text
    assert text.count("<p>") == 2
    assert "<script" not in text
