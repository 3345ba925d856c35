"""For which GPUs a wheel holds code: the names that people use, as targets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dotcu.compile.target import FIRST_SPECIFIC_MAJOR, Target
from dotcu.errors import UsageError

DEFAULT = ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0")

# Source: CUDA C++ Programming Guide, "Compute Capabilities".
NAMES = {
    "turing": ("7.5",),
    "ampere": ("8.0", "8.6"),
    "ada": ("8.9",),
    "hopper": ("9.0",),
    "blackwell": ("10.0", "12.0"),
}

_NUMBER = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)(\+ptx)?")


def targets(names: Sequence[str], supported: Iterable[int]) -> tuple[Target, ...]:
    """What to compile: machine code for each architecture named, and PTX for GPUs that are yet to come.

    Args:
        names: `8.0`, `9.0a`, `sm_90`, `Hopper`, as TORCH_CUDA_ARCH_LIST has them too. PTX is made of
            those with `+PTX`, and where there is none, of the oldest: later GPUs of any kind take it. PTX of
            one with a letter, such as 9.0a, would be for that GPU alone, so there is none of it.
        supported: What the compiler makes code for: 80, 90, ...

    Raises:
        UsageError: A name is unknown, or the compiler has no code for it.
    """
    machine: dict[Target, None] = {}
    portable: dict[Target, None] = {}
    known = sorted(supported)
    for name in names:
        for target, ptx in _read(name, known):
            machine[target] = None
            if ptx:
                portable[target.virtual] = None
    if not machine:
        raise UsageError(f"No architecture was named.\n{_known(known)}")
    plain = [target for target in machine if not target.suffix]
    if not portable and plain:
        portable[min(plain, key=lambda target: target.number).virtual] = None
    return (*sorted(machine), *sorted(portable))


def split(text: str) -> tuple[str, ...]:
    """The names in a list such as `8.0;9.0+PTX` or `Ampere Hopper`."""
    return tuple(re.split(r"[;,\s]+", text.strip())) if text.strip() else ()


def _read(name: str, known: Sequence[int]) -> list[tuple[Target, bool]]:
    text, plus, _ = name.strip().lower().partition("+ptx")
    spelled = NAMES.get(text, (text,))
    found = []
    for i, one in enumerate(spelled):
        match = _NUMBER.fullmatch(one)
        if (
            match is None
            or int(match[1]) * 10 + int(match[2]) not in known
            or (match[3] and int(match[1]) < FIRST_SPECIFIC_MAJOR)
        ):
            raise UsageError(f"The architecture {name!r} is unknown.\n{_known(known)}")
        target = Target("sm", int(match[1]), int(match[2]), match[3])
        found.append((target, bool(plus) and i == len(spelled) - 1))
    return found


def _known(known: Sequence[int]) -> str:
    numbers = ", ".join(f"{number // 10}.{number % 10}" for number in known)
    names = ", ".join(name.capitalize() for name in NAMES)
    return f"The compiler here knows {numbers}; names are {names}.\nType, say: dotcu build --arch 8.0,9.0+PTX"
