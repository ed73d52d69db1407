"""The adapter alone, on a real Slurm that says nothing for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from slurm_rig import PARTITION, SlurmRig, missing
from slurm_ways import both_ways, seen

from smartmig.adapters.slurm import Slurm
from smartmig.adapters.slurm.calls import SlurmReads, SlurmSilence
from smartmig.adapters.slurm.cards import MigKnobs
from smartmig.adapters.slurm.libslurm import LibSlurm, load_shim
from smartmig.adapters.slurm.paths import Installed
from smartmig.adapters.slurm.source import Cooling, SlurmSource
from smartmig.adapters.slurm.translate import Translator
from smartmig.errors import AdapterError
from smartmig.ports import Connection
from smartmig.types import JobKey, NodeState, Share, Start

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@contextlib.contextmanager
def stopped(rig: SlurmRig) -> Iterator[None]:
    """The controller hears, and says nothing."""
    pid = rig.pid("slurmctld")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@both_ways
def test_silence__what_came_too_late_is_seen_at_the_next_look(rig: SlurmRig, connection: Connection) -> None:
    state = seen(connection, 0)
    assert state.nodes[2].state is NodeState.up
    rig.sbatch("--gres=gpu:1")
    rig.scontrol("update", "NodeName=node3", "State=DRAIN", "Reason=x", user="root")
    time.sleep(2)  # Slurm counts in seconds: from now on it says that nothing has changed since
    with stopped(rig), pytest.raises(AdapterError):
        connection.source.observe(1)
    rig.wait(lambda: _answers(connection))
    assert seen(connection, 1).nodes[2].state is NodeState.drained
    rig.scontrol("update", "NodeName=node3", "State=RESUME", user="root")
    rig.wait(lambda: rig.node_states()["node3"] == "idle")


class Late:
    """A way to ask whose calls are late once each: Slurm answers, and nobody waits any more."""

    def __init__(self, reads: SlurmReads) -> None:
        self._reads, self.heard = reads, set[str]()

    def __getattr__(self, call: str) -> Callable[..., object]:
        def late(*arguments: object) -> object:
            answer = getattr(self._reads, call)(*arguments)
            if call not in self.heard:
                self.heard.add(call)
                raise SlurmSilence(f"{call}: late")
            return answer

        return late


def test_silence__at_the_first_looks_is_made_good(rig: SlurmRig, connection: Connection) -> None:
    rig.sbatch("--gres=gpu:1")
    seen(connection, 1)
    time.sleep(2)
    paths = Installed.find(str(rig.etc))
    library = LibSlurm(load_shim(paths.shim, paths.conf), "test")
    late = Late(library)
    source = SlurmSource(late, Translator(PARTITION, MigKnobs("a100-40gb", 1), 0.0), Cooling(), 0.02)
    for call in ("jobs", "nodes", "partitions", "reservations", "boot_s"):
        with pytest.raises(AdapterError, match=f"{call}: late"):
            source.observe(10)
    state = source.observe(10)
    assert (len(state.nodes), len(state.queued)) == (8, 1)
    library.close()


def test_silence__is_an_error_in_time_not_a_hang(rig: SlurmRig) -> None:
    connection = Slurm(partition=PARTITION, config=str(rig.etc)).open()
    connection.source.observe(10)
    rig.stop_controller()
    try:
        begun_s = time.monotonic()
        with pytest.raises(AdapterError):
            connection.source.observe(0.5)
        (outcome,) = connection.actuator.apply((Start(JobKey("1", 1.0), (Share("node1", 1),)),), 0.5)
        assert not outcome.done
        assert not connection.source.wait(0.3)
        assert time.monotonic() - begun_s < 30  # asked for 1.3; without limits of ours it would be minutes
    finally:
        rig.start_controller()
    rig.wait(lambda: _answers(connection))
    connection.actuator.close()
    connection.source.close()


def _answers(connection: Connection) -> bool:
    try:
        return len(connection.source.observe(2).nodes) == 8
    except AdapterError:
        return False
