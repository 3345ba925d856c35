"""At each save: load the target again, check it, and time it against the last version that passed.

    files -> watcher -> a worker, which loads and tries -> events -> WatchState -> a page, or lines

The worker is a process that stays: what it has imported, and CUDA, need not start again. Where a kernel ends
it, or a check does not end in time, another takes its place.
"""
