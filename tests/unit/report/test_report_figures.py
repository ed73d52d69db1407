"""What the figures are drawn from and what they hold, on a toy cluster small enough to check by hand."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from smartmig.metrics.statistics import Estimate
from smartmig.report import figures, published, timeline
from smartmig.report.comparison import Comparison, PolicyRuns, SampleDay
from smartmig.report.day import mean_power_w, mean_waiting, merge_segments, time_grid
from smartmig.report.packed import pack_integers
from smartmig.report.timeline import slice_timeline
from smartmig.types import Run
from toy_report import segments, toy_comparison, toy_day, toy_summary


def numbers_of(trace: Any) -> list[np.ndarray]:
    fields = (trace[name] for name in ("x", "y", "base", "width") if name in trace and trace[name] is not None)
    filled = (field for field in fields if np.size(field))
    return [np.asarray(field, dtype=float) for field in filled if not isinstance(np.ravel(field)[0], str)]


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
    bars = published.published_bars(["a", "b"], ours, theirs, "ET")
    lines = published.published_lines([1, 2], ours, {}, "load", "ET")
    assert [trace.name for trace in bars.data] == ["edf", "edf, published", "only theirs, published"]
    assert bars.data[0].marker.color == bars.data[1].marker.line.color
    assert bars.data[1].y == (1.1, None)
    assert [trace.name for trace in lines.data] == ["edf"]
    for figure in (bars, lines):
        json.dumps(json.loads(figure.to_json()), allow_nan=False)
