"""A file is the old one or the whole new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smartmig.atomic import atomic_write
from smartmig.errors import InputError


def test_atomic_write__failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half() -> None:
        with atomic_write(path) as stream:
            stream.write("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_half()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_atomic_write__new_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic_write(path) as stream:
        stream.write("né\n")
        assert not path.exists()
    assert path.read_bytes() == "né\n".encode()
    with atomic_write(path, "wb") as stream:
        stream.write(b"\xff")
    assert path.read_bytes() == b"\xff"


def test_atomic_write__keeps_links_and_devices(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_write(link) as stream:
        stream.write("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    with atomic_write(Path(os.devnull)) as stream:
        stream.write("gone")
    assert not Path(os.devnull).is_file()


def test_atomic_write__says_where_it_cannot_write(tmp_path: Path) -> None:
    for place in (tmp_path / "no" / "a.txt", tmp_path):
        with pytest.raises(InputError, match="cannot write"), atomic_write(place):
            pass
    with pytest.raises(ValueError, match="mode"), atomic_write(tmp_path / "a", "a"):
        pass
