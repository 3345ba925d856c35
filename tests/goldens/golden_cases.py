"""Every golden case."""

from __future__ import annotations

from golden_matrices import MATRICES
from golden_ordinary import ORDINARY
from golden_programs import PROGRAMS
from golden_spelled import SPELLED

CASES = (*SPELLED, *ORDINARY, *MATRICES, *PROGRAMS)
