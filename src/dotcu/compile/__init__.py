"""CUDA C++ text to object code.

    source -> include graph -> plan (options, digests) -> cache, or NVRTC -> ObjectCode

`build()` is the whole way; the rest are its nouns, each usable alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dotcu.compile import cache, driver, prebuilt, toolchain
from dotcu.compile.build import BuildPlan, build, build_visible, plan_build
from dotcu.compile.object_code import ObjectCode, Resources
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.declarations import Declaration, kernels, shared_variables, variables
from dotcu.compile.source.source import Source, inline_source, read_source
from dotcu.compile.target import Rejected, Target, plan_target

if TYPE_CHECKING:
    from dotcu.compile.diagnostics import Diagnostic

__all__ = [
    "BuildPlan",
    "CompileOptions",
    "Declaration",
    "Diagnostic",
    "ObjectCode",
    "Rejected",
    "Resources",
    "Source",
    "Target",
    "build",
    "build_visible",
    "cache",
    "driver",
    "inline_source",
    "kernels",
    "plan_build",
    "plan_target",
    "prebuilt",
    "read_source",
    "shared_variables",
    "toolchain",
    "variables",
]


def __getattr__(name: str) -> Any:
    """Fetch what only a failed compile needs when it is first used (PEP 562)."""
    if name != "Diagnostic":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("dotcu.compile.diagnostics").Diagnostic
