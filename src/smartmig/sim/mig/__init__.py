"""Slices, energy, tardiness: `kernel.py` is the fast engine, `reference.py` its plain twin, `run.py` the front door."""
