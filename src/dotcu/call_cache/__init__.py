"""Replay: a body that only allocates and launches, followed once and from then on replayed from a plan."""
