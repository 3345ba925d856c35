"""What went wrong inside of torch, in a few lines: its own messages fill pages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dotcu.checking.blame import located
from dotcu.errors import EnvironmentFault, UsageError

MOST_LINES = 5
MOST_COLUMNS = 360

_FRAMES = "Exception raised from"
"""What torch's frames in C++ begin with."""

_LOGGERS = ("torch._subclasses.fake_tensor", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from logging what it stumbles over in a trial, until the block ends: the verdict says it."""
    levels = {logger: logger.level for logger in map(logging.getLogger, _LOGGERS)}
    try:
        for logger in levels:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def brief(error: BaseException) -> str:
    """The first lines of an error, behind the user's file and line, and of what it was first raised from.

    Raises:
        UsageError, EnvironmentFault: It is one, or was raised from one: then no trial can make sense.
    """
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for link in chain:
        if isinstance(link, (UsageError, EnvironmentFault)):
            raise link
    if len(chain) == 1:
        return first_lines(error)
    return f"{first_lines(error)}\ncaused by {first_lines(chain[-1])}"


def first_lines(error: BaseException) -> str:
    """The first lines of an error, behind the user's file and line, none of them endless."""
    words = located(error).partition(_FRAMES)[0]
    lines = [line.rstrip() for line in words.splitlines() if line.strip()]
    shown = [
        line if len(line) <= MOST_COLUMNS else f"{line[:MOST_COLUMNS]}..." for line in lines[:MOST_LINES]
    ]
    return "\n".join([*shown, "..."] if len(lines) > MOST_LINES else shown)


def one_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0]
