"""Machine code to instructions: a call of nvdisasm."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault, ToolchainError, UsageError
from dotcu.inspection.code.sass import Function, parse

_OPTIONS = ("-c", "-gi", "-gp", "-hex")  # code alone; source lines with inlining; PTX lines; encodings
_LIMIT_S = 300.0


def available() -> bool:
    """Whether there is an nvdisasm."""
    return toolchain.find_tool("nvdisasm") is not None


def disassemble(cubin: bytes, files: Mapping[str, str] | None = None) -> dict[str, Function]:
    """The functions of a cubin by symbol.

    Args:
        files: What to call the files of its line table, by their name in it.

    Raises:
        EnvironmentFault: There is no nvdisasm.
        UsageError: nvdisasm cannot read the bytes.
    """
    tool = toolchain.find_tool("nvdisasm")
    if tool is None:
        raise EnvironmentFault(missing())
    with tempfile.TemporaryDirectory(prefix="dotcu-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = process.run([tool, *_OPTIONS, path], timeout_s=_LIMIT_S)
    if done.status != 0:
        raise _refused(done.stderr or done.stdout, len(cubin), tool)
    return parse(done.stdout, files or {})


def missing() -> str:
    """What to say where there is no nvdisasm."""
    return (
        "SASS needs nvdisasm, which was not found: neither pip's, nor in CUDA_HOME, nor on PATH.\n"
        f"Install it: pip install {toolchain.TOOLS['nvdisasm']}"
    )


def _refused(output: str, size: int, tool: Path) -> UsageError | ToolchainError:
    said = next((line.strip() for line in output.splitlines() if line.strip()), "nothing")
    return UsageError(
        f"nvdisasm cannot read these {size} bytes as a cubin; it says: {said}\n"
        "A whole cubin is required, of an architecture that this nvdisasm knows.\n"
        f"See which: {tool} --help; for a newer one: pip install -U {toolchain.TOOLS['nvdisasm']}"
    )
