"""What is timed: inputs, and who computes on them."""
