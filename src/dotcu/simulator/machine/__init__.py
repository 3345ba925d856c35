"""The machine: blocks and their lanes, memory, barriers, and who runs when."""
