"""The semantics of each instruction, in one table per instruction class."""
