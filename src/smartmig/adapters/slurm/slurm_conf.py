"""slurm.conf as text: two settings are changed, every other byte stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
        """The value of a setting, included files read where they stand; empty when it is not there."""
        found = [value for _, line in self._read() if (value := _value(line, key)) is not None]
        return found[-1] if found else ""

    def partitions(self) -> tuple[str, ...]:
        """Their names, those of included files too."""
        found = []
        for _, line in self._read():
            match = re.match(r"\s*PartitionName\s*=\s*([^\s#]+)", line, re.IGNORECASE)
            if match is not None and (name := _unquoted(match[1])).upper() != "DEFAULT":
                found.append(name)
        return tuple(dict.fromkeys(found))

    def with_settings(self, values: Mapping[str, str]) -> SlurmConf:
        """The settings changed where they stand, or added at the end. `InputError` when an included file has one."""
        lines = list(self.lines)
        added = []
        line_end = "\r" if lines[0].endswith("\r") else ""
        for key, value in values.items():
            self._refuse_included(key)
            if '"' in value:
                raise InputError(f"{self.path}: {key}: there is a quotation mark inside {value}; write it without")
            at = self._find(key)
            if at is None:
                added.append(_line(key, value))
            elif self.get(key) != value:
                if lines[at].rstrip().endswith("\\"):
                    raise InputError(f"{self.path}:{at + 1}: {key} goes on over several lines; write it on one")
                lines[at] = f"{_line(key, value)}{line_end}"
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
            elif _unquoted(found[2]) == ours[key]:
                lines += [before[key]] if before.get(key) else []
            else:
                old = _SETTING.fullmatch(before.get(key, ""))
                added = set(_words(ours[key])) - set(_words(_unquoted(old[2]) if old is not None else ""))
                words = _words(_unquoted(found[2]))
                kept = [word for word in words if word not in added]
                if kept:
                    end = "\r" if line.endswith("\r") else ""
                    lines.append(line if kept == words else f"{_line(found[1], ','.join(kept))}{end}")
        return SlurmConf(self.path, tuple(lines))

    def line_of(self, key: str) -> str:
        at = self._find(key)
        return self.lines[at] if at is not None else ""

    def _find(self, key: str) -> int | None:
        """The last line that sets it, as Slurm reads."""
        found = [at for at, line in enumerate(self.lines) if _value(line, key) is not None]
        return found[-1] if found else None

    def _read(self, within: tuple[Path, ...] = ()) -> Iterator[tuple[Path, str]]:
        """Line by line, with the file it stands in."""
        for line in self.lines:
            yield self.path, line
            include = re.match(r"\s*include\s+(\S+)", line, re.IGNORECASE)
            if include is None:
                continue
            folder = (*within, self.path)[0].parent
            path = folder / include[1].replace("%c", self._cluster())
            if path.exists() and path not in within:
                yield from SlurmConf.read(path)._read((*within, self.path))

    def _cluster(self) -> str:
        return next((name for line in self.lines if (name := _value(line, "ClusterName"))), "")

    def _refuse_included(self, key: str) -> None:
        for path, line in self._read():
            if path != self.path and _value(line, key) is not None:
                raise InputError(f"{path}: {key} stands in an included file; move it to {self.path}")


def with_words(value: str, words: tuple[str, ...]) -> str:
    """A list of names joined by commas, with these at its end."""
    names = _words(value)
    return ",".join([*names, *(word for word in words if word not in names)])


def with_tuning(value: str) -> str:
    """The site's own parameters win."""
    given = _words(value)
    keys = {word.partition("=")[0] for word in given}
    return ",".join([*given, *(f"{key}={number}" for key, number in TUNING.items() if key not in keys)])


def _value(line: str, key: str) -> str | None:
    """What the line sets it to: Slurm takes one setting per line, but for those of partitions and nodes."""
    match = _SETTING.fullmatch(line) if not _LISTED.match(line) else None
    return _unquoted(match[2]) if match is not None and match[1].lower() == key.lower() else None


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _line(key: str, value: str) -> str:
    return f'{key}="{value}"' if " " in value else f"{key}={value}"


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]
