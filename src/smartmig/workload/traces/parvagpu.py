"""Inference throughput per MIG size, batch and number of MPS processes on an A100-80GB (ParvaGPU).

Source: github.com/MunQ-Lee/ParvaGPU_SC24; Lee et al., SC 2024. Licence: MIT.

A throughput of 0 means the run did not fit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smartmig.errors import InputError
from smartmig.workload.curves import Curve
from smartmig.workload.table import Table
from smartmig.workload.traces.measured import curves_of, sizes_of

REQUIRED = ("model", "Mig instance", "Batch size", "Workload Number", "Throughput")


def read_curves(path: Path, fill_gaps: bool = False, processes: int | None = 1) -> tuple[Curve, ...]:
    """One curve per model and batch size, named like `parvagpu:bert-infer-bs8`.

    `processes` is the number of MPS processes that share the slice; None takes the best number for each size. The file
    gives the throughput of one process (batch / latency), so the slice's is that times the processes. Where 1g does
    not fit it is nan and the smallest size k that fits has speedup k.
    """
    table = Table.read(Path(path), REQUIRED, optional=None)
    n_processes, each = table.numbers("Workload Number"), table.numbers("Throughput", empty=0.0)
    table.refuse_where(each < 0, lambda row: f"Throughput is {each[row]:g}, below 0")
    chosen = np.ones(table.n_rows, dtype=bool) if processes is None else n_processes == processes
    if not chosen.any():
        known = ", ".join(f"{n:g}" for n in np.unique(n_processes))
        raise InputError(f"{path}: no rows with {processes} processes; measured were {known}")
    names = [
        f"parvagpu:{model}-infer-bs{batch}"
        for model, batch in zip(
            table.texts("model", allow_empty=False).tolist(), table.texts("Batch size").tolist(), strict=True
        )
    ]
    throughput = np.where(chosen, n_processes * each, 0.0)
    sizes = sizes_of(table, "Mig instance")
    return curves_of(table, names, sizes, throughput, "ParvaGPU, SC 2024, A100-80GB", fill_gaps)
