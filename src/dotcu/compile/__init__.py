"""CUDA C++ text to object code.

    source -> include graph -> plan (options, digests) -> cache, or NVRTC -> ObjectCode

`build()` is the whole way; the rest are its nouns, each usable alone.
"""

from __future__ import annotations

from dotcu.compile import cache, driver, toolchain
from dotcu.compile.build import build, parameter_layouts
from dotcu.compile.object_code import ObjectCode, Resources
from dotcu.compile.options import CompileOptions
from dotcu.compile.plan import plan_build
from dotcu.compile.source.declarations import Declaration, kernels, variables
from dotcu.compile.source.source import Source, inline_source, read_source
from dotcu.compile.target import Rejected, Target, plan_target

__all__ = [
    "CompileOptions",
    "Declaration",
    "ObjectCode",
    "Rejected",
    "Resources",
    "Source",
    "Target",
    "build",
    "cache",
    "driver",
    "inline_source",
    "kernels",
    "parameter_layouts",
    "plan_build",
    "plan_target",
    "read_source",
    "toolchain",
    "variables",
]
