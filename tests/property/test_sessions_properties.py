"""Sessions that follow one another on a cluster, some cut off, some with the plain rule in charge: the journal of them
all gives every plan again."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live_cluster import about
from smartmig.adapters.simulated import (
    Edge,
    SimulatedCluster,
    connect,
    gang_arrivals,
    mig_arrivals,
    mig_nodes,
    whole_nodes,
)
from smartmig.cli.live_policy import FALLBACK, OLD_FALLBACK, PolicyNames
from smartmig.cli.policy_files import trained_ranges
from smartmig.cli.recorded import recorded_pilot
from smartmig.control.guard import HOUR_S, GuardRules
from smartmig.control.journal import Journal, open_journal
from smartmig.control.loop import Loop, LoopSettings
from smartmig.control.memory import Memory
from smartmig.control.pilot import Pilot
from smartmig.control.replay import Replayed, handed_over_since, replay
from smartmig.control.switch import Mode
from smartmig.control.wire import memory_from_json
from smartmig.types import GangJobs
from smartmig.workload.diurnal import DiurnalDay
from strategies import make_gangs


def session(
    folder: Path,
    cluster: SimulatedCluster,
    names: PolicyNames,
    rules: GuardRules,
    fallback: PolicyNames = FALLBACK,
    turns: int = 10,
    cut_off: bool = False,
    world: str = "gang",
) -> int:
    """Goes on where the one before ended, as `serve` does on a real cluster; how often the plain rule decided."""
    journal = Journal(str(folder / "journal.db"))
    kept = journal.reader.last("memory")
    policy = names.policy((world,))
    memory = Memory() if kept is None else memory_from_json(kept.body)
    pilot = Pilot(policy, fallback.policy((world,)), rules, 0, memory, trained_ranges(policy))
    pilot.guard_memory = handed_over_since(journal.reader, cluster.time_s - HOUR_S)
    boot: dict[str, Any] = about(names, (world,), rules) | {"fallback": asdict(fallback), "adapter": "slurm"}
    if fallback == OLD_FALLBACK:
        del boot["fallback"]
    loop_settings = LoopSettings(mode=Mode.act, period_s=1e9, settle_s=30.0, memory_every=3)
    loop = Loop(connect(cluster, 0), pilot, journal, loop_settings, boot, folder / "kill")
    for _ in range(turns):
        loop.step()
        if not loop.source.wait(1e6):
            break
    if not cut_off:
        loop.stop()
        loop.run()
    journal.close()
    return loop.counts.fallbacks


def replayed(folder: Path) -> Replayed:
    place = str(folder / "journal.db")
    return replay(open_journal(place).records(), partial(recorded_pilot, place))


jobs = st.tuples(st.integers(0, 60), st.sampled_from([1, 1, 2, 4, 8]), st.integers(1, 40), st.integers(1, 60))
runs_of = st.tuples(st.integers(1, 12), st.booleans(), st.sampled_from([FALLBACK, OLD_FALLBACK]))


@given(
    many=st.lists(jobs, min_size=3, max_size=25),
    selection=st.sampled_from(["sjf", "lcfs", "multifactor"]),
    backfill=st.sampled_from(["none", "easy", "conservative"]),
    max_wait_s=st.sampled_from([1.0, 10.0, 1e6]),
    away=st.tuples(st.integers(0, 30), st.integers(1, 60)),
    sessions=st.lists(runs_of, min_size=2, max_size=4),
)
@settings(max_examples=25, deadline=None)
def test_replay__of_several_sessions_with_fallbacks_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    many: list[tuple[int, int, int, int]],
    selection: str,
    backfill: str,
    max_wait_s: float,
    away: tuple[int, int],
    sessions: list[tuple[int, bool, PolicyNames]],
) -> None:
    folder = tmp_path_factory.mktemp("sessions")
    names, rules = PolicyNames(selection=selection, backfill=backfill), GuardRules(max_wait_s=max_wait_s)
    gone_s, for_s = away
    edges = (Edge(float(gone_s), 1, 0), Edge(float(gone_s + for_s), -1, 0))
    cluster = SimulatedCluster(whole_nodes("2x4"), gang_arrivals(made(many)), edges)
    for turns, cut_off, fallback in sessions:
        session(folder, cluster, names, rules, fallback, turns, cut_off)
    report = replayed(folder)
    assert (report.n_different, report.n_sessions) == (0, len(sessions))


def made(many: list[tuple[int, int, int, int]]) -> GangJobs:
    return make_gangs(*[(at, n, run_s, limit_s) for at, n, run_s, limit_s in sorted(many)], user="uv" * len(many))


@pytest.mark.parametrize(("fallback", "other"), [(FALLBACK, OLD_FALLBACK), (OLD_FALLBACK, FALLBACK)])
def test_replay__of_starvation_is_exact_with_the_recorded_fallback_alone(
    tmp_path: Path, fallback: PolicyNames, other: PolicyNames
) -> None:
    # Half of the cluster is away: job 1 cannot start, job 2 starves behind it, and the policy prefers the small ones.
    crowd = make_gangs((0, 4, 12, 13), (0, 8, 50, 60), (1, 4, 30, 40), *[(at, 1, 5, 5) for at in range(2, 60, 3)])
    cluster = SimulatedCluster(whole_nodes("2x4"), gang_arrivals(crowd), (Edge(0.0, 1, 0), Edge(150.0, -1, 0)))
    names, rules = PolicyNames(selection="sjf"), GuardRules(max_wait_s=10.0)
    fell = [session(tmp_path, cluster, names, rules, fallback, 10, cut_off) for cut_off in (True, False, False)]
    assert sum(fell) > 0
    report = replayed(tmp_path)
    assert (report.n_different, report.n_sessions) == (0, 3)
    place = str(tmp_path / "journal.db")

    def with_the_other(boot: dict[str, Any], memory: Memory) -> Pilot:
        return recorded_pilot(place, boot | {"fallback": asdict(other)}, memory)

    assert replay(open_journal(place).records(), with_the_other).n_different > 0


def test_replay__of_drift_in_several_sessions_is_exact(tmp_path: Path) -> None:
    flood = make_gangs(*[(0, 2, 50, 60)] * 300)
    names = PolicyNames(selection="learned", allocation="learned")
    cluster = SimulatedCluster(whole_nodes("8x8"), gang_arrivals(flood))
    fell = [session(tmp_path, cluster, names, GuardRules()) for _ in range(2)]
    assert sum(fell) > 0
    assert replayed(tmp_path).n_different == 0


def test_replay__of_drift_on_cards_in_several_sessions_is_exact(tmp_path: Path) -> None:
    names = PolicyNames(repartition="mean-field", placement="edf-most-packed")
    arrivals = mig_arrivals(DiurnalDay(multiplier=400).jobs(3))
    cluster = SimulatedCluster(mig_nodes("4xa100-40gb", "1,1,1,1"), arrivals)
    fell = [session(tmp_path, cluster, names, GuardRules(), turns=100, world="mig") for _ in range(3)]
    assert sum(fell) > 0
    assert replayed(tmp_path).n_different == 0
