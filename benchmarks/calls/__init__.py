"""The parts of call_overhead.py: what runs, who runs it, how it is timed and how it is judged."""
