"""Names that `kernel.engine` binds to the functions of the plugged-in rules; here they stand for "some rule"."""

from __future__ import annotations

from typing import Any

rule_select: Any = None
rule_key: Any = None
rule_score: Any = None
rule_prepare: Any = None
