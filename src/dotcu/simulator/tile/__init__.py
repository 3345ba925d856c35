"""Tile kernels on the CPU: Tile IR executed operation by operation, each an operation on NumPy arrays."""
