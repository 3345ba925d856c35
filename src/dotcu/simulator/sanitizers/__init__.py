"""Checks while a kernel runs: bounds and alignment, initialization, races."""
