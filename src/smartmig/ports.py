"""The verbs: what a live cluster must be able to do for us. Small, and the same for a simulated and a real one.

An adapter (`adapters/`) is a frozen dataclass of knobs with `open`; reading and acting are two objects, every call has
a timeout, and what the cluster does not answer in time is an `AdapterError`, never a hang.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from smartmig.types import ClusterState, Outcome, Plan


class Clock(Protocol):
    """Time, passed in so that nobody reads it behind our back."""

    def now_s(self) -> float:
        """Seconds since 1970 UTC, as the cluster counts them."""
        ...


class Source(Protocol):
    """Reads a cluster. Calls come from one thread at a time."""

    def observe(self, timeout_s: float) -> ClusterState:
        """The cluster now. A job that has not changed should be the same object as last time: comparing is then free.

        Raises `AdapterError` when the cluster does not answer in time.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """Block until something may have changed (True) or the time is over (False). Never raises for a cluster that
        is away: that is what `observe` finds out."""
        ...

    def close(self) -> None: ...


class Actuator(Protocol):
    """Changes a cluster. Calls come from one thread at a time, not necessarily that of the source."""

    def apply(self, plan: Plan, timeout_s: float) -> tuple[Outcome, ...]:
        """Carry out stops, then cuts, then starts; one outcome per action, in the plan's order.

        What cannot be done is an outcome that says why; nothing is half done. Starting a job that already runs, or is
        gone, is refused, not repeated. Raises `AdapterError` only when nothing could be done at all.
        """
        ...

    def let_go(self, timeout_s: float) -> int:
        """The kill switch: the cluster schedules by itself from now on; every job that we hold is released. Safe to
        call again, and without ever having started anything. Returns how many jobs were released."""
        ...

    def take_over(self, timeout_s: float) -> int:
        """Undo `let_go`: hold new jobs, and those that wait. Called before the first `apply` of mode `act`. Returns
        how many jobs are held."""
        ...

    def close(self) -> None: ...


class Connection(NamedTuple):
    """A cluster, opened."""

    source: Source
    actuator: Actuator
    clock: Clock


class Adapter(Protocol):
    """Knobs of one kind of cluster; registered in `registry.ADAPTERS`."""

    def open(self) -> Connection:
        """Raises `InputError` for knobs that make no sense, `AdapterError` when the cluster is not there."""
        ...
