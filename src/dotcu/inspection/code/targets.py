"""Which architectures to compile for: those that were asked for, or this machine's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dotcu.compile import Rejected, Target, toolchain
from dotcu.compile.driver import gpus
from dotcu.compile.target import FIRST_SPECIFIC_MAJOR
from dotcu.errors import UsageError

DEFAULT = "sm_90"
"""Where there is no GPU that code can be made for."""

FIRST_FAMILY_MAJOR = 10
"""From this compute capability on there is code for a family of GPUs, `sm_100f`.

Source: CUDA C++ Programming Guide, "Family-specific features"; NVRTC 13.0 takes no other.
"""


def resolve(arch: str | Sequence[str] | None) -> tuple[Target, ...]:
    """The targets that were asked for, each once; else that of this machine's GPU.

    Raises:
        UsageError: The compiler makes no code for one; names those that it does.
    """
    if arch is None:
        return (_own() or Target.parse(DEFAULT),)
    asked = [arch] if isinstance(arch, str) else list(arch)
    valid = known(toolchain.supported(toolchain.nvrtc()))
    for name in asked:
        if name.replace("compute_", "sm_") not in valid:
            raise UsageError(
                f"the compiler makes no code for the architecture {name!r}.\n"
                f"It is one of {', '.join(valid)}, or compute_ in place of sm_ for PTX alone.\n"
                f"Type: --arch {DEFAULT}"
            )
    return tuple(dict.fromkeys(Target.parse(name) for name in asked))


def known(numbers: Iterable[int]) -> tuple[str, ...]:
    """The names of the targets for some architectures, such as 80 and 90: `sm_90`, `sm_90a`."""
    return tuple(f"sm_{number}{suffix}" for number in sorted(numbers) for suffix in _suffixes(number // 10))


def _suffixes(major: int) -> tuple[str, ...]:
    if major < FIRST_SPECIFIC_MAJOR:
        return ("",)
    return ("", "a") if major < FIRST_FAMILY_MAJOR else ("", "a", "f")


def _own() -> Target | None:
    for gpu in gpus():
        target = toolchain.native_target(gpu.capability)
        if not isinstance(target, Rejected):
            return target
    return None
