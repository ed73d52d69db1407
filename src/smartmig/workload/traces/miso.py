"""Training step times on the slices of an A100-40GB (MISO).

Source: github.com/boringlee24/socc22-miso; Li et al., SoCC 2022. Licence: MIT.

One row per slice, model and batch size, with the mean step time; a missing row means the job did not fit in memory.
"""

from __future__ import annotations

from pathlib import Path

from smartmig.workload.curves import Curve
from smartmig.workload.table import Table
from smartmig.workload.traces.measured import curves_of, sizes_of

REQUIRED = ("gpc", "model", "batch_size", "step_time_s_mean")


def read_curves(path: Path, fill_gaps: bool = False) -> tuple[Curve, ...]:
    """One curve per model and batch size, named like `miso:bert-train-bs8`; 1 / mean step time as throughput.

    The mean, not the median: the steps of some models differ in length. Where 1g does not fit it is nan and the
    smallest size k that fits has speedup k. `fill_gaps` interpolates sizes missing between two measured ones.
    """
    table = Table.read(Path(path), REQUIRED, optional=None)
    step_s = table.numbers("step_time_s_mean")
    table.refuse_where(step_s <= 0, lambda row: f"step_time_s_mean is {step_s[row]:g}; a step time is above 0")
    names = [
        f"miso:{model}-train-bs{batch}"
        for model, batch in zip(
            table.texts("model", allow_empty=False).tolist(), table.texts("batch_size").tolist(), strict=True
        )
    ]
    return curves_of(table, names, sizes_of(table, "gpc"), 1 / step_s, "MISO, SoCC 2022, A100-40GB", fill_gaps)
