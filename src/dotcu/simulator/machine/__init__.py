"""The machine: blocks and their lanes, memory, barriers, scheduling."""
