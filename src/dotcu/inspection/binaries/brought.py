"""The compiled code that a wheel of `dotcu build` brings: each cubin and PTX file of its packs."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dotcu.compile import manifest
from dotcu.compile.manifest import FOLDER, INDEX, Record
from dotcu.errors import BroughtCodeError, UsageError

_Code = tuple[str, "bytes | UsageError"]


def brought(wheel: zipfile.ZipFile) -> Iterator[_Code]:
    """Each record's machine code, or its PTX, by a name with kernels and target; none of the simulator's.

    Of a folder that is not as its wheel was made, the error that says how.
    """
    for name in wheel.namelist():
        folder, file = posixpath.split(name)
        if file == INDEX and posixpath.basename(folder) == FOLDER:
            try:
                yield from _of_folder(wheel, folder)
            except (BroughtCodeError, KeyError) as error:
                yield name, UsageError(f"{name} and what lies beside it cannot be read: {error}")


def _of_folder(wheel: zipfile.ZipFile, folder: str) -> Iterator[_Code]:
    described = manifest.parse(wheel.read(f"{folder}/{INDEX}"), Path(folder) / INDEX)
    packs = {
        name: manifest.unpack(wheel.read(f"{folder}/{name}"), Path(folder) / name, described)
        for name in described.packs
    }
    for loads in described.loads.values():
        for built in (built for load in loads for built in load.built):
            for variant in built.variants:
                if not variant.simulated:
                    pack, start, length = described.places[variant.record]
                    record = Record.from_bytes(packs[pack][start : start + length])
                    kind, code = (
                        ("ptx", record.ptx.encode()) if record.cubin is None else ("cubin", record.cubin)
                    )
                    yield f"{folder}/{', '.join(built.names)}.{variant.target}.{kind}", code
