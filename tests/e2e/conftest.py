"""One Slurm for all tests of the adapter alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_rig import PARTITION, SlurmRig
from slurm_site import Site

from smartmig.adapters.slurm import Slurm
from smartmig.ports import Connection


# Slurm's library reads one configuration in the life of a process, so no other rig may be talked to through it there.
@pytest.fixture(scope="session")
def rig() -> Iterator[SlurmRig]:
    with SlurmRig() as rig:
        Site(rig).install()
        yield rig


@pytest.fixture
def via() -> str:
    return "libslurm"


@pytest.fixture
def connection(rig: SlurmRig, via: str) -> Iterator[Connection]:
    (rig.jobs / "ran.log").unlink(missing_ok=True)
    connection = Slurm(partition=PARTITION, config=str(rig.etc), via=via).open()
    connection.source.observe(10)
    connection.actuator.take_over(10)
    yield connection
    connection.actuator.let_go(10)
    rig.call(["scancel", "--user=nobody"], check=False)
    rig.wait(lambda: not rig.call(["squeue", "-a", "-h"]).strip())
    connection.actuator.close()
    connection.source.close()
