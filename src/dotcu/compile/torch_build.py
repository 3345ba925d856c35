"""Which torch is installed, and for which CUDA, told without importing it."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dotcu.compile.target import Version

NEWEST_TRIED: Version = (2, 13)
"""The newest torch that the native part was tried on; in a newer one what it reads of memory may move."""


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """An installed torch.

    Attributes:
        cuda: The CUDA that it was built for, None for a build without.
        hip: The ROCm version that it was built for, "" for a build without.
    """

    version: str
    cuda: Version | None
    hip: str


_LINE = re.compile(r"^(__version__|cuda|hip)\b[^=\n]*= *['\"]([^'\"]+)['\"]", re.MULTILINE)


def parse(text: str) -> TorchBuild:
    """Read torch's `version.py`."""
    values = {match[1]: match[2] for match in _LINE.finditer(text)}
    cuda = re.match(r"(\d+)\.(\d+)", values.get("cuda", ""))
    return TorchBuild(
        version=values.get("__version__", ""),
        cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
        hip=values.get("hip", ""),
    )


def untried(version: str) -> str:
    """Return why the native part is not used with a version of torch; empty where it is."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) <= NEWEST_TRIED:
        return ""
    tried = ".".join(map(str, NEWEST_TRIED))
    return f"it was tried on torch up to {tried}, and this is torch {version}"


def find() -> TorchBuild | None:
    """The torch that an import would give, None where there is none."""
    try:
        spec = sys.modules["torch"].__spec__ if "torch" in sys.modules else importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    try:
        return parse((Path(spec.origin).parent / "version.py").read_text())
    except OSError:
        return None
