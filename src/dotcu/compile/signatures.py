"""The signature probe: a kernel's parameter types, from the name of an empty kernel beside it."""

from __future__ import annotations

from collections.abc import Iterable

PROBE = "__dotcu_probe"
DECLARATION = f"template <typename F> __global__ void {PROBE}() {{}}"


def is_kernel(name: str) -> bool:
    """A name expression is a kernel's unless it takes the address of a variable."""
    return not name.startswith("&")


def expression(name: str) -> str:
    """The probe's name expression for a kernel's; its symbol holds the kernel's function type."""
    return f"{PROBE}<decltype(&{name})>"


def expressions(names: Iterable[str]) -> tuple[str, ...]:
    """All that the compiler is asked for: the names, and a probe for each kernel among them."""
    names = tuple(names)
    return names + tuple(expression(name) for name in names if is_kernel(name))


def probed(text: str) -> str:
    """A source's text with the probe at its end, on lines of its own."""
    continued = text.rstrip(" \t\r").endswith("\\")  # the probe would go on a comment, or a macro
    return f"{text}\n{chr(10) if continued else ''}{DECLARATION}\n"
