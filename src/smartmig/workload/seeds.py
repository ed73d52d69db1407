"""Which seeds are for what: days a policy was trained or tuned on are never reported on."""

from __future__ import annotations

TEST_FIRST = 0
"""reports, comparisons and published tables use seeds from here"""
VALIDATION_FIRST = 10_000_000
"""choosing between trained policies, searching knobs"""
TRAINING_FIRST = 20_000_000
"""learning"""
