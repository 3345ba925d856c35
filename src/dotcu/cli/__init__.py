"""The command line: one module a verb, and the only place that prints."""
