"""Processor time of other people's programs, their children included, by control groups: what `times` cannot tell of
daemons whose children are nobody's."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable
from pathlib import Path

ROOTS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


class Meter:
    """One group of processes; counts nothing where control groups cannot be made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.folder: Path | None = None
        for root in ROOTS:
            folder = root / f"smartmig-bench-{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                folder.mkdir()
                self.folder = folder
                break
        self.add(pids)

    def add(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if self.folder is not None:
                with contextlib.suppress(OSError):
                    (self.folder / "cgroup.procs").write_text(str(pid))

    def cpu_s(self) -> float:
        """Used so far; nan where nobody counts."""
        if self.folder is None:
            return float("nan")
        usage = self.folder / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) * 1e-9
        words = (self.folder / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) * 1e-6

    def close(self) -> None:
        """Whoever still runs goes back to the root group."""
        if self.folder is not None:
            for pid in (self.folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (self.folder.parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
