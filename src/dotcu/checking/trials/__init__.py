"""The kinds of trials, a module for each: what is done with an operator, and what is compared.

Each has `plan(subject) -> Iterator[Trial]`, which runs no kernel. Where a check cannot run, its plan has
a trial that says why: `skipped(subject, "graph", "needs a GPU")`.
"""
