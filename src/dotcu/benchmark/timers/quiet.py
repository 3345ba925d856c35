"""What the profiler's library writes to standard output and error, kept away from both."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

LINE = re.compile(
    rb"[A-Z]+:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.(cpp|h):\d+\]"  # Kineto's log
    rb"|\[\w+ [^\]]*(kineto|profiler)[^\]]*\]",  # torch's, where it speaks for Kineto
    re.IGNORECASE,
)
"""How a line of theirs begins. Source: libkineto/src/Logger.cpp; seen: torch 2.11 and 2.13."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Kineto's lines from standard output and error; what others write there comes when the block ends.

    It writes to the descriptors themselves, for the whole process: keep the block short.
    """
    with ExitStack() as stack:
        for descriptor in (1, 2):
            stack.enter_context(_without_log(descriptor))
        yield


@contextmanager
def _without_log(descriptor: int) -> Iterator[None]:
    try:
        outlet = os.dup(descriptor)
    except OSError:  # the process has closed it
        yield
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(outlet, descriptor)
            kept.seek(0)
            rest = b"".join(line for line in kept if not LINE.match(line))
            if rest:
                os.write(outlet, rest)
            os.close(outlet)
