"""Where things plug in: id -> "module:attribute", imported on first use.

Adding a rule or a trace format is one file and one line here. A file may fit several formats: the first one listed is
taken.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from smartmig.errors import UnknownName

PLACEMENTS: Mapping[str, str] = {
    "edf-most-packed": "smartmig.policy.placement.edf_most_packed:EdfMostPacked",
    "marginal-et": "smartmig.policy.placement.marginal_et:MarginalEt",
    "categorical-edf": "smartmig.policy.placement.categorical_edf:CategoricalEdf",
    "shortest-work": "smartmig.policy.placement.shortest_work:ShortestWork",
    "learned": "smartmig.policy.placement.learned:Learned",
    "random-slice": "smartmig.policy.placement.random_slice:RandomSlice",
    "earliest-finish": "smartmig.policy.placement.earliest_finish:EarliestFinish",
    "earliest-finish-waiting": "smartmig.policy.placement.earliest_finish_waiting:EarliestFinishWaiting",
    "largest-first": "smartmig.policy.placement.largest_first:LargestFirst",
    "smallest-first": "smartmig.policy.placement.smallest_first:SmallestFirst",
    "edf-fastest": "smartmig.policy.placement.earliest_finish:EarliestFinish",
    "edf-slowest": "smartmig.policy.placement.single_gpu:EdfSlowest",
    "llf-fastest": "smartmig.policy.placement.single_gpu:LlfFastest",
    "llf-slowest": "smartmig.policy.placement.single_gpu:LlfSlowest",
}

REPARTITIONS: Mapping[str, str] = {
    "no-partition": "smartmig.policy.repartition.no_partition:NoPartition",
    "static": "smartmig.policy.repartition.static:Static",
    "twice-daily": "smartmig.policy.repartition.twice_daily:TwiceDaily",
    "slice-count": "smartmig.policy.repartition.slice_count:SliceCount",
    "mean-field": "smartmig.policy.repartition.mean_field:MeanField",
    "planner": "smartmig.policy.repartition.planner:Planner",
}

SELECTIONS: Mapping[str, str] = {
    "fcfs": "smartmig.policy.selection.fcfs:Fcfs",
    "lcfs": "smartmig.policy.selection.lcfs:Lcfs",
    "sjf": "smartmig.policy.selection.sjf:Sjf",
    "sjf-predicted": "smartmig.policy.selection.sjf_predicted:SjfPredicted",
    "sjf-oracle": "smartmig.policy.selection.sjf_oracle:SjfOracle",
    "f1": "smartmig.policy.selection.f1:F1",
    "wfp": "smartmig.policy.selection.wfp:Wfp",
    "unicep": "smartmig.policy.selection.unicep:Unicep",
    "multifactor": "smartmig.policy.selection.multifactor:Multifactor",
    "learned": "smartmig.policy.selection.learned:Learned",
}

ALLOCATIONS: Mapping[str, str] = {
    "first-available": "smartmig.policy.allocation.first_available:FirstAvailable",
    "best-fit": "smartmig.policy.allocation.best_fit:BestFit",
    "topology-aware": "smartmig.policy.allocation.topology_aware:TopologyAware",
    "fragmentation-aware": "smartmig.policy.allocation.fragmentation_aware:FragmentationAware",
    "learned": "smartmig.policy.allocation.learned:Learned",
}

WORKLOADS: Mapping[str, str] = {
    "day": "smartmig.workload.diurnal:DiurnalDay",
    "fixed-rate": "smartmig.workload.poisson:FixedRate",
}

TRACES: Mapping[str, str] = {
    "csv": "smartmig.workload.jobs_csv:CsvJobs",
    "openb": "smartmig.workload.traces.openb:OpenbPods",
    "genai": "smartmig.workload.traces.genai:GenaiRequests",
}

GANG_TRACES: Mapping[str, str] = {
    "csv": "smartmig.workload.gang.jobs_csv:CsvGangs",
    "helios": "smartmig.workload.gang.helios:HeliosJobs",
    "philly": "smartmig.workload.gang.philly:PhillyJobs",
    "swf": "smartmig.workload.gang.swf:SwfJobs",
    "sacct": "smartmig.workload.gang.sacct:SacctJobs",
    "openb": "smartmig.workload.gang.openb:OpenbGangs",
    "pai": "smartmig.workload.gang.pai:PaiTasks",
    "drac": "smartmig.workload.gang.drac:DracJobs",
    "beocat": "smartmig.workload.gang.beocat:BeocatJobs",
}

REQUESTS: Mapping[str, str] = {
    "menu-1h": "smartmig.workload.gang.requests:menu_1h",
    "menu-15min": "smartmig.workload.gang.requests:menu_15min",
    "unrounded": "smartmig.workload.gang.requests:unrounded",
    "perfect": "smartmig.workload.gang.requests:perfect",
    "three-classes": "smartmig.workload.gang.requests:three_classes",
    "constant": "smartmig.workload.gang.requests:constant",
}

CURVE_SETS: Mapping[str, str] = {
    "published": "smartmig.workload.curves:published_curves",
    "miso": "smartmig.workload.traces.miso:read_curves",
    "migperf": "smartmig.workload.traces.migperf:read_curves",
    "parvagpu": "smartmig.workload.traces.parvagpu:read_curves",
}

ADAPTERS: Mapping[str, str] = {
    "simulated": "smartmig.adapters.simulated:Simulated",
    "slurm": "smartmig.adapters.slurm:Slurm",
}

REPRODUCTIONS: Mapping[str, str] = {
    "s1-table": "smartmig.reproduce.s1:table",
    "s2": "smartmig.reproduce.s2:table",
    "s3-fig4": "smartmig.reproduce.s3:figure_4",
    "s3-fig6": "smartmig.reproduce.s3:figure_6",
    "s3-fig7": "smartmig.reproduce.s3:figure_7",
    "s3-fig8": "smartmig.reproduce.s3:figure_8",
    "s3-fig9": "smartmig.reproduce.s3:figure_9",
    "s3-fig10": "smartmig.reproduce.s3:figure_10",
    "s3-fig11": "smartmig.reproduce.s3_bounds:figure_11",
    "s3-fig12": "smartmig.reproduce.s3:figure_12",
    "s3-fig13": "smartmig.reproduce.s3_shares:figure_13",
    "s3-table1": "smartmig.reproduce.s3:table_1",
    "s4-table": "smartmig.reproduce.s4:table",
}


def load(table: Mapping[str, str], what: str, name: str, where: str = "") -> Any:
    """The attribute registered under `name`; `UnknownName` lists the others."""
    if name not in table:
        raise UnknownName(what, name, table, where)
    module, _, attribute = table[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def described(table: Mapping[str, str], what: str) -> list[dict[str, Any]]:
    """Every rule of a table: its id, the first line about it, and its knobs with their defaults."""
    rules = []
    for name in table:
        rule = load(table, what, name)
        about = (rule.__doc__ or "").strip().splitlines()[0]
        rules.append({"id": name, "about": about, "knobs": {f.name: f.default for f in fields(rule)}})
    return rules
