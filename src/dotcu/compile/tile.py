"""CUDA Tile C++: the sources that are written in it, their compiler, and their machine code.

NVRTC of CUDA 13.3 or later compiles a source with tile kernels: to PTX and a cubin of its ordinary kernels,
and to Tile IR of the others, of which `tileiras` makes a second cubin. PyTorch pins an older NVRTC, so this
one may be in a folder of its own, and both are then loaded in one process.

A cubin of tile kernels holds host code that fills their hidden parameters: an object file for one processor.
The driver runs it unchecked, so one for another processor is refused here.

Source: NVRTC documentation 13.5, "Supported Compile Options"; `tileiras --help`; measured: H200, driver 580.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import platform
import re
import struct
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dotcu import settings
from dotcu.compile import cache, driver, toolchain
from dotcu.compile.cache import Store
from dotcu.compile.include_graph import VIRTUAL_ROOT
from dotcu.compile.target import Rejected, Target, Version, dotted, plan_target
from dotcu.compile.toolchain import Compiler
from dotcu.elf import HOST_CODE, machine_within
from dotcu.errors import CompileError, LaunchError, ToolchainError, UsageError
from dotcu.files import is_file, read_file

FIRST_NVRTC: Version = (13, 3)
FIRST_DRIVER: Version = (13, 0)
FIRST_RELEASE = 580
"""The first driver that loads cubins of tile kernels, and the CUDA version that it has."""
OLDEST = 80
"""The oldest architecture that tileiras makes code for."""
TIMEOUT_S = 300.0

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
PINNED = "13.5.*"
HOSTS = ("x86_64", "aarch64")
"""The processors that tileiras makes the host code of a cubin for."""

_TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
"""Where tileiras looks for ptxas first, also for an older one that cannot read its PTX (13.5, tried)."""
_LOCATED = re.compile(r'^loc\("([^"]+)":(\d+):\d+\): (error|warning|remark): :? ?', re.MULTILINE)
_REMARK = re.compile(
    r'^ *(error|warning|remark)\[[^]]*\]: ([^\n]+)\n *--> "([^"]+)":(\d+):\d+\n((?: *[|=][^\n]*\n?)*)',
    re.MULTILINE,
)
_FIELD = re.compile(r"= (?:reason|suggestion): ([^\n]+)")


def folder() -> Path:
    """Return the folder of the tile compiler, apart from the packages of the environment."""
    return Path(sys.prefix) / "share" / "dotcu" / "tile"


def install_line() -> str:
    """Return the line that installs the tile compiler: next to a torch that pins NVRTC, into `folder()`."""
    torch = toolchain.find_torch()
    if torch is None or torch.cuda is None or torch.cuda >= FIRST_NVRTC:
        return 'pip install "dotcu[tile]"'
    packages = " ".join(f'"{package}=={PINNED}"' for package in PACKAGES)
    return f"pip install --target {folder()} {packages}"


@functools.cache
def missing_parts(nvrtc: Compiler) -> tuple[str, ...]:
    """Return the parts that make machine code of Tile IR and are missing next to an NVRTC."""
    return tuple(name for name in _ASSEMBLING if beside(nvrtc, name) is None)


@functools.cache
def assembler_identity(nvrtc: Compiler) -> str:
    """Return the text that distinguishes the assembler from any other build of it, wherever that is."""
    files = [beside(nvrtc, name) for name in _ASSEMBLING]
    return " ".join(toolchain.file_identity(file) for file in files if file is not None)


def assembler(nvrtc: Compiler) -> Path:
    """Return the tileiras next to an NVRTC.

    Raises:
        ToolchainError: It is missing, or something that it needs is.
    """
    found, missing = beside(nvrtc, "tileiras"), missing_parts(nvrtc)
    if found is None or missing:
        missing_parts.cache_clear()  # they may be installed before the next call
        absent = ", ".join(missing if found else ["tileiras"])
        raise ToolchainError(
            f"Tile kernels cannot be assembled: {absent} is not found next to {nvrtc.path}.\n"
            "Required: tileiras with ptxas and libnvvm of its version. Without a GPU, tile kernels run "
            f"in the simulator without it.\nInstall it: {install_line()}"
        )
    return found


def compiler() -> Compiler:
    """Return the compiler of tile kernels.

    Raises:
        ToolchainError: There is none, or none that is new enough.
        UnsupportedPlatform: No compiler is published for this platform.
    """
    chosen = find()
    if isinstance(chosen, Rejected):
        raise ToolchainError(str(chosen))
    return chosen


def find() -> Compiler | Rejected:
    """Return the newest compiler of tile kernels whose code the driver loads, or why there is none."""
    known = (*toolchain.installed(), *_apart())
    override, wanted = settings.current().nvrtc, driver.version()
    if override is not None and is_file(override):
        known = (toolchain.compiler_at(override, known), *known)
    most = wanted[0] if wanted is not None else FIRST_NVRTC[0]
    fitting = [one for one in known if one.version >= FIRST_NVRTC and one.version[0] <= max(most, 13)]
    if not fitting:
        found = ", ".join(sorted({dotted(one.version) for one in known})) or "none"
        return Rejected(
            f"Tile kernels need NVRTC of CUDA {dotted(FIRST_NVRTC)} or later; found: {found}.",
            f"Install it: {install_line()}",
        )
    # one with an assembler, then the newest
    return max(fitting, key=lambda one: (not missing_parts(one), one.version))


def _apart() -> tuple[Compiler, ...]:
    """Return the compilers in the folder of their own, with the headers that only the environment has."""
    apart = toolchain.find_compilers([folder()], [])
    if not apart:
        return ()
    others = [path for one in toolchain.installed() if one.version[0] == 13 for path in one.include]
    return tuple(
        replace(one, origin=str(folder()), include=tuple(dict.fromkeys([*one.include, *others])))
        for one in apart
    )


_ASSEMBLING = ("tileiras", "ptxas", "libnvvm.so.4")


def beside(nvrtc: Compiler, name: str) -> Path | None:
    """Return a program or library of the toolkit that an NVRTC belongs to."""
    home = nvrtc.path.parent.parent
    places = (home / "bin", home / "lib", home / "lib64", home / "nvvm" / "lib64")
    return next((place / name for place in places if is_file(place / name)), None)


def host() -> str:
    """Return this machine's processor as tileiras names it."""
    return platform.machine()


def refuse_target(target: Target) -> str:
    """Return why tile kernels have no code for an architecture; "" if they have."""
    if target.number >= OLDEST:
        return ""
    return f"Tile kernels need compute capability {OLDEST // 10}.{OLDEST % 10}, sm_{OLDEST}, or later"


def target_of_gpu(capability: Version) -> Target | Rejected:
    """Return the target to compile tile kernels for on a GPU of this machine."""
    nvrtc = compiler()
    known = toolchain.supported(nvrtc)
    target = plan_target(capability, driver.version(), nvrtc.version, known)
    if isinstance(target, Rejected) or target.kind == "sm":
        return target
    return Rejected(
        f"The tile compiler of CUDA {dotted(nvrtc.version)} has no code for compute capability "
        f"{dotted(capability)}, and tile kernels have no PTX that a driver could assemble.",
        f"Take a newer one: {install_line()}",
    )


def require_driver() -> None:
    """Refuse a driver that loads no tile kernels.

    Raises:
        LaunchError: It is older than r580.
    """
    version = driver.version()
    if version is not None and version < FIRST_DRIVER:
        release = driver.release()
        raise LaunchError(
            f"Tile kernels need an NVIDIA driver of r{FIRST_RELEASE} or later (CUDA {dotted(FIRST_DRIVER)}), "
            f"and this one is {f'{release}, ' if release else ''}of CUDA {dotted(version)}.\n"
            "Update the driver, or run them in the simulator: pass CPU tensors. See: dotcu doctor"
        )


def assemble(
    using: Compiler,
    bytecode: bytes,
    target: Target,
    *,
    processor: str,
    lines: bool = True,
    debug: bool = False,
) -> tuple[bytes | None, str, str]:
    """Make a cubin of Tile IR.

    Args:
        target: The architecture; its suffix has no meaning for tile kernels.
        processor: The processor of the hosts that load it: one of `HOSTS`.

    Returns:
        The machine code, None where it refused; its log in the form of NVRTC's; how it was called.

    Raises:
        ToolchainError: The assembler is missing, or was stopped.
    """
    import tempfile

    from dotcu import process  # a launch from the cache needs neither

    # Source: seen with tileiras 13.5: it refuses debug information at any other level
    kept = ["--device-debug", "--opt-level=0"] if debug else ["--lineinfo"] if lines else []
    with tempfile.TemporaryDirectory() as scratch:
        source, result = Path(scratch) / "kernel.tileir", Path(scratch) / "kernel.cubin"
        source.write_bytes(bytecode)
        program = assembler(using)
        done = process.run(
            [
                program, f"--gpu-name=sm_{target.number}", f"--host-arch={processor}", *kept,
                "-o", result, source,
            ],
            timeout_s=TIMEOUT_S,
            environment=dict.fromkeys(_TOOLKIT_VARIABLES, str(program.parent.parent)),
        )  # fmt: skip
        cubin = read_file(result) if done.status == 0 and is_file(result) else None
    log = (done.stdout + done.stderr).replace(scratch, "")
    return cubin, as_nvrtc(log), done.line.replace(f"{scratch}/", "")


def cubins_for(bytecode: bytes, target: Target, processors: Iterable[str]) -> dict[str, bytes]:
    """Return cubins of Tile IR by the processor of their hosts, without lines; from the cache, or made.

    Raises:
        CompileError: The assembler refused it.
    """
    using, store, cubins = compiler(), Store(cache.location()), {}
    for processor in processors:
        key = repr(
            (assembler_identity(using), hashlib.sha256(bytecode).hexdigest(), target.number, processor)
        )
        digest = hashlib.sha256(f"tile cubin {key}".encode()).hexdigest()
        kept = store.get(digest, _read_cubin)
        if kept is not None:
            cubins[processor] = kept
            continue
        cubin, log, command = assemble(using, bytecode, target, processor=processor, lines=False)
        if cubin is None:
            raise CompileError(
                f"Tile kernels cannot be assembled for {target}, hosts of {processor}:\n{log.strip()}",
                diagnostics=(),
                log=log,
                command=command,
            )
        cubins[processor] = cubin
        about = {"source": "tile kernels", "target": f"{target}, hosts of {processor}"}
        store.put(digest, cache.with_index({_CUBIN: cubin}, about=about), locked=False)
    return cubins


_CUBIN = "tile.cubin"


def _read_cubin(folder: Path) -> bytes | None:
    entry = cache.open_entry(folder, is_mine=True)
    return None if entry is None else entry[1][_CUBIN]


def as_nvrtc(log: str) -> str:
    """Return a log of tileiras in the form that NVRTC's have: `file(line): error: text`."""

    def remark(match: re.Match[str]) -> str:
        severity, text, file, line, rest = match.groups()
        return f"{file}({line}): {severity}: {'. '.join([text, *_FIELD.findall(rest)])}\n"

    return _REMARK.sub(remark, _LOCATED.sub(r"\1(\2): \3: ", log))


_HEAD_BYTES = 12
_STRINGS, _END, _ALIGNED = 1, 0, 0x80
_ALIGNMENT = 4
_PADDING = b"\xcb"


def without_folder(bytecode: bytes) -> bytes:
    """Return Tile IR without the working directory, which NVRTC gives as the folder of name expressions.

    The names are in its last section: their number, where each begins, and the text. Bytecode that is laid
    out in another way stays as it is.

    Source: NVIDIA/cuda-tile, docs, "Tile IR Bytecode Format".
    """
    at = _HEAD_BYTES
    try:
        here = str(Path.cwd()).encode()
        while bytecode[at] != _STRINGS | _ALIGNED:
            length, start = _number(bytecode, at + 1)
            if bytecode[at] & _ALIGNED:
                alignment, start = _number(bytecode, start)
                start += -start % alignment
            at = start + length
        length, start = _number(bytecode, at + 1)
        alignment, start = _number(bytecode, start)
        start += -start % alignment
        count, first = _number(bytecode, start)
        first += -first % _ALIGNMENT
        text = bytecode[first + 4 * count : start + length]
        begins = [*struct.unpack_from(f"<{count}I", bytecode, first), len(text)]
    except (IndexError, OSError, struct.error):  # also where that folder is gone
        return bytecode
    names = [text[a:b] for a, b in itertools.pairwise(begins)]
    if here not in names or alignment != _ALIGNMENT or bytecode[start + length :] != bytes([_END]):
        return bytecode
    names = [VIRTUAL_ROOT.encode() if name == here else name for name in names]
    places = itertools.accumulate(map(len, names[:-1]), initial=0)
    body = _aligned(_varint(count)) + struct.pack(f"<{count}I", *places) + b"".join(names)
    head = bytecode[:at] + bytes([_STRINGS | _ALIGNED]) + _varint(len(body)) + _varint(alignment)
    return _aligned(head) + body + bytes([_END])


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and the place behind it."""
    value = shift = 0
    while data[at] & 0x80:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _varint(value: int) -> bytes:
    parts = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([part | 0x80 for part in parts[:-1]] + parts[-1:])


def _aligned(data: bytes) -> bytes:
    return data + _PADDING * (-len(data) % _ALIGNMENT)


def require_loadable(cubin: bytes, name: str) -> None:
    """Refuse a cubin whose host code is for another processor: the driver would end this process.

    Raises:
        UsageError: It is not this machine's; or it is damaged.
    """
    found, here = machine_within(cubin, HOST_CODE), host()
    if found not in ("", here):
        raise UsageError(
            f"The tile kernels of {name} are compiled for hosts of {found}, and this machine is {here}.\n"
            "Their cubin holds host code, so it has to be made for the processor that loads it.\n"
            "Compile them on this machine, or build the wheel again: dotcu build"
        )


def is_loadable(cubin: bytes) -> bool:
    """Return whether a cubin is whole and holds host code of this machine, if any."""
    try:
        require_loadable(cubin, "the cache")
    except UsageError:
        return False
    return True
