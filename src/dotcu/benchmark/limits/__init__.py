"""What a GPU can do at best: measured once, kept, and held against its datasheet."""
