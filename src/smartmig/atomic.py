"""Files that are either the old one or the whole new one: nothing half written is ever left under the real name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from smartmig.errors import InputError


@contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open `path` for writing (`"w"` text in UTF-8 with `\\n` ends, or `"wb"`); it appears at once when the block ends.

    An exception inside the block leaves the old file as it was. A symbolic link keeps pointing where it did; a device
    or a pipe is written directly, as it must not be replaced. Raises `InputError` when the place cannot be written.
    """
    if mode not in ("w", "wb"):
        raise ValueError(f"mode is 'w' or 'wb', not {mode!r}")
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{path}: cannot write: it is a folder")
    if target.exists() and not target.is_file():
        with _opened(target, path, mode, text) as stream:
            yield stream
        return
    # In the same folder, so that the last step is a rename; a random name keeps two writers apart.
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(6)}.tmp")
    try:
        with _opened(temporary, path, mode, text) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        try:
            temporary.replace(target)
        except OSError as error:
            raise InputError(f"{path}: cannot write: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _opened(place: Path, named: Path, mode: str, text: dict[str, Any]) -> Iterator[IO[Any]]:
    """Only the opening is the user's mistake; errors of the block inside pass through untouched."""
    try:
        stream = place.open(mode, **text)
    except OSError as error:
        raise InputError(f"{named}: cannot write: {error.strerror}") from error
    with stream:
        yield stream
