"""The machine: blocks and their threads, memory, barriers, scheduling."""
