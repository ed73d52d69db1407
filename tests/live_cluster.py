"""Small live clusters for tests: a simulated one behind the real ports, and a loop around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smartmig.adapters.simulated import SimulatedCluster, connect, gang_arrivals, mig_arrivals, mig_nodes, whole_nodes
from smartmig.cli.live_policy import FALLBACK, PolicyNames
from smartmig.cli.policy_files import digests
from smartmig.control.guard import GuardRules
from smartmig.control.journal import Journal, open_journal
from smartmig.control.loop import Loop, LoopSettings
from smartmig.control.pilot import Pilot
from smartmig.control.replay import Replayed, replay
from smartmig.control.switch import Mode
from smartmig.control.wire import rules_from_json, rules_to_json
from smartmig.types import GangJobs, Jobs, Outcome
from strategies import make_gangs

GANG_NAMES = PolicyNames()
MIG_NAMES = PolicyNames(placement="edf-most-packed")

JOBS = make_gangs(
    (0, 4, 30, 40), (0, 3, 20, 60), (1, 8, 10, 20), (2, 1, 5, 10), (3, 2, 50, 60), (4, 1, 5, 30), user="uvuvuv"
)
MANY = make_gangs(*[(0, 1, 50, 60)] * 40)


def about(names: PolicyNames, worlds: tuple[str, ...], rules: GuardRules) -> dict[str, Any]:
    return {
        "policy": vars(names),
        "fallback": vars(FALLBACK),
        "policy_files": digests(names.policy(worlds)),
        "worlds": list(worlds),
        "seed": 0,
        "guard": rules_to_json(rules),
        "adapter": "simulated",
    }


def gang_loop(
    folder: Path,
    jobs: GangJobs,
    nodes: str = "2x4",
    mode: Mode = Mode.act,
    names: PolicyNames = GANG_NAMES,
    rules: GuardRules | None = None,
    journal: str = "",
) -> tuple[Loop, SimulatedCluster]:
    cluster = SimulatedCluster(whole_nodes(nodes), gang_arrivals(jobs))
    return _loop(folder, cluster, ("gang",), mode, names, rules or GuardRules(), journal), cluster


def mig_loop(
    folder: Path,
    jobs: Jobs,
    gpus: str = "2xa100-40gb",
    layouts: str = "1,2",
    mode: Mode = Mode.act,
    names: PolicyNames = MIG_NAMES,
) -> tuple[Loop, SimulatedCluster]:
    cluster = SimulatedCluster(mig_nodes(gpus, layouts), mig_arrivals(jobs))
    return _loop(folder, cluster, ("mig",), mode, names, GuardRules(), ""), cluster


def _loop(
    folder: Path,
    cluster: SimulatedCluster,
    worlds: tuple[str, ...],
    mode: Mode,
    names: PolicyNames,
    rules: GuardRules,
    journal: str,
) -> Loop:
    pilot = Pilot(names.policy(worlds), FALLBACK.policy(worlds), rules)
    book = Journal(journal or str(folder / "journal.db"))
    settings = LoopSettings(mode=mode, period_s=1e9, settle_s=30.0)
    return Loop(connect(cluster, 0), pilot, book, settings, about(names, worlds, rules), folder / "kill")


def turn_all(loop: Loop, cluster: SimulatedCluster, most: int = 10_000) -> None:
    """Until nothing happens any more."""
    loop.step()
    for _ in range(most):
        if not loop.source.wait(1e12):
            break
        loop.step()
    loop.step()
    loop.journal.sync(30)
    assert not cluster.running


def fallbacks(loop: Loop, n_turns: int) -> set[str]:
    """Why a plain rule decided in these turns; empty text: the policy did."""
    why = set()
    for _ in range(n_turns):
        assert loop.source.wait(1e9)
        turn = loop.step()
        assert turn is not None
        why.add(turn.judged.fallback)
    loop.journal.close()
    return why


def again(place: str, names: PolicyNames, worlds: tuple[str, ...]) -> Replayed:
    def make(boot: dict[str, Any], memory: Any) -> Pilot:
        return Pilot(names.policy(worlds), FALLBACK.policy(worlds), rules_from_json(boot["guard"], "guard"), 0, memory)

    return replay(open_journal(place).records(), make)


class Deaf:
    """Accepts starts and forgets them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def apply(self, plan: Any, timeout_s: float) -> tuple[Outcome, ...]:  # noqa: ARG002
        return tuple(Outcome(action, True) for action in plan)
