"""Flags that several verbs share, and how their text becomes values."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from smartmig.cli import complete
from smartmig.errors import InputError, UnknownName
from smartmig.scenario import PAIRS, RuleSpec


class Recut(StrEnum):
    paper = "paper"
    drain = "drain"


class Speed(StrEnum):
    as_given = "as-given"
    estimated = "estimated"


Gpus = Annotated[
    str,
    typer.Option(help="Cluster, e.g. 8xa100-40gb or 4xa100-40gb,4xh200-141gb.", autocompletion=complete.clusters),
]
Layouts = Annotated[
    str | None,
    typer.Option(help="One cut per GPU: configuration numbers or 4g+2g+1g; 2x10 repeats. Default: the policy's own."),
]
Preempt = Annotated[bool, typer.Option("--preempt/--no-preempt", help="Decide every slice anew at every event.")]
RecutMode = Annotated[
    Recut, typer.Option(help="paper: a re-cut GPU is down 4 s; drain: idle instances only, beside running work.")
]
RestartS = Annotated[float, typer.Option(min=0, max=1e9, help="Seconds a stopped job loses when it starts again.")]
SpeedMode = Annotated[
    Speed, typer.Option(help="as-given: run times hold on every GPU model; estimated: scale them by model.")
]


def rule_spec(text: str, where: str) -> RuleSpec:
    """`id` or `id:knob=value,knob=value`; a value is YAML on one line, its own commas stand in brackets."""
    name, _, rest = text.partition(":")
    if not rest:
        return name.strip()
    spec: dict[str, Any] = {"id": name.strip()}
    for part in re.split(r",(?![^\[]*\])", rest):
        knob, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{where}: '{part}' in '{text}' is not knob=value")
        try:
            spec[knob.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"{where}: the value in '{part}' cannot be read") from None
    return spec


PolicyFile = Annotated[
    Path | None,
    typer.Option(
        help="Trained policy for `mean-field`, `--policy joint` or (gang) `learned`, in place of the shipped one.",
        dir_okay=False,
    ),
]


def pair_of(policy: str, where: str, policy_file: Path | None) -> tuple[RuleSpec, RuleSpec]:
    """Placement and repartition rule of a pair, with a trained policy of one's own where there is one."""
    if policy not in PAIRS:
        raise UnknownName("policy", policy, list(PAIRS), where)
    if policy_file is None:
        return PAIRS[policy]
    own = {"policy_file": str(policy_file)}
    return {"id": "learned", **own}, {"id": "mean-field", **own}


def with_policy_file(spec: RuleSpec, policy_file: Path | None) -> RuleSpec:
    """The rule with a trained policy of one's own, where the rule is one that takes it."""
    if policy_file is None:
        return spec
    knobs = {"id": spec} if isinstance(spec, str) else spec
    return {**knobs, "policy_file": str(policy_file)} if knobs.get("id") in ("mean-field", "learned") else spec


def field_docs(settings: type) -> dict[str, str]:
    """The string below each field of a dataclass: its documentation, and its flag's help."""
    docs = {}
    for part in settings.__mro__[-2::-1]:  # all but `object`, the last word is the class's own
        tree = ast.parse(textwrap.dedent(inspect.getsource(part)))
        body = tree.body[0].body  # type: ignore[attr-defined]
        for field, following in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(following, ast.Expr):
                docs[field.target.id] = str(following.value.value)  # type: ignore[union-attr, attr-defined]
    return docs


def with_flags(settings: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Every field of the dataclass becomes a flag of the verb, which gets them as one object, `settings`.

    The flag of a field with several values is repeated. A field's metadata may hold the flag, where the language does
    not allow its name, and what a shell completes it with.
    """
    docs = field_docs(settings)
    several = "tuple[str, ...]"
    kinds = {"int": int, "float": float, "str": str, "bool": bool, several: list[str]}

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        names = [field.name for field in fields(settings)]

        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in names}
            chosen = settings(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
            verb(settings=chosen, **given)

        own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.name != "settings"]
        flags = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=[] if field.type == several else field.default,
                annotation=Annotated[
                    kinds[str(field.type)],
                    typer.Option(
                        *field.metadata.get("flag", ()),
                        help=" ".join(docs[field.name].split()),
                        autocompletion=field.metadata.get("complete"),
                    ),
                ],
            )
            for field in fields(settings)
        ]
        keyword = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature([*(p.replace(kind=keyword) for p in own), *flags])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *flags)}
        run.__doc__, run.__name__ = verb.__doc__, verb.__name__
        return run

    return decorate
