"""How policies learn: one algorithm, one file, its settings a dataclass on top. Needs the `train` extra (torch)."""
