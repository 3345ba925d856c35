"""Signs of host code that are cheap to look for, so that a file of kernels alone is never parsed."""

from __future__ import annotations

import functools

from dotcu.compile.declarations import holds_unannotated
from dotcu.compile.host_code import host_code
from dotcu.compile.host_items import DEVICE_WORDS
from dotcu.compile.host_macros import expanded, macros_of


@functools.lru_cache(maxsize=64)
def with_host_code(texts: tuple[str, ...], defined: frozenset[str]) -> frozenset[int]:
    """Which of some texts show host code: a line that only a host takes, or a function without annotation.

    Args:
        texts: Those of a source and of the user's headers that it reaches.
        defined: Macros known to be defined.
    """
    macros = macros_of(texts)
    device = {name for name in macros if expanded(frozenset({name}), macros) & DEVICE_WORDS}
    return frozenset(
        index
        for index, text in enumerate(texts)
        if host_code(text, defined) or holds_unannotated(text, defined, DEVICE_WORDS | device)
    )
