"""Answers of Slurm that come late, or not at all."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pytest
from test_slurm_keeper import FakeSlurm
from test_slurm_text import job

from smartmig.adapters.slurm.calls import SlurmRefusal, SlurmSilence
from smartmig.adapters.slurm.cards import MigKnobs
from smartmig.adapters.slurm.libslurm import NO_CHANGE, LibSlurm
from smartmig.adapters.slurm.source import STATIC_S, Cooling, SlurmSource
from smartmig.adapters.slurm.translate import Translator
from smartmig.errors import AdapterError


class FakeShim:
    """Says what it has once, and from then on that nothing has changed, as Slurm does."""

    def __init__(self) -> None:
        self.nodes = ["n1", "n2"]
        self.told = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.codes: list[int] = []
        """of the next calls, which tell nothing"""
        self.n_open = 0

    def smartmig_open(self) -> int:
        self.n_open += 1
        return 1

    def smartmig_close(self, _: ctypes.c_void_p) -> None:
        self.n_open -= 1

    def smartmig_nodes(self, _: ctypes.c_void_p) -> int:
        told, self.told = self.told, True
        self.may_answer.wait()
        if self.codes:
            return self.codes.pop(0)
        if told:
            return NO_CHANGE
        rows = ("\x1f".join([name, "IDLE", "gpu:2", "gpu:0", "4", "0", "100", "0", "", "", ""]) for name in self.nodes)
        self.buffer = ctypes.create_string_buffer("".join(f"{row}\x1e" for row in rows).encode())
        return 0

    def smartmig_forget(self, _: ctypes.c_void_p) -> None:
        self.told = False

    def smartmig_length(self, _: ctypes.c_void_p) -> int:
        return len(self.buffer.value)

    def smartmig_text(self, _: ctypes.c_void_p) -> int:
        return ctypes.addressof(self.buffer)

    def smartmig_error(self, _: int) -> bytes:
        return b"a reason"


def library(shim: FakeShim) -> LibSlurm:
    return LibSlurm(shim, "test")  # type: ignore[arg-type]


def names(reads: LibSlurm) -> list[str]:
    return [node.name for node in reads.nodes(5.0)]


def eventually(holds: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 10.0
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.005)
    return holds()


def test_libslurm__no_change_gives_what_was_read_last() -> None:
    reads = library(FakeShim())
    first = reads.nodes(5.0)
    assert [node.name for node in first] == ["n1", "n2"]
    assert reads.nodes(5.0) is first
    assert reads.node("n2", 5.0) is first[1]


def test_libslurm__an_answer_that_came_too_late_is_not_lost() -> None:
    shim = FakeShim()
    reads = library(shim)
    shim.may_answer.clear()
    with pytest.raises(SlurmSilence, match="did not answer"):
        reads.nodes(0.01)
    with pytest.raises(SlurmSilence, match="still owes"):
        reads.nodes(0.01)
    assert reads.owes()
    shim.may_answer.set()
    assert eventually(lambda: not reads.owes())

    def answers() -> bool:
        try:
            return names(reads) == ["n1", "n2"]
        except SlurmSilence:
            return False

    assert eventually(answers)


def test_libslurm__no_change_since_what_was_never_read_is_asked_again() -> None:
    shim = FakeShim()
    shim.told = True
    assert names(library(shim)) == ["n1", "n2"]


def test_libslurm__after_a_failure_everything_is_asked_anew() -> None:
    shim = FakeShim()
    reads = library(shim)
    assert names(reads) == ["n1", "n2"]
    shim.nodes, shim.codes = ["n3"], [2000]
    with pytest.raises(SlurmRefusal, match="a reason"):
        reads.nodes(5.0)
    assert names(reads) == ["n3"]


def test_libslurm__a_handle_is_freed_after_the_last_call() -> None:
    shim = FakeShim()
    reads = library(shim)
    assert names(reads) == ["n1", "n2"]
    assert reads.close()
    assert shim.n_open == 0
    assert reads.close()
    with pytest.raises(SlurmSilence, match="closed"):
        reads.nodes(1.0)
    # A call that hangs keeps its handle as long as it hangs.
    reads = library(shim)
    shim.may_answer.clear()
    with pytest.raises(SlurmSilence, match="did not answer"):
        reads.nodes(0.01)
    assert not reads.close()
    assert shim.n_open == 1
    shim.may_answer.set()
    assert eventually(reads.close)
    assert shim.n_open == 0


def source_of(slurm: FakeSlurm) -> SlurmSource:
    return SlurmSource(slurm, Translator("gpu", MigKnobs("a100-40gb", 1), 0.0), Cooling(), 0.01)


@pytest.mark.parametrize("call", ["jobs", "nodes", "partitions", "reservations"])
def test_source__one_lost_answer_is_made_good_at_the_next_look(call: str) -> None:
    slurm = FakeSlurm(job())
    source = source_of(slurm)
    for at in (8, 9):  # the first look, and one in between
        slurm.records = (*slurm.records, job(job_id=at))
        slurm.silent = {call}
        with pytest.raises(AdapterError, match="no answer"):
            source.observe(1.0)
        slurm.silent = set()
        assert source.wait(1.0), "news to those who wait, too"
        assert [request.key.job_id for request in source.observe(1.0).queued] == [str(n) for n in range(7, at + 1)]
        time.sleep(STATIC_S)


def test_source__unchanged_answers_are_no_news() -> None:
    slurm = FakeSlurm(job())
    source = source_of(slurm)
    source.observe(1.0)
    assert not source.wait(0.05)
