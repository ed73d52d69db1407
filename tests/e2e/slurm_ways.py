"""What tests of the adapter alone ask of it."""

from __future__ import annotations

import time

import pytest
from slurm_rig import WAIT_S

from smartmig.ports import Connection
from smartmig.types import ClusterState, Repartition, Start, Stop

both_ways = pytest.mark.parametrize("via", ["libslurm", "scontrol"])


def seen(connection: Connection, queued: int) -> ClusterState:
    state = connection.source.observe(10)
    end_s = time.monotonic() + WAIT_S
    while len(state.queued) < queued and time.monotonic() < end_s:
        connection.source.wait(0.1)
        state = connection.source.observe(10)
    assert len(state.queued) == queued
    return state


def why(connection: Connection, action: Start | Stop | Repartition) -> str:
    (outcome,) = connection.actuator.apply((action,), 10)
    assert outcome.done == (not outcome.why)
    return outcome.why
