"""Folders in which a save may mend what is not there: an error's files, headers that lead nowhere.

Such a folder need not exist yet.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from dotcu.checking.blame import is_own
from dotcu.compile import BuildPlan


def of_error(error: BaseException, beside: Path) -> Iterator[Path]:
    """The folders of the user's files that an error came through, or that it could not find.

    Args:
        beside: The folder that the target's own imports are looked for in.
    """
    for each in _chain(error):
        yield from (
            Path(frame.f_code.co_filename).parent
            for frame, _ in traceback.walk_tb(each.__traceback__)
            if is_own(frame.f_code.co_filename)
        )
        if isinstance(each, (OSError, SyntaxError)) and isinstance(each.filename, str):
            yield Path(each.filename).parent
        if isinstance(each, ModuleNotFoundError) and each.name:
            module = beside.joinpath(*each.name.split("."))
            yield from (module.parent, module)


def of_headers(plan: BuildPlan) -> Iterator[Path]:
    """The folders that a header without a file would be found in."""
    sources = (plan.source.path, *(header.path for header in plan.closure.headers.values()))
    folders = {path.parent for path in sources if path} | set(plan.source.include)
    for spelled in plan.closure.absent:
        yield from ((folder / spelled).parent for folder in folders)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__
