"""Which nodes and GPUs a job gets.

A rule is one file: a frozen dataclass of knobs, a compiled score of nodes and a plain twin that says the same.
"""
