"""Arithmetic, logic, comparisons and conversions."""
