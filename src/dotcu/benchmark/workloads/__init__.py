"""The inputs of timed calls."""
