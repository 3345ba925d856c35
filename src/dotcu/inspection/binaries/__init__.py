"""What a binary holds that anyone built: a library, a cubin, a PTX file, a fatbin, a wheel.

    file -> its kind -> modules of device code, symbols and libraries of the host -> BinaryReport

`read()` is the whole way; nothing is decompressed for it, and no GPU or toolkit is needed.
"""

from dotcu.inspection.binaries.elf import Binary
from dotcu.inspection.binaries.fatbin import Fatbin, FatbinEntry
from dotcu.inspection.binaries.reading import read
from dotcu.inspection.binaries.report import Architecture, BinaryReport
from dotcu.inspection.binaries.runs_on import Verdict
from dotcu.inspection.binaries.symbols import Symbol
from dotcu.inspection.binaries.wheel import Wheel

__all__ = [
    "Architecture",
    "Binary",
    "BinaryReport",
    "Fatbin",
    "FatbinEntry",
    "Symbol",
    "Verdict",
    "Wheel",
    "read",
]
