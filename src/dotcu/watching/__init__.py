"""At each save: load the target anew, try it, and time it beside the last version that held.

    files -> watcher -> a worker, which loads and tries -> events -> State -> a page, or lines

The worker is a process that stays: what it has imported, and CUDA, need not start again. Where a
kernel ends it, or a check does not let go in time, a spare one takes over.
"""
