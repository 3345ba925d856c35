"""Counts of what a run executed, by source line."""
