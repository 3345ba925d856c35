"""What a run executed and what it cost, by source line."""
