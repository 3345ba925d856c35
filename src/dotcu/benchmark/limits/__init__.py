"""The limits of a GPU: measured ceilings, and its datasheet."""
