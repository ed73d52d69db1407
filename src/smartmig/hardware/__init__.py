"""What exists: GPU models, how they may be cut, how a cut becomes another, and what they draw."""
