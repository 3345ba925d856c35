"""Machine code that dotcu compiles: its resources, its instructions, and the source lines they come from."""
