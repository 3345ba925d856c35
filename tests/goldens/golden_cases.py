"""Every golden case."""

from __future__ import annotations

from golden_clusters import CLUSTERS
from golden_copies import COPIES
from golden_matrices import MATRICES
from golden_ordinary import ORDINARY
from golden_programs import PROGRAMS
from golden_spelled import SPELLED
from golden_wgmma import WGMMA

CASES = (*SPELLED, *ORDINARY, *MATRICES, *PROGRAMS, *COPIES, *WGMMA, *CLUSTERS)
