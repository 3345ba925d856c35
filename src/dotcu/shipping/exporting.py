"""Compiled kernels as plain files, for programs that have neither Python nor torch.

kernels/manifest.tsv                         a line for each kernel and target
kernels/scale-1f0c55e1.sm_90.cubin           machine code
kernels/scale-1f0c55e1.compute_80.ptx        PTX for GPUs that are yet to come
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from dotcu.compile import ObjectCode
from dotcu.compile.manifest import digest_of
from dotcu.compile.skeleton import without_probes
from dotcu.errors import UsageError
from dotcu.shipping.assembling import Job

MANIFEST = "manifest.tsv"
COLUMNS = ("kernel", "target", "file", "symbol", "sha256")


def export(made: Mapping[Job, ObjectCode], folder: Path) -> None:
    """Write machine code and PTX into a new folder, whole or not at all.

    Raises:
        UsageError: There is something in that place already that is no such folder.
    """
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise UsageError(
            f"{folder} is there already, and has no {MANIFEST}: it is not replaced.\n"
            "Name another folder, or remove it."
        )
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        lines = sorted(line for job, code in made.items() for line in _written(job, code, new))
        text = "".join("\t".join(line) + "\n" for line in [COLUMNS, *lines])
        (new / MANIFEST).write_text(text, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _written(job: Job, code: ObjectCode, folder: Path) -> Iterator[tuple[str, ...]]:
    """Write one file, and give the line of each kernel in it."""
    if job.simulated:
        return
    data = code.cubin if code.cubin is not None else without_probes(code.ptx).encode()
    suffix = "cubin" if code.cubin is not None else "ptx"
    stem = re.sub(r"\W+", "_", job.unit.names[0].split("<")[0])
    name = f"{stem}-{digest_of(repr(job.unit.names).encode())[:8]}.{job.target}.{suffix}"
    (folder / name).write_bytes(data)
    for kernel in job.unit.names:
        if kernel in code.lowered:
            yield kernel, str(job.target), name, code.lowered[kernel], digest_of(data)
