"""Nodes that Slurm switches off while they are idle, with smartmig in charge."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from slurm_rig import RigSpec, missing
from slurm_site import Site, slurm_site

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

# The nodes are never really off, so nothing switches them on either: a job stays CONFIGURING.
SAVING = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=3600\nSuspendTimeout=1\nResumeTimeout=90\n"


@pytest.fixture
def site() -> Iterator[Site]:
    with slurm_site(RigSpec(n_gpu_nodes=2, n_mig_nodes=0, extra=SAVING)) as site:
        yield site


def test_job__has_a_node_that_is_off_switched_on_and_waits_for_it(site: Site) -> None:
    rig = site.rig
    rig.scontrol("update", "NodeName=node[1-2]", "State=POWER_DOWN", user="root")
    for name in rig.nodes:
        rig.wait(lambda name=name: "+POWERED_DOWN" in rig.scontrol("show", "-o", "node", name))
    jobs = [rig.sbatch(f"--gres=gpu:{count}") for count in (2, 3)]
    rig.wait(lambda: all(rig.job(job)["JobState"] == "CONFIGURING" for job in jobs), what=site.tail())
    time.sleep(14)  # longer than the patience with a job that does not start
    assert {rig.job(job)["JobState"] for job in jobs} == {"CONFIGURING"}
    assert "did not start" not in site.log.read_text()
