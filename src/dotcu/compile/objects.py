"""What a compile gives: code, the names in it, and what the assembler said of it.

The signature probe tells a kernel's parameter types: by the name of an empty kernel beside it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dotcu.compile.target import Target

if TYPE_CHECKING:
    from dotcu.compile.diagnostics import Diagnostic

PROBE = "__dotcu_probe"
DECLARATION = f"template <typename F> __global__ void {PROBE}() {{}}"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a kernel takes of a multiprocessor, as ptxas reports it.

    Attributes:
        registers: Per thread.
        smem_bytes: Static shared memory, per block.
        constant_bytes: `__constant__` variables of the code that the kernel stands in, as
            `cuobjdump -res-usage` counts them: CONSTANT[3]. Parameters are no part of it.
        stack_bytes: Per thread.
        barriers: Named barriers in use, per block.
    """

    registers: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    stack_bytes: int = 0
    smem_bytes: int = 0
    constant_bytes: int = 0
    barriers: int = 0


@dataclass(frozen=True, kw_only=True)
class ObjectCode:
    """Compiled code.

    Attributes:
        ptx: The PTX; of a cubin, the PTX that it was assembled from, or where a wheel brought it, what a
            launch asks of that: see `skeleton.py`.
        cubin: Machine code, None where the target is a `compute_` one.
        lowered: Symbol of each name expression that was asked for.
        signatures: For each kernel's name expression the symbol of a probe that holds its whole
            function type, such as `_Z13__dotcu_probeIPFvPKfS1_fPfxEEvv`; empty where none was compiled.
        resources: By kernel symbol; empty without a cubin.
        warnings: The compiler's and the assembler's, about user files by their real path.
        log: Everything that the compiler said.
        command: The options as a command line.
        files: Real path, or name to show, of each file name that stands in the PTX.
        source_digest: Of user sources, options and instantiations.
        build_digest: Of that, the compiler, its headers and the target: the cache's key.
        cached: Nothing was compiled for this call.
        seconds: What the call took.
    """

    target: Target
    ptx: str
    cubin: bytes | None
    lowered: Mapping[str, str]
    signatures: Mapping[str, str]
    resources: Mapping[str, Resources]
    warnings: tuple[Diagnostic, ...]
    log: str
    command: str
    files: Mapping[str, str]
    source_digest: str
    build_digest: str
    cached: bool
    seconds: float


_CONSTANTS = ".nv.constant3"
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "barriers": re.compile(r"used (\d+) barriers"),
    "smem_bytes": re.compile(r"(\d+) bytes smem"),
    "stack_bytes": re.compile(r"(\d+) bytes (?:stack frame|cumulative stack size)"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
}


def parse_resources(log: str, cubin: bytes | None = None) -> dict[str, Resources]:
    """Read what `ptxas -v` says of each kernel, probes left out, out of a compile's log.

    Args:
        cubin: The code; it has the size of its constants, which the log lacks from sm_90 on.

    Source: seen with the compilers of CUDA 12.8 and 13.0.
    """
    found: dict[str, Resources] = {}
    parts, constants = _ENTRY.split(log), section_bytes(cubin, _CONSTANTS) if cubin else 0
    for symbol, text in zip(parts[1::2], parts[2::2], strict=True):
        if PROBE in symbol:
            continue
        matches = {name: pattern.search(text) for name, pattern in _NUMBERS.items()}
        numbers = {name: int(m[1]) for name, m in matches.items() if m}
        found[symbol] = Resources(**numbers, constant_bytes=constants)
    return found


def section_bytes(elf: bytes, name: str) -> int:
    """The size of a section of a 64-bit ELF file that the assembler made, 0 where it has none.

    Source: System V ABI, "ELF-64 Object File Format".
    """
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    each, count, of_names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<I20xQQ", elf, table + i * each) for i in range(count)]
    _, names, _ = headers[of_names]
    wanted = name.encode() + b"\0"
    return sum(size for at, _, size in headers if elf.startswith(wanted, names + at))


def is_kernel(name: str) -> bool:
    """A name expression is a kernel's unless it takes the address of a variable."""
    return not name.startswith("&")


def probe_of(name: str) -> str:
    """The probe's name expression for a kernel's; its symbol holds the kernel's function type."""
    return f"{PROBE}<decltype(&{name})>"


def with_probes(names: Iterable[str]) -> tuple[str, ...]:
    """All that the compiler is asked for: the names, and a probe for each kernel among them."""
    names = tuple(names)
    return names + tuple(probe_of(name) for name in names if is_kernel(name))


def with_probe(text: str) -> str:
    """A source's text with the probe at its end, on lines of its own."""
    continued = text.rstrip(" \t\r").endswith("\\")  # the probe would go on a comment, or a macro
    return f"{text}\n{chr(10) if continued else ''}{DECLARATION}\n"
