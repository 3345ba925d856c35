"""Registers, loads, stores and atomics."""
