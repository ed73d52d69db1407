"""Who decided in a recorded session, made again from its first record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from smartmig.cli.live_policy import OLD_FALLBACK, PolicyNames
from smartmig.cli.policy_files import check_digests, trained_ranges
from smartmig.control.memory import Memory
from smartmig.control.pilot import Pilot
from smartmig.control.wire import rules_from_json
from smartmig.errors import InputError

UNCHANGED: Mapping[str, Any] = {}


def recorded_pilot(where: str, boot: dict[str, Any], memory: Memory, changed: Mapping[str, Any] = UNCHANGED) -> Pilot:
    """`changed`: rules in place of the recorded ones. Raises `InputError` for a record that cannot be used."""
    try:
        names = PolicyNames(**{**boot["policy"], **changed})
        fallback = PolicyNames(**boot.get("fallback", asdict(OLD_FALLBACK)))
        rules = rules_from_json(boot["guard"], f"{where}: guard")
        worlds, seed = tuple(boot["worlds"]), int(boot["seed"])
        files = {name: str(digest) for name, digest in boot.get("policy_files", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{where}: a session's first record is not one that this version writes") from None
    if not changed:
        check_digests(where, files)
    policy = names.policy(worlds)
    # Another policy remembers other things: it begins afresh.
    begins = Memory() if changed else memory
    return Pilot(policy, fallback.policy(worlds), rules, seed, begins, trained_ranges(policy))
