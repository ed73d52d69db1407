"""Benchmarks: each checks the answer, then times it, as a ratio within one run. `python -m bench` runs all."""
