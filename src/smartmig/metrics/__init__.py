"""What it cost: a `Run` becomes numbers."""
