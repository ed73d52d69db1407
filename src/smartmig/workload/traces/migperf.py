"""Latency of training and inference per MIG profile of an A100-80GB (MIGPerf).

Source: github.com/HuaizhengZhang/MIGProfiler. Licence: MIT.

A latency of 0 means the run did not fit. 4g was never measured, so it is nan in every curve unless gaps are filled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smartmig.workload.curves import Curve
from smartmig.workload.table import Table
from smartmig.workload.traces.measured import curves_of, sizes_of

REQUIRED = ("model_name", "batch_size", "latency", "mig_profile")


def read_curves(path: Path, fill_gaps: bool = False) -> tuple[Curve, ...]:
    """One curve per model, batch size and sequence length, named like `migperf:bert-base-infer-bs32-seq64`.

    Throughput is 1 / latency, as the batch is the same on every size (the file's own throughput column counts
    differently from table to table). `train` or `infer` in the name comes from the file's name. Where 1g does not fit
    it is nan and the smallest size k that fits has speedup k. `fill_gaps` interpolates 4g.
    """
    path = Path(path)
    table = Table.read(path, REQUIRED, optional=None)
    latency = table.numbers("latency", empty=0.0)
    table.refuse_where(latency < 0, lambda row: f"latency is {latency[row]:g}, below 0")
    tag = next((f"-{tag}" for tag in ("train", "infer") if tag in path.name), "")
    names = [
        f"migperf:{model}{tag}-bs{batch}"
        for model, batch in zip(
            table.texts("model_name", allow_empty=False).tolist(), table.texts("batch_size").tolist(), strict=True
        )
    ]
    if "seq_length" in table.columns:
        names = [f"{name}-seq{seq}" for name, seq in zip(names, table.texts("seq_length").tolist(), strict=True)]
    throughput = np.divide(1.0, latency, out=np.zeros_like(latency), where=latency > 0)
    return curves_of(table, names, sizes_of(table, "mig_profile"), throughput, "MIGPerf, A100-80GB", fill_gaps)
