"""How a GPU is cut, and when it is cut anew.

A rule is one file: a frozen dataclass of knobs, one compiled function and a plain twin that says the same.
"""
