"""The result of a compile: code, the names in it, and the resources that the assembler reports.

A signature probe gives a kernel's parameter types, by the name of an empty kernel next to it. A skeleton is
the part of assembled PTX that a launch reads: parameters and variables. Bodies stay in it where they name a
variable or a tensor map, to find out which a kernel writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dotcu.compile.target import Target
from dotcu.errors import Diagnostic
from dotcu.ptx.lexer import braces

if TYPE_CHECKING:
    from dotcu.ptx.debug_info import TypeRow

PROBE = "__dotcu_probe"
DECLARATION = f"template <typename F> __global__ void {PROBE}() {{}}"


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

_ASIDE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n+")
_EMPTY = "{\n\tret;\n}"
_FUNCTION = re.compile(rf"^[^\n]*\.func\b[^{{;]*(?:;|{re.escape(_EMPTY)})", re.MULTILINE)
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(?:global|const)\b([^;=]*)", re.MULTILINE
)
_WORD = re.compile(r"(?<![\w$.])[A-Za-z_$][\w$]*")
_MAP = re.compile(
    r"\.param\s+\.align\s+(?:64|128)\s+\.b8\s+\S+\[128\]|\bcp\.(?:reduce\.)?async\.bulk\.tensor\b"
)

_PROBE = re.compile(
    rf"^[^\n]*\.entry \w*{PROBE}\w*\(\s*\)\s*(?:\.\w+[^\n]*\n)*\{{.*?^\}}\n?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of a multiprocessor that a kernel takes, as ptxas reports them.

    Attributes:
        registers: Per thread.
        smem_bytes: Static shared memory, per block.
        constant_bytes: `__constant__` variables of the code that the kernel is in, as
            `cuobjdump -res-usage` counts them: CONSTANT[3]. Parameters are no part of it.
        stack_bytes: Per thread.
        barriers: Named barriers in use, per block.
        threads: Of a tile kernel: those that the compiler gives to a tile block; 0 of another kernel.
        cluster: Of a tile kernel: the thread blocks that a tile block is made of; 0 of another kernel.
    """

    registers: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    stack_bytes: int = 0
    smem_bytes: int = 0
    constant_bytes: int = 0
    barriers: int = 0
    threads: int = 0
    cluster: int = 0


@dataclass(frozen=True, kw_only=True)
class ObjectCode:
    """Compiled code.

    Attributes:
        ptx: The PTX; of a cubin, the PTX that it was assembled from, or of prebuilt code, a
            skeleton of that.
        cubin: Machine code, None if the target is a `compute_` one.
        lowered: Symbol of each requested name expression.
        signatures: For each kernel's name expression the symbol of a probe that holds its whole
            function type, such as `_Z13__dotcu_probeIPFvPKfS1_fPfxEEvv`; empty if none was compiled.
        layouts: Of prebuilt code, the types of the parameters of kernels that take structs, by the kernel.
        resources: By kernel symbol; empty without a cubin.
        warnings: The compiler's and the assembler's, about user files by their real path.
        log: The compiler's whole output.
        command: The options as a command line.
        files: Real path, or name to show, of each file name that is in the PTX.
        build_digest: Of the user's sources, options, names, compiler, headers and target: the cache's key.
        cached: Nothing was compiled for this call.
        seconds: The time that the call took.
        tile_ir: The bytecode of its tile kernels; empty if it has none.
        tile_cubins: Their machine code, by the processor of the hosts that load it.
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
    build_digest: str
    cached: bool
    seconds: float
    layouts: Mapping[str, Sequence[TypeRow]] = field(default_factory=dict)
    tile_ir: bytes = b""
    tile_cubins: Mapping[str, bytes] = field(default_factory=dict)

    def is_tile(self, symbol: str) -> bool:
        """Return whether a kernel is a tile kernel, by its symbol: PTX has no entry of it."""
        return symbol.encode() in self.tile_ir and f".entry {symbol}(" not in self.ptx


def parse_resources(log: str, cubin: bytes | None = None) -> dict[str, Resources]:
    """Read what `ptxas -v` says of each kernel, probes left out, out of a compile's log.

    Args:
        cubin: The code; it has the size of its constants, which the log lacks from sm_90 on.

    Source: seen with the compilers of CUDA 12.8 and 13.0.
    """
    from dotcu.elf import section_bytes  # an entry of the cache has the result

    resources: dict[str, Resources] = {}
    parts, constants = _ENTRY.split(log), section_bytes(cubin, _CONSTANTS) if cubin else 0
    for symbol, text in zip(parts[1::2], parts[2::2], strict=True):
        if PROBE in symbol:
            continue
        matches = {name: pattern.search(text) for name, pattern in _NUMBERS.items()}
        numbers = {name: int(m[1]) for name, m in matches.items() if m}
        resources[symbol] = Resources(**numbers, constant_bytes=constants)
    return resources


def tile_resources(cubin: bytes | None) -> dict[str, Resources]:
    """Read what the tile kernels in a cubin take, by symbol; empty without a cubin."""
    if cubin is None:
        return {}
    from dotcu.compile.cubin import read_cubin
    from dotcu.elf import Image

    _, _, found = read_cubin(Image(name="the tile kernels' cubin", data=cubin))
    return {
        one.symbol: Resources(
            registers=one.registers or 0, stack_bytes=one.stack_bytes or 0, smem_bytes=one.smem_bytes or 0,
            barriers=one.barriers or 0, threads=one.threads, cluster=one.cluster,
        )
        for one in found
    }  # fmt: skip


def is_kernel(name: str) -> bool:
    """Return whether a name expression is a kernel's, and not the address of a variable."""
    return not name.startswith("&")


def probe_of(name: str) -> str:
    """Return the probe's name expression for a kernel's; its symbol holds the kernel's function type."""
    address = "" if name.startswith("(") else "&"  # the name of an overload is a pointer to it
    return f"{PROBE}<decltype({address}{name})>"


def with_probes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, and a probe for each kernel among them."""
    names = tuple(names)
    return names + tuple(probe_of(name) for name in names if is_kernel(name))


def with_probe(text: str) -> str:
    """Return a source's text with the probe at its end, on lines of its own."""
    continued = text.rstrip(" \t\r").endswith("\\")  # the probe would go on a comment, or a macro
    return f"{text}\n{chr(10) if continued else ''}{DECLARATION}\n"


def without_probes(ptx: str) -> str:
    """Return PTX without the empty kernels that held signatures."""
    return _PROBE.sub("", ptx)


def skeleton(ptx: str) -> str:
    """Return PTX without what a launch of its machine code never looks at."""
    text = _BLANK.sub("\n", _ASIDE.sub("", ptx))
    # of functions, not of a variable's initial values; braces of inline assembly stand within them
    bodies = [
        (opened, closed + 1)
        for opened, closed in braces(text)
        if "=" not in text[max(opened - 2, 0) : opened]
    ]
    # variables that no body names, constants of classes for example, do not count
    declared = {name for row in _VARIABLE.findall(text) for name in _WORD.findall(row)}
    if _MAP.search(text) or any(not declared.isdisjoint(_WORD.findall(text, *span)) for span in bodies):
        return text
    for begin, end in reversed(bodies):
        text = text[:begin] + _EMPTY + text[end:]
    return _FUNCTION.sub("", text)
