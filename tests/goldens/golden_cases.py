"""Every golden case."""

from __future__ import annotations

from golden_case import Case
from golden_copies import COPIES
from golden_matrices import MATRICES
from golden_ordinary import ORDINARY
from golden_programs import PROGRAMS
from golden_spelled import SPELLED

CASES = (*SPELLED, *ORDINARY, *MATRICES, *PROGRAMS)

AWAITED: tuple[Case, ...] = COPIES
"""Cases that record.py records and that no test reads yet; once recorded, they belong above."""
