"""Machine code that dotcu compiles: what it takes, what was emitted, and from which lines."""
