"""Everything smartmig can refuse or fail at, in one tree.

    SmartmigError            anything below; the CLI prints its one sentence and exits
      InputError      (2)    a user's mistake: bad file, bad flag, bad value
        UnknownName   (2)    an id that no registry knows; the sentence lists the known ones and the nearest
      SimulationError (1)    a run that cannot go on (jobs that no cut ever fits)

The number is the exit code of the command line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


class SimulationError(SmartmigError):
    """The simulated world reached a state it cannot leave."""
