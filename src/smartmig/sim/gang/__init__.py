"""The whole-GPU world: gangs on nodes, waiting."""
