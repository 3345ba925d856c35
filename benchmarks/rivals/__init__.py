"""Whom the gallery is measured against, on what, and what is told of it."""
