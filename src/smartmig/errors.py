"""Everything smartmig can refuse or fail at, in one tree.

    SmartmigError            anything below; the CLI prints its one sentence and exits
      InputError      (2)    a user's mistake: bad file, bad flag, bad value
        UnknownName   (2)    an id that no registry knows; the sentence lists the known ones and the nearest
        NoSliceFits   (2)    a job that no slice of the cluster can run
        NoNodesFit    (2)    a job that the whole cluster, empty, cannot run
      SimulationError (1)    a run that cannot go on (jobs that no cut ever fits)
      AdapterError    (1)    a cluster, or a store, that does not answer or refuses
        PartlyRefused (1)    a cluster that did what it could of something
      MissingPackage  (1)    a part of smartmig that needs an extra which is not installed

The number is the exit code of the command line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class SmartmigError(Exception):
    """Root of the tree; `str(error)` is one sentence a user can act on."""

    exit_code = 1


class InputError(SmartmigError):
    """Says what is wrong, what was got, what is allowed, and where."""

    exit_code = 2


class UnknownName(InputError):
    """An id nobody registered.

    `what` names the kind of thing ("placement"), `where` the file or flag it stood in.
    """

    def __init__(self, what: str, got: str, known: Iterable[str], where: str = "") -> None:
        names = list(known)
        nearest = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
        hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}no {what} '{got}'.{hint} Known: {', '.join(names)}.")
        self._made_from = (what, got, names, where)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_from  # worker processes send errors home


class NoSliceFits(InputError):
    """A job that can never run; `job_id` lets the reader of its file name the line."""

    def __init__(self, job_id: str, why: str) -> None:
        self.job_id = job_id
        super().__init__(f"job '{job_id}' {why}")
        self._made_from = (job_id, why)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_from


class NoNodesFit(NoSliceFits):
    """The same for jobs that take whole GPUs."""


class SimulationError(SmartmigError):
    """The simulated world reached a state it cannot leave."""


class AdapterError(SmartmigError):
    """The outside did not do what was asked; the sentence names it and what to look at."""


class PartlyRefused(AdapterError):
    """The outside answered, and did all but some; the sentence names what it refused."""


class MissingPackage(SmartmigError):
    """A package of an extra is not there; the sentence says how to install it."""

    def __init__(self, what: str, extra: str, package: str) -> None:
        super().__init__(f"{what} needs the package '{package}'; install it with: pip install 'smartmig[{extra}]'")
        self._made_from = (what, extra, package)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_from
