"""Requests as rows of arrays, and which of them may be considered at all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from smartmig.types import ClusterState, Ints, JobRequest


class JobTable:
    """Requests as rows, found again by identity: a queue of thousands costs a lookup each, not a conversion."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.requests: list[JobRequest] = []
        self.row_of: dict[int, int] = {}
        self.columns = np.zeros(64, dtype=dtype)

    @abstractmethod
    def row(self, request: JobRequest) -> tuple[Any, ...]: ...

    def rows(self, requests: Sequence[JobRequest]) -> Ints:
        """(n,) row of each request."""
        try:
            return np.fromiter(map(self.row_of.__getitem__, map(id, requests)), np.int64, len(requests))
        except KeyError:
            self._add({id(request): request for request in requests if id(request) not in self.row_of})
        return np.fromiter(map(self.row_of.__getitem__, map(id, requests)), np.int64, len(requests))

    def forget(self, n_present: int) -> bool:
        """Begin anew when most rows are of jobs long gone; whether it did, and all row numbers are void."""
        if len(self.requests) <= 4 * n_present + 4096:
            return False
        self.requests, self.row_of = [], {}
        return True

    def _add(self, new: dict[int, JobRequest]) -> None:
        begin, end = len(self.requests), len(self.requests) + len(new)
        self.requests += new.values()  # keeps them alive, so that their ids stay their own
        self.row_of.update(zip(new, range(begin, end), strict=True))
        if end > self.columns.size:
            more = np.zeros(max(self.columns.size, end - self.columns.size), self.columns.dtype)
            self.columns = np.concatenate([self.columns, more])
        # All at once: setting records one by one takes several times as long.
        self.columns[begin:end] = np.array([self.row(request) for request in new.values()], self.columns.dtype)


def admitted(state: ClusterState, whole: bool) -> list[JobRequest]:
    """Queued jobs of one kind; where there are limits, only as many of a user or group as may run at once."""
    if not whole or any(node.gpus for node in state.nodes):
        queued = [request for request in state.queued if (request.n_gpus > 0) == whole]
    else:
        queued = list(state.queued)  # without MIG cards nobody asks for slices; who does is left out later
    if not state.limits:
        return queued
    left = {(limit.user, limit.group): limit.max_gpus for limit in state.limits}
    for job in state.running:
        for at in _holders(job.request):
            if at in left:
                left[at] -= max(1, job.request.n_gpus)
    within = []
    for request in queued:
        mine = [at for at in _holders(request) if at in left]
        if all(left[at] >= max(1, request.n_gpus) for at in mine):
            within.append(request)
            for at in mine:
                left[at] -= max(1, request.n_gpus)
    return within


def _holders(request: JobRequest) -> set[tuple[str, str]]:
    """Whose limits count for the job."""
    return {(request.user, ""), ("", request.group), (request.user, request.group)}
