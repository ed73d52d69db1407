"""Shared fixtures: where the public traces lie, when they do."""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parent))

# Compiled kernels make the first example slow; the machines are noisy.
hypothesis.settings.register_profile("smartmig", deadline=None, print_blob=True)
hypothesis.settings.load_profile("smartmig")
