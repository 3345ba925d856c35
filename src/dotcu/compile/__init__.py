"""CUDA C++ text to object code.

    source -> include graph -> plan (options, digests) -> cache, or NVRTC -> ObjectCode

`build()` is the whole way; the rest are its nouns, each usable alone.
"""

from __future__ import annotations

from dotcu.compile import cache, driver, prebuilt, tile, toolchain
from dotcu.compile.build import build, build_visible, parameter_layouts, plan_build
from dotcu.compile.object_code import ObjectCode, Resources
from dotcu.compile.options import CompileOptions
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
    "build_visible",
    "cache",
    "driver",
    "inline_source",
    "kernels",
    "parameter_layouts",
    "plan_build",
    "plan_target",
    "prebuilt",
    "read_source",
    "tile",
    "toolchain",
    "variables",
]
