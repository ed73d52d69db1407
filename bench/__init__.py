"""Benchmarks: each checks the answer, then times it, as a ratio within one run. `python -m bench` runs all."""

import sys
from pathlib import Path

# The Slurm benchmarks use the cluster that the end-to-end tests start.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "e2e"))
