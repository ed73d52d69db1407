"""Slurm's states as ours: one table each, with the names of Slurm's manual."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from smartmig.types import NodeState


class JobState(StrEnum):
    """ "JOB STATE CODES" of squeue(1), without the flags that may follow after a plus."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"


COMPLETING = "COMPLETING"
"""the flag of a job whose nodes are not given back yet"""

HOLDING = frozenset({JobState.RUNNING, JobState.SUSPENDED})

NEVER = "DependencyNeverSatisfied"
"""of "JOB REASON CODES" of squeue(1)"""

NODE_WORDS: dict[str, NodeState] = {
    # "NODE STATE CODES" of sinfo(1): the state itself ...
    "UNKNOWN": NodeState.down,
    "DOWN": NodeState.down,
    "IDLE": NodeState.up,
    "ALLOCATED": NodeState.up,
    "ERROR": NodeState.down,
    "MIXED": NodeState.up,
    "FUTURE": NodeState.down,
    # ... and the flags after it, which scontrol(1) joins with a plus.
    "CLOUD": NodeState.up,
    "COMPLETING": NodeState.up,
    "PLANNED": NodeState.up,
    "RESERVED": NodeState.up,
    "DRAIN": NodeState.drained,
    "FAIL": NodeState.drained,
    "MAINTENANCE": NodeState.drained,
    "REBOOT_REQUESTED": NodeState.drained,
    "REBOOT_ISSUED": NodeState.down,
    "INVALID_REG": NodeState.drained,
    "NOT_RESPONDING": NodeState.down,
    # Slurm switches a node on for a job that is to start there; but not before it is quite off.
    "POWERED_DOWN": NodeState.up,
    "POWERING_DOWN": NodeState.down,
    "POWERING_UP": NodeState.up,
    "POWER_DOWN": NodeState.down,
    "POWER_UP": NodeState.up,
    "DYNAMIC_NORM": NodeState.up,
}

SWITCHED_OFF = frozenset({"POWERED_DOWN", "POWERING_UP"})
"""nodes from which no answer is expected"""

PARTITION_UP, PARTITION_DOWN = "UP", "DOWN"
"""as far as starts go"""
PARTITION_STARTS = frozenset({"UP", "DRAIN"})
"""of `State` in scontrol(1): the second takes no submissions, but starts what it has"""


@lru_cache(maxsize=1024)
def node_state(words: str) -> NodeState:
    """The worst of what the state and its flags say; a word we do not know keeps us away."""
    said = {word.rstrip("*~#!%$@^-") for word in words.split("+")}
    if said & SWITCHED_OFF:
        said.discard("NOT_RESPONDING")
    found = {NODE_WORDS.get(word, NodeState.drained) for word in said}
    return next(state for state in (NodeState.down, NodeState.drained, NodeState.up) if state in found)
