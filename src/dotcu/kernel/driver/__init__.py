"""The CUDA driver: calls, errors, and what a fork forbids."""
