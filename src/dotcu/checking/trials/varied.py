"""Which of the derived cases a trial takes that needs but some of them: by what they end in."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from dotcu.checking.cases.case import Case
from dotcu.checking.cases.choice import choose
from dotcu.checking.subject import Subject


def varied(subject: Subject, dtype: torch.dtype, endings: Iterable[str]) -> list[Case]:
    """The derived cases of a dtype whose names end in one of some words, given as patterns."""
    wanted = re.compile(rf"-(?:{'|'.join(endings)})$")
    return [
        case for case in choose(subject) if case.derived and case.dtype == dtype and wanted.search(case.name)
    ]


def of_size(*numbers: int) -> str:
    """The pattern of cases in which a size was changed to one of some numbers; to any, if none is given."""
    return rf"(?:n|\d+as)(?:{'|'.join(map(str, numbers)) or '[0-9]+'})"
