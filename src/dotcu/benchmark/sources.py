"""What code was measured: digests, so that two runs can tell whether they are of the same."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dotcu.kernel.context import watching


def digests(call: Callable[[], Any]) -> tuple[str, ...]:
    """Make a call, and give the build digests of the kernels that it launches, each once, in order."""
    with watching() as launches:
        call()
    return tuple(dict.fromkeys(launch.digest for launch in launches))


def source_digest(kernels: Sequence[str], body: Callable[..., Any] | None = None) -> str:
    """One digest over kernels and the Python that launches them.

    Args:
        kernels: What `digests` gave.
        body: An operator's body, or a function that launches; its text counts, or its code where no file
            holds the text.
    """
    found = hashlib.sha256()
    for part in (*kernels, "" if body is None else _text(body)):
        found.update(f"{len(part)}:{part}".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def file_digest(path: Path) -> str:
    """The digest of a library that computes an operator."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _text(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return "" if code is None else code.co_code.hex()
