"""The world, fast."""
