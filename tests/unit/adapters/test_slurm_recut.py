"""Cutting a card: whatever fails, Slurm offers what the card is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from test_slurm_text import job, node

from smartmig.adapters.slurm.calls import Hold, Release, SlurmSilence
from smartmig.adapters.slurm.cards import MigKnobs, layouts_of
from smartmig.adapters.slurm.records import JobRecord, NodeRecord
from smartmig.adapters.slurm.recut import recut
from smartmig.types import Layout, Placement, Repartition

MIG = MigKnobs("a100-40gb", 1)
OLD: Layout = tuple(Placement(start, "1g.5gb") for start in range(7))
NEW: Layout = (Placement(0, "1g.5gb"), Placement(4, "3g.20gb"))
N_CALLS = 5


class Node:
    """Of a Slurm that is silent at some calls: before it did what it was asked, or after."""

    def __init__(self, silent: Iterable[int], does: bool, used: str = "") -> None:
        self.now = node("n1", gres="gpu:2,mig:1g.5gb:7", gres_used=used)
        self.silent, self.does, self.n_calls = set(silent), does, 0
        self.offers: list[str] = []

    def _call(self) -> bool:
        self.n_calls += 1
        return self.n_calls in self.silent

    def node(self, _: str, __: float) -> NodeRecord:
        if self._call():
            raise SlurmSilence("no answer")
        return self.now

    def set_node(self, _: str, gres: str, comment: str, timeout_s: float) -> None:
        assert timeout_s > 0
        silent = self._call()
        if self.does or not silent:
            self.now = replace(self.now, gres=gres, comment=comment)
            self.offers.append(gres)
        if silent:
            raise SlurmSilence("no answer")

    def job(self, *_: object) -> tuple[JobRecord, ...]:
        return (job(),)

    def release(self, _: str, __: Release, ___: float) -> None: ...

    def hold(self, _: str, __: Hold, ___: float) -> None: ...

    def requeue(self, _: str, __: float) -> None: ...

    def close(self) -> None: ...

    def layout(self) -> Layout:
        found = layouts_of(self.now, MIG)
        assert not isinstance(found, str)
        return found[1][0]


def command(card: Path, code: int = 0, seconds: float = 0) -> tuple[str, ...]:
    """Writes the new layout into a file, if all is well."""
    return ("sh", "-c", f"sleep {seconds}; [ {code} -ne 0 ] || echo $2 > {card}; exit {code}")


CUT = Repartition("n1", 0, NEW)


@pytest.mark.parametrize("does", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("silent", [{call} for call in range(1, N_CALLS + 2)] + [{5, 6}, {4, 5}, {2, 3}], ids=str)
def test_recut__when_a_call_fails_slurm_offers_what_the_card_is(silent: set[int], does: bool, tmp_path: Path) -> None:
    slurm, card = Node(silent, does), tmp_path / "card"
    if silent == {1}:
        with pytest.raises(SlurmSilence):
            recut(slurm, CUT, MIG, command(card), 5.0)
        why = "no answer"
    else:
        why = recut(slurm, CUT, MIG, command(card), 5.0)
    assert slurm.layout() == (NEW if card.exists() else OLD)
    assert slurm.now.gres.startswith("gpu:2,")
    assert bool(why) == (not card.exists())
    if not silent & set(range(1, N_CALLS + 1)):
        assert slurm.n_calls == N_CALLS


def test_recut__that_takes_too_long_leaves_time_to_put_it_right(tmp_path: Path) -> None:
    slurm = Node((), True)
    why = recut(slurm, CUT, MIG, command(tmp_path / "card", seconds=30), 1.0)
    assert "timed out" in why
    assert why.endswith("the old cut is back")
    assert slurm.layout() == OLD


def test_recut__while_slurm_stays_silent_offers_no_slice_that_is_not_there(tmp_path: Path) -> None:
    slurm = Node(range(4, 10_000), False)
    why = recut(slurm, CUT, MIG, command(tmp_path / "card"), 1.0)
    assert "offers fewer slices" in why
    assert (tmp_path / "card").exists()
    assert slurm.layout() == NEW[:1]


def test_recut__of_slices_in_use_changes_nothing(tmp_path: Path) -> None:
    slurm = Node((), True, "mig:1g.5gb:2")
    assert "2 slices of 1g.5gb are in use" in recut(slurm, CUT, MIG, command(tmp_path / "card"), 5.0)
    assert slurm.offers == []
