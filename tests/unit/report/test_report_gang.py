"""Pages of whole-GPU runs."""

from __future__ import annotations

from dataclasses import replace

from smartmig.gang_scenario import GangPolicySpec
from smartmig.hardware.nodes import parse_nodes
from smartmig.metrics.gang import summarise
from smartmig.report.gang_page import MOST_DRAWN, gang_parts
from smartmig.report.gang_tables import GangComparison
from smartmig.sim.gang.run import simulate
from strategies import make_gangs


def compared(n_policies: int) -> GangComparison:
    """Policies of one outcome each, every fourth the same as the one before it, the last ones best."""
    jobs, cluster = make_gangs((0, 8, 50, 60), (1, 8, 50, 60)), parse_nodes("1x8")
    costs = summarise(jobs, simulate(jobs, cluster, GangPolicySpec().policy()), cluster)
    slowdowns = [100.0 - at + (at % 4 == 3) for at in range(n_policies)]
    runs = [(f"policy {at}", (replace(costs, mean_bounded_slowdown=slowdowns[at]),)) for at in range(n_policies)]
    return GangComparison("many", (0,), tuple(runs))


def drawn(comparison: GangComparison) -> list[str]:
    _, sections = gang_parts(comparison)
    [figure] = [section.figure for section in sections if section.title == "Slowdown by job size"]
    assert figure is not None
    return [trace.name for trace in figure.data]


def test_gang_page__draws_every_policy_while_they_can_be_told_apart() -> None:
    assert drawn(compared(MOST_DRAWN)) == [f"policy {at}" for at in range(MOST_DRAWN)]


def test_gang_page__of_many_draws_the_best_and_none_twice() -> None:
    names = drawn(compared(20))
    assert names == [f"policy {at}" for at in range(20) if at % 4 != 3][-MOST_DRAWN:]
    _, sections = gang_parts(compared(20))
    assert any("The 8 policies with the least slowdown." in section.text for section in sections)
    [table] = [section.table_rows for section in sections if section.title == "Numbers"]
    assert table is not None
    assert len(table) == 21
