"""Binaries that any compiler built: libraries, cubins, PTX files, fatbins and wheels.

    file -> its kind -> modules of device code, symbols and libraries of the host -> BinaryReport

`read()` is the entry point. It decompresses nothing, and needs no GPU and no toolkit.
"""

from dotcu.inspection.binaries.report import BinaryReport, read

__all__ = ["BinaryReport", "read"]
