"""The published tables and figures, run again: ours with intervals beside theirs.

One file per paper; a reproduction is data (rows, published numbers, one line on where and why they differ) and the
runner is the same for all. Only here do watt-minutes and S1's energy accounting appear.
"""
