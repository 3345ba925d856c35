"""Compile targets: `sm_90a` is a cubin for one GPU, `compute_80` is PTX that the driver assembles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dotcu.errors import UsageError

Version = tuple[int, int]


def dotted(version: Version) -> str:
    """Return a version as text: `13.0`."""
    return f"{version[0]}.{version[1]}"


_TARGET = re.compile(r"(sm|compute)_(\d{1,2})(\d)([af]?)")


def meant_by(text: str) -> str:
    """Return `sm_80` for 80, 8.0 and sm80; empty if a text is like no architecture."""
    name = f"sm_{text.lower().removeprefix('sm').strip('_').replace('.', '')}"
    return name if _TARGET.fullmatch(name) else ""


FIRST_SPECIFIC_MAJOR = 9
"""The first major compute capability with instructions that only `sm_XXa` code may use.

Source: CUDA C++ Programming Guide, "Architecture-specific features" (wgmma, setmaxnreg, tcgen05).
"""


@dataclass(frozen=True, order=True)
class Target:
    """An architecture that code is compiled for.

    Attributes:
        kind: "sm" (a cubin, and the PTX it came from) or "compute" (PTX alone).
        suffix: "" (runs on later minors too), "f" (on the family) or "a" (on this one only).
    """

    kind: str
    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `sm_90a`, `compute_80`, ...

        Raises:
            UsageError: The text is not an architecture's name.
        """
        match = _TARGET.fullmatch(text)
        if match is None:
            near = f"\nDid you mean {meant_by(text)}?" if meant_by(text) else ""
            raise UsageError(
                f"An architecture was expected, got {text!r}.\n"
                f"It is written as for nvcc: sm_80 and sm_90a are cubins, compute_80 is PTX.{near}"
            )
        kind, major, minor, suffix = match.groups()
        return cls(kind, int(major), int(minor), suffix)

    def __str__(self) -> str:
        return f"{self.kind}_{self.major}{self.minor}{self.suffix}"

    @property
    def virtual(self) -> Target:
        """The PTX architecture of this target: `compute_90a` of `sm_90a`."""
        return Target("compute", self.major, self.minor, self.suffix)

    @property
    def number(self) -> int:
        """The architecture as nvcc counts: 90 of `sm_90a`."""
        return self.major * 10 + self.minor


@dataclass(frozen=True)
class Rejected:
    """A choice that was refused.

    Attributes:
        reason: The two values that do not fit each other.
        remedy: The line to type, or "" if there is none.
    """

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}\n{self.remedy}" if self.remedy else self.reason


def plan_target(
    capability: Version, driver_version: Version | None, nvrtc_version: Version, supported: Iterable[int]
) -> Target | Rejected:
    """Choose what to compile for a GPU, given what the compiler knows and the driver loads.

    A cubin wants a driver of the compiler's major version, or later; PTX wants one that knows its
    ISA, so no older than the compiler at all. A GPU that the compiler does not know by name
    takes the cubin of an earlier minor of its major or, where it is newer than all that the
    compiler knows, PTX of the newest.

    Args:
        capability: The GPU's compute capability, such as (9, 0).
        driver_version: The CUDA version of the driver, None if there is no driver.
        nvrtc_version: The compiler's CUDA version.
        supported: The architectures that the compiler makes code for, such as 80, 86, 90.

    Source: CUDA Compatibility guide, "Minor version compatibility" and "Limitations and caveats".
    """
    known, gpu = sorted(supported), capability[0] * 10 + capability[1]
    refusal = _refuse(capability, driver_version, nvrtc_version, known[0])
    if refusal is not None:
        return refusal
    if gpu in known:
        return Target("sm", *capability, "a" if capability[0] >= FIRST_SPECIFIC_MAJOR else "")
    same_major = [arch for arch in known if arch // 10 == capability[0] and arch < gpu]
    if same_major and gpu < known[-1]:
        return Target("sm", *divmod(same_major[-1], 10))
    newest = max(arch for arch in known if arch < gpu)
    if driver_version is not None and driver_version < nvrtc_version:
        return Rejected(
            f"The compiler of CUDA {dotted(nvrtc_version)} does not know compute capability "
            f"{dotted(capability)}, and the driver, of CUDA {dotted(driver_version)}, cannot read its PTX.",
            f'Take a newer compiler: pip install -U "dotcu[cu{nvrtc_version[0]}]"',
        )
    return Target("compute", *divmod(newest, 10))


def _refuse(capability: Version, driver: Version | None, nvrtc: Version, oldest: int) -> Rejected | None:
    if driver is None:
        return Rejected(
            f"A GPU of compute capability {dotted(capability)} needs NVIDIA's driver, and none is loaded.",
            "Check it with: nvidia-smi",
        )
    if driver[0] < nvrtc[0]:
        return Rejected(
            f"The driver is of CUDA {dotted(driver)} and the compiler of CUDA {dotted(nvrtc)}: "
            "a driver loads no code of a later major version.",
            f'Update the driver, or take its compiler: pip install "dotcu[cu{driver[0]}]"',
        )
    if capability[0] * 10 + capability[1] < oldest:
        return Rejected(
            f"The GPU's compute capability is {dotted(capability)} and the compiler of CUDA "
            f"{dotted(nvrtc)} starts at {oldest // 10}.{oldest % 10}.",
            f'Take an older compiler: pip install "dotcu[cu{nvrtc[0] - 1}]"',
        )
    return None
