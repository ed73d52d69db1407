"""`python -m bench [NAME ...]`: run the benchmarks and print one line each."""

from __future__ import annotations

import sys

from bench import bounds, decision, engine, gang, live, placing, report, slurm, startup, traces

MODULES = (engine, startup, bounds, decision, placing, traces, gang, live, report, slurm)
ALL = {name: benchmark for module in MODULES for name, benchmark in module.BENCHMARKS.items()}


def main() -> int:
    names = sys.argv[1:] or list(ALL)
    failed = 0
    for name in names:
        if name not in ALL:
            print(f"no benchmark '{name}'; known: {', '.join(ALL)}", file=sys.stderr)
            return 2
        result = ALL[name]()
        ok = (result.at_least is None or result.value >= result.at_least) and result.value <= result.at_most
        limits = [f">= {result.at_least:g}"] if result.at_least is not None else []
        limits += [f"<= {result.at_most:g}"] if result.at_most < float("inf") else []
        limit = ", ".join(limits)
        print(f"{'ok  ' if ok else 'FAIL'} {name:28} {result.value:10.2f} {result.unit:10} ({limit})  {result.detail}")
        failed += not ok
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
