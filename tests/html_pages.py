"""Pages of one kernel, small enough to know by heart, for the tests of the HTML report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dotcu.inspection.html import (
    CodeLine,
    Fact,
    KernelPane,
    Metric,
    Note,
    Page,
    SourceFile,
    SourceLine,
)

SOURCE = (
    "// scale",
    "__device__ float twice(float x) { return 2 * x; }",
    "__global__ void scale(float* x) {",
    "    x[threadIdx.x] = twice(x[threadIdx.x]);",
    "}",
)
LINE, CALL, END = ("scale.cu", 2), ("scale.cu", 4), ("scale.cu", 5)


def source_file(*lines: str, name: str = "scale.cu") -> SourceFile:
    numbered = tuple(SourceLine(number=number, text=text) for number, text in enumerate(lines, 1))
    return SourceFile(name=name, lines=numbered)


def scale(arch: str = "sm_90", **changes: Any) -> KernelPane:
    """A kernel that doubles its element through a function, which is inlined."""
    given: dict[str, Any] = {
        "name": "scale",
        "arch": arch,
        "facts": (Fact(name="registers", value="8", note="one less changes nothing", tone="good"),),
        "notes": (Note(text="loads of 4 bytes", place=CALL),),
        "source": (source_file(*SOURCE),),
        "ptx": (
            CodeLine(text="\tld.global.f32 \t%f1, [%rd4];", label="20", places=(CALL,)),
            CodeLine(text="\tadd.f32 \t%f2, %f1, %f1;", label="22", places=(LINE, CALL)),
            CodeLine(text="\tst.global.f32 \t[%rd4], %f2;", label="24", places=(CALL,)),
            CodeLine(text="\tret;", label="26", places=(END,)),
        ),
        "sass": (
            CodeLine(text="LDG.E R0, desc[UR4][R2.64]", label="0000", places=(CALL,)),
            CodeLine(text=".L_x_0:"),
            CodeLine(text="FADD R5, R0, R0", label="0010", places=(LINE, CALL)),
            CodeLine(text="STG.E desc[UR4][R2.64], R5", label="0020", places=(CALL,)),
            CodeLine(text="EXIT", label="0030", places=(END,)),
            CodeLine(text="BRA `(.L_x_0)", label="0040"),
        ),
        "metrics": (
            Metric(name="lane instructions", told="Once for each lane", counts={LINE: 32, CALL: 12800}),
            Metric(name="sectors", told="Of 32 bytes", counts={CALL: 8}),
        ),
    }
    return KernelPane(**{**given, **changes})


def page_of(*kernels: KernelPane, title: str = "scale.cu") -> Page:
    return Page(title=title, kernels=kernels or (scale(),), rows=(("compiler", "NVRTC 13.0"),))


InBrowser = Callable[..., Any]
