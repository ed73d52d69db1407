"""Which slice a job gets.

A rule is one file: a frozen dataclass of knobs, compiled functions (`Kernels`) and a plain twin that says the same.
"""
