"""What the tests of the compiler share: a cache of their own, and the shortest way to a build."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dotcu
from dotcu.compile import CompileOptions, ObjectCode, Source, Target, build, inline_source, nvrtc

Build = Callable[..., ObjectCode]


@pytest.fixture
def make(cache_dir: Path) -> Build:
    """Builds a source, or text, for one target with default options."""

    def make(
        source: Source | str, names: Sequence[str] = ("k",), target: str = "sm_80", **options: Any
    ) -> ObjectCode:
        simulated = options.pop("simulated", False)
        source = inline_source(source) if isinstance(source, str) else source
        return build(
            source,
            options=CompileOptions(**options),
            target=Target.parse(target),
            names=names,
            simulated=simulated,
        )

    return make


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of the source of each call of the compiler."""
    calls: list[str] = []
    real = nvrtc.compile

    def counted(path: Path, name: str, *given: Any, **more: Any) -> Any:
        calls.append(name)
        return real(path, name, *given, **more)

    monkeypatch.setattr(nvrtc, "compile", counted)
    return calls


@pytest.fixture
def python() -> Callable[[str], list[str]]:
    """The command that runs a text in a new Python which sees this dotcu."""
    package = str(Path(dotcu.__file__).parent.parent)

    def command(text: str) -> list[str]:
        return [sys.executable, "-c", f"import sys; sys.path.insert(0, {package!r})\n{text}"]

    return command
