"""Where an installation lies: all in one folder beside slurm.conf, but for the submit script, which Slurm looks for
beside slurm.conf itself, and the kick plug-in, which stands among Slurm's own plug-ins."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DEFAULT_CONFIG = Path("/etc/slurm")


@dataclass(frozen=True)
class Installed:
    """Paths, whether or not they exist."""

    config: Path
    """folder of slurm.conf"""

    @classmethod
    def find(cls, config: str) -> Installed:
        """In the folder given, else that of $SLURM_CONF, else Slurm's usual one."""
        if config:
            return cls(Path(config).absolute())
        conf = os.environ.get("SLURM_CONF")
        return cls(Path(conf).absolute().parent if conf else DEFAULT_CONFIG)

    @property
    def conf(self) -> Path:
        return self.config / "slurm.conf"

    @property
    def script(self) -> Path:
        return self.config / "job_submit.lua"

    @property
    def folder(self) -> Path:
        return self.config / "smartmig"

    @property
    def manifest(self) -> Path:
        """What was changed, and our mark."""
        return self.folder / "installed.json"

    @property
    def shim(self) -> Path:
        return self.folder / "libsmartmig_slurm.so"

    @property
    def unit(self) -> Path:
        """For systemd."""
        return self.folder / "smartmig-slurm.service"

    @property
    def off_file(self) -> Path:
        """While it is there, the submit script holds nothing."""
        return self.folder / "off"

    @property
    def started(self) -> Path:
        """Where jobs were sent."""
        return self.folder / "started"

    @property
    def site_script(self) -> Path:
        """The submit script that the site had before."""
        return self.folder / "job_submit.site.lua"

    @property
    def conf_backup(self) -> Path:
        return self.folder / "slurm.conf.before"


def switch_off(off_file: Path) -> None:
    """The submit script holds nothing from now on. slurmctld may run as another user, and must see that."""
    off_file.touch()
    with suppress(PermissionError):  # of another user's file, which is there already
        off_file.chmod(0o644)
