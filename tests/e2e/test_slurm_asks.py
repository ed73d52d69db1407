"""What jobs may ask for beside GPUs, on a real Slurm with smartmig in charge."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from slurm_rig import PARTITION, missing
from slurm_site import Site, slurm_site

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def shared_site() -> Iterator[Site]:
    with slurm_site() as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    yield shared_site
    shared_site.rig.call(["scancel", "--user=nobody"], check=False)
    shared_site.idle()


def run_on(site: Site, *jobs: int) -> list[str]:
    """Their nodes, once all of them run."""
    site.rig.wait(lambda: all(site.rig.job(job)["JobState"] == "RUNNING" for job in jobs), what=site.tail())
    return [site.rig.job(job)["NodeList"] for job in jobs]


@pytest.mark.parametrize("ask", ["--cpus-per-gpu=20", "--mem-per-gpu=40000", "--mem=0"])
def test_jobs__that_fill_a_node_beside_their_gpu_run_on_two_nodes_at_once(site: Site, ask: str) -> None:
    first = site.rig.sbatch("--gres=gpu:1", ask, seconds=200)
    (node,) = run_on(site, first)
    second = site.rig.sbatch("--gres=gpu:1", ask, seconds=200)
    both = [site.rig.sbatch("--gres=gpu:1", ask, seconds=200) for _ in range(2)]
    assert len({node, *run_on(site, second, *both)}) == 4


@pytest.mark.parametrize(
    ("ask", "nodes"),
    [(("-N3", "--nodelist=node1,node2", "--gres=gpu:1"), "node[1-3]"), (("--gpus=6", "--nodelist=node1"), "node[1-2]")],
)
def test_job__whose_list_names_some_of_its_nodes_runs_on_these_and_others(
    site: Site, ask: tuple[str, ...], nodes: str
) -> None:
    job = site.rig.sbatch(*ask, seconds=200)
    assert run_on(site, job)[0] == nodes
    assert "names only some of its nodes" in site.rig.scontrol("show", "job", str(job))


def test_job__that_only_another_of_its_partitions_can_take_runs_there(site: Site) -> None:
    site.rig.scontrol("update", f"PartitionName={PARTITION}", "MaxTime=5", user="root")
    time.sleep(1.5)  # smartmig has seen it
    try:
        job = site.rig.sbatch("--gres=gpu:1", "-t", "60", partition=f"other,{PARTITION}", seconds=200)
        run_on(site, job)
        assert site.rig.job(job)["Partition"] == "other"
    finally:
        site.rig.scontrol("update", f"PartitionName={PARTITION}", "MaxTime=INFINITE", user="root")
