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
        """`dtype` has fields of 64-bit floats only, so that rows can be written as the plain numbers they are."""
        self.requests: list[JobRequest] = []
        self.row_of: dict[int, int] = {}
        self._width = dtype.itemsize // 8
        self._numbers = np.zeros(64 * self._width)
        self.columns = self._numbers.view(dtype)

    @abstractmethod
    def row(self, request: JobRequest) -> tuple[float, ...]: ...

    def rows(self, requests: Sequence[JobRequest]) -> Ints:
        """(n,) row of each request."""
        found = list(map(self.row_of.get, map(id, requests)))
        if None in found:
            new = {id(request): request for request, row in zip(requests, found, strict=True) if row is None}
            self._add(new)
            found = [self.row_of[id(one)] if row is None else row for one, row in zip(requests, found, strict=True)]
        return np.array(found, dtype=np.int64)

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
            n_more = max(self.columns.size, end - self.columns.size)
            self._numbers = np.concatenate([self._numbers, np.zeros(n_more * self._width)])
            self.columns = self._numbers.view(self.columns.dtype)
        numbers: list[float] = []
        for request in new.values():
            numbers += self.row(request)
        self._numbers[begin * self._width : end * self._width] = numbers


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
