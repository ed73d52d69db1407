"""`smartmig train ranges`: what a policy's inputs looked like on days like those of its training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from smartmig.cli.console import Json, log, print_json
from smartmig.cli.options import rule_spec
from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.policy_file import JOINT, MEAN_FIELD, PRICES, PolicyFile, read_policy, write_policy
from smartmig.scenario import placement_rule, repartition_rule
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.world import Settings
from smartmig.workload.diurnal import DiurnalDay


def ranges(
    policy_file: Annotated[Path, typer.Argument(help="Policy to extend (.npz); it is written anew.", dir_okay=False)],
    days: Annotated[int, typer.Option(min=1, help="Days to look at.")] = 32,
    first_seed: Annotated[int, typer.Option(min=0, help="Of the first day; training counts from 1000 up.")] = 1000,
    multiplier: Annotated[float, typer.Option(help="Load of the days (20 for 8 GPUs).")] = 20.0,
    json_output: Json = False,
) -> None:
    """Write into a policy's file which inputs it was trained on, for the guard of a live controller."""
    from smartmig.train.ranges import feature_ranges

    policy = _read(policy_file)
    about = policy.about
    # A rule reads its file when it is built, so each part comes from the file that has it.
    own = {"policy_file": str(policy_file)}
    if about.kind == MEAN_FIELD:
        placement = placement_rule(rule_spec(about.placement, str(policy_file)))
    else:
        placement = placement_rule({"id": "learned", **own})
    if about.kind == PRICES:
        cutting = repartition_rule(rule_spec(about.placement.removeprefix("with "), str(policy_file)))
    else:
        cutting = repartition_rule({"id": "mean-field", **own})
    cluster = Cluster(parse_gpus(f"8x{about.gpus[0]}"))
    job_sets = [DiurnalDay(multiplier=multiplier).jobs(first_seed + day) for day in range(days)]
    settings = Settings(preempt=about.preempt, drain=about.drain)
    found = feature_ranges(cluster, placement, cutting, settings, job_sets)
    write_policy(policy_file, replace(policy, ranges=found))
    if json_output:
        print_json({"policy_file": str(policy_file), "days": days, "low": found[0].tolist(), "high": found[1].tolist()})
    else:
        log(f"ranges of {found.shape[1]} inputs over {days} days written to {policy_file}")


def _read(path: Path) -> PolicyFile:
    """Of whatever kind it is, whole."""
    for kind in (JOINT, MEAN_FIELD, PRICES):
        try:
            return read_policy(path, kind)
        except InputError as error:
            if "needed is" not in str(error):
                raise
    raise InputError(f"{path}: not of MIG cards; agents of whole GPUs get their ranges from `smartmig train gang`")
