"""To which MIG cards queued jobs may go right now: their node lists, less the nodes that are reserved for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from smartmig.control.access import bars
from smartmig.control.mig_cards import Card
from smartmig.control.mig_pass import ANYWHERE
from smartmig.types import ClusterState, Ints, JobRequest

NOWHERE = -1


class Reach:
    """Jobs that may go to the same cards are a group; mostly there is one."""

    def __init__(self, state: ClusterState, cards: Sequence[Card]) -> None:
        self._state = state
        self._nodes = [card.node for card in cards]
        self._reservations = [one for one in state.reservations if state.time_s < one.to_s]
        anywhere = (True,) * len(cards)
        self._groups = {anywhere: ANYWHERE}
        self._known: dict[tuple[tuple[str, ...], tuple[int, ...]], int] = {((), ()): ANYWHERE}
        self.is_plain = not self._reservations and not any(request.nodes for request in state.queued)

    def group(self, request: JobRequest) -> int:
        """NOWHERE if it may go to none of the cards."""
        barred = tuple(
            [at for at, one in enumerate(self._reservations) if bars(one, request, self._state.time_s)]
            if self._reservations
            else ()
        )
        key = (request.nodes, barred)
        if key not in self._known:
            closed = frozenset[str]().union(*(self._reservations[at].nodes for at in barred))
            listed = frozenset(request.nodes or self._nodes)
            mask = tuple([node in listed and node not in closed for node in self._nodes])
            self._known[key] = self._groups.setdefault(mask, len(self._groups)) if any(mask) else NOWHERE
        return self._known[key]

    def groups(self, requests: Sequence[JobRequest]) -> Ints:
        if self.is_plain:
            return np.full(len(requests), ANYWHERE)
        return np.array([self.group(request) for request in requests], dtype=np.int64)

    def within(self) -> ClusterState:
        """The state without jobs that may go nowhere: nobody is to wait for them, not even where limits count."""
        if self.is_plain:
            return self._state
        queued = tuple([one for one in self._state.queued if one.n_gpus > 0 or self.group(one) != NOWHERE])
        return replace(self._state, queued=queued)

    def allowed(self) -> NDArray[np.bool_]:
        """(n_groups, n_cards) of the groups met so far."""
        return np.array(list(self._groups), dtype=np.bool_)
