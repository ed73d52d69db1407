"""stub"""
from __future__ import annotations
from dataclasses import dataclass
from typing import Any
@dataclass(frozen=True)
class MigPolicy:
    placement: Any
class MigDecider:
    def __init__(self, policy: Any, seed: int) -> None: ...
    def decide(self, state: Any, memory: Any) -> Any: ...
