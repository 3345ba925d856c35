"""The oldest system that a library of the host runs on, as the manylinux tags of wheels name it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dotcu.elf import HostBinary

# The newest versions that a wheel of a tag may ask for. By MINOR of manylinux_2_MINOR, which has
# GLIBC_2.MINOR: N of GLIBCXX_3.4.N and of CXXABI_1.3.N, and GCC_N. aarch64's differ only in GCC, and in that
# its manylinux_2_17 has GLIBC_2.18.
# Source: manylinux-policy.json of auditwheel 6.8, symbol_versions of x86_64; PEP 600.
_POLICIES: Mapping[int, tuple[int, int, tuple[int, ...]]] = {
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
        glibc, libstdcxx: `2.17` and `3.4.21`; empty where no version is needed.
        tag: The lowest tag whose systems suffice: `manylinux_2_28_x86_64`; empty if there is none.
        outside: Needed libraries that such a system may lack: a wheel has to contain them.
    """

    glibc: str
    libstdcxx: str
    tag: str
    outside: tuple[str, ...]


def floor_of(binary: HostBinary) -> Floor | None:
    """Return the oldest system that a binary runs on; None for an object file, which is not linked yet."""
    if not binary.is_linked:
        return None
    highest: dict[str, tuple[int, ...]] = {"GLIBC": (), "GLIBCXX": (), "CXXABI": (), "GCC": ()}
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


def _minor(highest: Mapping[str, tuple[int, ...]], machine: str) -> int:
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
