"""slurm.conf as text: two settings are changed, every other byte stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from smartmig.errors import InputError

HEADING = "# Added by `smartmig slurm install`; `smartmig slurm uninstall` takes it away."
TUNING: Mapping[str, str] = {
    "batch_sched_delay": "0",
    "sched_interval": "1",
    "sched_min_interval": "0",
    "default_queue_depth": "10000",
}
"""Slurm then looks at a released job within a second even without the kick (slurm.conf(5), "SchedulerParameters")."""

_SETTING = re.compile(r"\s*([A-Za-z]+)\s*=\s*(.*?)\s*(?:#.*)?")
_LISTED = re.compile(r"\s*(?:PartitionName|NodeName)\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class SlurmConf:
    """The file's lines, without their line feeds; a carriage return stays."""

    path: Path
    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> SlurmConf:
        try:
            return cls.of(path, path.read_bytes())
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot read: {getattr(error, 'strerror', error)}") from None

    @classmethod
    def of(cls, path: Path, content: bytes) -> SlurmConf:
        return cls(path, tuple(content.decode("utf-8").split("\n")))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def get(self, key: str) -> str:
        """The value of a setting; empty when it is not there. `InputError` when an included file has it."""
        at = self._find(key)
        if at is not None:
            found = _SETTING.fullmatch(self.lines[at])
            return found[2] if found else ""
        for include in self._includes():
            if SlurmConf.read(include)._find(key) is not None:
                raise InputError(f"{include}: {key} stands in an included file; move it to {self.path}")
        return ""

    def partitions(self) -> tuple[str, ...]:
        """Their names, those of included files too."""
        found = []
        for conf in (self, *map(SlurmConf.read, self._includes())):
            for line in conf.lines:
                name = re.match(r"\s*PartitionName\s*=\s*([^\s#]+)", line, re.IGNORECASE)
                if name is not None and name[1].upper() != "DEFAULT":
                    found.append(name[1])
        return tuple(dict.fromkeys(found))

    def with_settings(self, values: Mapping[str, str]) -> SlurmConf:
        """The settings changed where they stand, or added at the end."""
        lines = list(self.lines)
        added = []
        line_end = "\r" if lines[0].endswith("\r") else ""
        for key, value in values.items():
            at = self._find(key)
            if at is None:
                added.append(f"{key}={value}")
            elif self.get(key) != value:
                if lines[at].rstrip().endswith("\\"):
                    raise InputError(f"{self.path}:{at + 1}: {key} goes on over several lines; write it on one")
                lines[at] = f"{key}={value}{line_end}"
        if added:
            if lines[-1] == "":
                lines.pop()
            elif line_end:
                lines[-1] += line_end
            lines += [*(f"{line}{line_end}" for line in (HEADING, *added)), ""]
        return SlurmConf(self.path, tuple(lines))

    def without_settings(self, ours: Mapping[str, str], before: Mapping[str, str]) -> SlurmConf:
        """Undo `with_settings` in a file that somebody has changed since: `before` has the lines as they were, empty
        for those that were added. Of a list that was changed, too, only our words go."""
        lines = []
        for line in self.lines:
            found = _SETTING.fullmatch(line)
            key = next((key for key in ours if found and key.lower() == found[1].lower()), None)
            if line.rstrip() == HEADING:
                continue
            if key is None or found is None:
                lines.append(line)
            elif found[2] == ours[key]:
                lines += [before[key]] if before.get(key) else []
            else:
                old = _SETTING.fullmatch(before.get(key, ""))
                added = set(_words(ours[key])) - set(_words(old[2] if old is not None else ""))
                words = _words(found[2])
                kept = [word for word in words if word not in added]
                if kept:
                    end = "\r" if line.endswith("\r") else ""
                    lines.append(line if kept == words else f"{found[1]}={','.join(kept)}{end}")
        return SlurmConf(self.path, tuple(lines))

    def line_of(self, key: str) -> str:
        at = self._find(key)
        return self.lines[at] if at is not None else ""

    def _find(self, key: str) -> int | None:
        """The last line that sets it, as Slurm reads."""
        found = None
        for at, line in enumerate(self.lines):
            match = _SETTING.fullmatch(line) if not _LISTED.match(line) else None
            if match is not None and match[1].lower() == key.lower():
                found = at
        return found

    def _includes(self) -> tuple[Path, ...]:
        found = []
        for line in self.lines:
            include = re.match(r"\s*include\s+(\S+)", line, re.IGNORECASE)
            if include is not None:
                path = Path(include[1])
                path = path if path.is_absolute() else self.path.parent / path
                found += [path] if path.exists() else []
        return tuple(found)


def with_words(value: str, words: tuple[str, ...]) -> str:
    """A list of names joined by commas, with these at its end."""
    names = _words(value)
    return ",".join([*names, *(word for word in words if word not in names)])


def with_tuning(value: str) -> str:
    """The site's own parameters win."""
    given = _words(value)
    keys = {word.partition("=")[0] for word in given}
    return ",".join([*given, *(f"{key}={number}" for key, number in TUNING.items() if key not in keys)])


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]
