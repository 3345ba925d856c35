"""What each instruction does: one table per instruction class."""
