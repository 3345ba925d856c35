"""The GPUs that run a binary's code: natively, by the driver's compiler (JIT), or not at all."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dotcu.compile.target import Version, dotted
from dotcu.elf import HostBinary
from dotcu.inspection.binaries.fatbin import Fatbin, FatbinEntry

# By family-specific target, the capabilities that it runs on.
# Source: CUDA Programming Guide 13.4, "Feature Set Compiler Targets", table "Family-Specific Compatibility".
FAMILIES: dict[Version, tuple[Version, ...]] = {
    (10, 0): ((10, 0), (10, 3), (10, 7)),
    (10, 3): ((10, 3), (10, 7)),
    (10, 7): ((10, 7),),
    (11, 0): ((11, 0),),
    (12, 0): ((12, 0), (12, 1)),
    (12, 1): ((12, 1),),
}

# Capabilities of Tegra (Jetson, DRIVE), whose machine code is promised to fit no other, nor another's them.
# Source: CUDA C++ Programming Guide 13.0, "Binary Compatibility", note; "CUDA GPU Compute Capability".
TEGRA: frozenset[Version] = frozenset({(3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})

# GPUs of each capability, a few of many. Source: developer.nvidia.com/cuda-gpus.
GPUS: dict[Version, str] = {
    (7, 5): "T4, RTX 20",
    (8, 0): "A100",
    (8, 6): "A10, RTX 30",
    (8, 7): "Jetson Orin",
    (8, 9): "L4, L40S, RTX 40",
    (9, 0): "H100, H200",
    (10, 0): "B200",
    (10, 3): "B300",
    (11, 0): "Jetson Thor",
    (12, 0): "RTX 50, RTX PRO Blackwell",
    (12, 1): "DGX Spark",
}

# By version of PTX, the CUDA version since which drivers read it.
# Source: PTX ISA 9.5, "Release Notes", table "PTX Release History".
PTX_SINCE: dict[Version, Version] = {
    (5, 0): (8, 0),
    (6, 0): (9, 0), (6, 1): (9, 1), (6, 2): (9, 2), (6, 3): (10, 0), (6, 4): (10, 1), (6, 5): (10, 2),
    (7, 0): (11, 0), (7, 1): (11, 1), (7, 2): (11, 2), (7, 3): (11, 3), (7, 4): (11, 4), (7, 5): (11, 5),
    (7, 6): (11, 6), (7, 7): (11, 7), (7, 8): (11, 8),
    (8, 0): (12, 0), (8, 1): (12, 1), (8, 2): (12, 2), (8, 3): (12, 3), (8, 4): (12, 4), (8, 5): (12, 5),
    (8, 6): (12, 7), (8, 7): (12, 8), (8, 8): (12, 9),
    (9, 0): (13, 0), (9, 1): (13, 1), (9, 2): (13, 2), (9, 3): (13, 3), (9, 4): (13, 4), (9, 5): (13, 5),
}  # fmt: skip


def _same_major(code: Version, gpu: Version) -> bool:
    return code == gpu or (code[0] == gpu[0] and code[1] < gpu[1] and TEGRA.isdisjoint((code, gpu)))


def _family(code: Version, gpu: Version) -> bool:
    return gpu in FAMILIES.get(code, (code,))


# By kind of code and suffix of its architecture: the GPUs that it runs on, as a test and in words.
# Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility"; CUDA Programming Guide,
# "Feature Set Compiler Targets"; nvcc's documentation, `ptxas --gpu-name`.
RULES: Mapping[tuple[str, str], tuple[Callable[[Version, Version], bool], str]] = {
    ("elf", ""): (_same_major, "GPUs of its major and no lower minor version, Tegra apart"),
    ("elf", "f"): (_family, "GPUs of its family"),
    ("elf", "a"): (operator.eq, "that GPU alone"),
    ("ptx", ""): (operator.le, "that GPU and all later ones"),
    ("ptx", "f"): (_family, "GPUs of its family"),
    ("ptx", "a"): (operator.eq, "that GPU alone"),
}
_KINDS = {"elf": "machine code", "ptx": "PTX"}
_MAX_REASONS = 2


@dataclass(frozen=True, kw_only=True)
class GpuSupport:
    """A binary's modules by the way they run on a GPU.

    Attributes:
        how: "native" where most of the modules that run have machine code for it, "jit" where the driver
            compiles most of them, "no" where none runs.
        native: How many modules have machine code for it; jit: only PTX; none: neither. Whether such a module
            is meant for other GPUs or lacks something cannot be known from outside.
        driver: The CUDA version that the driver must have for the PTX, None if none is compiled.
        why: The counts, and what there is in the modules that do not run, in a sentence.
    """

    how: Literal["native", "jit", "no"]
    native: int
    jit: int
    none: int
    driver: Version | None
    why: str


def gpu_support(modules: Iterable[Fatbin], gpu: Version) -> GpuSupport:
    """Return how the modules of a binary run on a GPU of a compute capability."""
    filled = [module for module in modules if module.entries]
    loaded = [module for module in filled if not module.relocatable] or filled  # a program loads linked ones
    chosen = [choose(module.entries, gpu) for module in loaded]
    native = sum(entry is not None and entry.kind == "elf" for entry in chosen)
    compiled = [entry for entry in chosen if entry is not None and entry.kind == "ptx"]
    left = [module for module, entry in zip(loaded, chosen, strict=True) if entry is None]
    kinds = (("machine code", native), ("PTX alone", len(compiled)), ("nothing that fits", len(left)))
    counts = ", ".join(f"{count} of {len(loaded)} modules have {kind}" for kind, count in kinds if count)
    why = f"For compute capability {dotted(gpu)}: {counts}{_reasons(left, gpu)}."
    return GpuSupport(
        how="no" if len(left) == len(chosen) else "native" if native >= len(compiled) else "jit",
        native=native,
        jit=len(compiled),
        none=len(left),
        driver=max((ptx_since(entry.version) for entry in compiled), default=None),
        why=why if loaded else "There is no device code in it.",
    )


def choose(entries: Iterable[FatbinEntry], gpu: Version) -> FatbinEntry | None:
    """Return the entry of a module that the driver loads: machine code first, the nearest architecture."""
    fitting = [entry for entry in entries if not _mismatch(entry, gpu)]
    return max(fitting, key=lambda e: (e.kind == "elf", capability(e.arch), e.arch), default=None)


def _mismatch(entry: FatbinEntry, gpu: Version) -> str:
    """Return why an entry does not run on a GPU, "" where it does."""
    rule = RULES.get((entry.kind, entry.arch.lstrip("sm_0123456789")))
    if rule is None:
        return f"{entry.kind} for {entry.arch} is not loaded by itself"
    fits, gpus = rule
    return (
        "" if fits(capability(entry.arch), gpu) else f"{_KINDS[entry.kind]} for {entry.arch} runs on {gpus}"
    )


def ptx_since(version: Version) -> Version:
    """Return the CUDA version since which drivers read a version of PTX; beyond the table, a guess."""
    return PTX_SINCE.get(version, (version[0] + 4, version[1]))


def capability(arch: str) -> Version:
    """Return (9, 0) for `sm_90a`."""
    major, minor = divmod(int(arch.strip("sm_af")), 10)
    return major, minor


def _reasons(left: Sequence[Fatbin], gpu: Version) -> str:
    """Return why modules do not run: each reason where they are few, else what there is."""
    entries = [entry for module in left for entry in module.entries]
    reasons = dict.fromkeys(_mismatch(entry, gpu) for entry in entries)
    if len(reasons) <= _MAX_REASONS:
        return ": " + "; ".join(reasons) if reasons else ""
    by_kind: dict[str, set[str]] = {}
    for entry in entries:
        by_kind.setdefault(_KINDS.get(entry.kind, entry.kind), set()).add(entry.arch)
    return ": there is " + "; ".join(
        f"{kind} for {', '.join(sorted(archs, key=lambda arch: (capability(arch), arch)))}"
        for kind, archs in by_kind.items()
    )


Numbers = tuple[int, ...]

# The newest versions that a wheel of a tag may ask for. By MINOR of manylinux_2_MINOR, which has
# GLIBC_2.MINOR: N of GLIBCXX_3.4.N and of CXXABI_1.3.N, and GCC_N. aarch64's differ in GCC alone, and in that
# its manylinux_2_17 has GLIBC_2.18.
# Source: manylinux-policy.json of auditwheel 6.8, symbol_versions of x86_64; PEP 600.
_POLICIES: Mapping[int, tuple[int, int, Numbers]] = {
    5: (8, 1, (4, 2)),
    12: (13, 3, (4, 3)),
    17: (19, 7, (4, 8)),
    **dict.fromkeys((24, 26), (22, 10, (4, 8))),
    **dict.fromkeys((27, 28), (24, 11, (7,))),
    31: (28, 12, (7,)),
    34: (29, 13, (7,)),
    **dict.fromkeys((35, 36, 37, 38), (30, 13, (12,))),
    **dict.fromkeys((39, 40, 41), (33, 15, (14,))),
}
_FIRST_OF = {"x86_64": 5, "aarch64": 17}
"""The oldest tag of a processor. Source: as above."""
_ALIASES = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_RELATIVE_RELOCATIONS = "GLIBC_ABI_DT_RELR", "GLIBC_2.36"
_TAG = re.compile(r"(?:manylinux_2_(\d+)|(manylinux\d+))_\w+")

# What every system of a tag has. Source: as above, lib_whitelist.
_PROVIDED = frozenset({
    "libGL.so.1", "libICE.so.6", "libSM.so.6", "libX11.so.6", "libXext.so.6", "libXrender.so.1",
    "libanl.so.1", "libatomic.so.1", "libc.so.6", "libdl.so.2", "libexpat.so.1", "libgcc_s.so.1",
    "libglib-2.0.so.0", "libgobject-2.0.so.0", "libgthread-2.0.so.0", "libm.so.6", "libmvec.so.1",
    "libnsl.so.1", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libstdc++.so.6", "libutil.so.1",
    "libz.so.1",
})  # fmt: skip
_LOADER = re.compile(r"ld-linux.*|ld64\.so\..*")


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The oldest system libraries that suffice.

    Attributes:
        glibc: `2.17`, "" where no version of it is asked for; libstdcxx: `3.4.21` likewise.
        tag: The lowest tag whose systems all suffice: `manylinux_2_28_x86_64`; "" if there is none for the
            processor or the C library.
        outside: Libraries that are needed and that such a system need not have: a wheel has to contain them.
    """

    glibc: str
    libstdcxx: str
    tag: str
    outside: tuple[str, ...]


def floor_of(binary: HostBinary) -> Floor | None:
    """Return the oldest system that a binary runs on; None for an object file, which is not linked yet."""
    if not binary.is_linked:
        return None
    highest: dict[str, Numbers] = {"GLIBC": (), "GLIBCXX": (), "CXXABI": (), "GCC": ()}
    for version in [version for versions in binary.versions.values() for version in versions]:
        name = _RELATIVE_RELOCATIONS[1] if version == _RELATIVE_RELOCATIONS[0] else version
        family, _, number = name.partition("_")
        if family in highest and re.fullmatch(r"\d+(\.\d+)*", number):  # not CXXABI_FLOAT128
            highest[family] = max(highest[family], tuple(map(int, number.split("."))))
    outside = tuple(name for name in binary.needed if not is_provided(name))
    foreign = binary.machine not in _FIRST_OF or any(name.startswith("libc.musl") for name in outside)
    return Floor(
        glibc=".".join(map(str, highest["GLIBC"])),
        libstdcxx=".".join(map(str, highest["GLIBCXX"])),
        tag="" if foreign else f"manylinux_2_{_minor(highest, binary.machine)}_{binary.machine}",
        outside=outside,
    )


def is_provided(library: str) -> bool:
    """Return whether every system of a manylinux tag has a library."""
    return library in _PROVIDED or _LOADER.fullmatch(library) is not None


def _minor(highest: Mapping[str, Numbers], machine: str) -> int:
    """Return the lowest minor whose systems have glibc, C++ and compiler libraries that are new enough."""
    glibc = max(highest["GLIBC"][1:2], default=0)
    for minor, (libstdcxx, cxxabi, gcc) in _POLICIES.items():
        if (
            minor >= max(glibc, _FIRST_OF[machine])
            and (3, 4, libstdcxx) >= highest["GLIBCXX"]
            and (1, 3, cxxabi) >= highest["CXXABI"]
            and gcc >= highest["GCC"][: len(gcc)]
        ):
            return minor
    return max(glibc, max(_POLICIES) + 1)


def glibc_minor_of(platform: str) -> int | None:
    """Return the minor of glibc 2 that a wheel's platform tag promises to run on; None for other tags."""
    match = _TAG.fullmatch(platform)
    if match is None:
        return None
    return int(match[1]) if match[1] else _ALIASES.get(match[2])
