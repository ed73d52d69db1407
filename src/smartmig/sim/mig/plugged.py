"""Names that `kernel.engine` binds to the functions of the plugged-in rules; here they stand for "some rule"."""

from __future__ import annotations

from typing import Any

rule_key: Any = None
rule_choose: Any = None
rule_level: Any = None
rule_prepare: Any = None
rule_control: Any = None
