"""Pages of one kernel, small enough to know by heart, for the tests of the HTML report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dotcu.inspection.code.ptx import SourceLocation
from dotcu.inspection.html.page import CodeLine, Fact, FileLines, KernelPane, Note, Page

SOURCE = (
    "// scale",
    "__device__ float twice(float x) { return 2 * x; }",
    "__global__ void scale(float* x) {",
    "    x[threadIdx.x] = twice(x[threadIdx.x]);",
    "}",
)
LINE, CALL, END = (SourceLocation("scale.cu", number) for number in (2, 4, 5))


def numbered(*lines: str) -> FileLines:
    return tuple(enumerate(lines, 1))


def scale(arch: str = "sm_90", **changes: Any) -> KernelPane:
    """A kernel that doubles its element through a function, which is inlined."""
    fields: dict[str, Any] = {
        "name": "scale",
        "arch": arch,
        "facts": (Fact(name="registers", value="8", note="one less changes nothing", tone="good"),),
        "notes": (Note(text="loads of 4 bytes", location=CALL),),
        "source": {"scale.cu": numbered(*SOURCE)},
        "ptx": (
            CodeLine(text="\tld.global.f32 \t%f1, [%rd4];", label="20", chain=(CALL,)),
            CodeLine(text="\tadd.f32 \t%f2, %f1, %f1;", label="22", chain=(LINE, CALL)),
            CodeLine(text="\tst.global.f32 \t[%rd4], %f2;", label="24", chain=(CALL,)),
            CodeLine(text="\tret;", label="26", chain=(END,)),
        ),
        "sass": (
            CodeLine(text="LDG.E R0, desc[UR4][R2.64]", label="0000", chain=(CALL,)),
            CodeLine(text=".L_x_0:"),
            CodeLine(text="FADD R5, R0, R0", label="0010", chain=(LINE, CALL)),
            CodeLine(text="STG.E desc[UR4][R2.64], R5", label="0020", chain=(CALL,)),
            CodeLine(text="EXIT", label="0030", chain=(END,)),
            CodeLine(text="BRA `(.L_x_0)", label="0040"),
        ),
        "metrics": {
            "lane instructions": ("Once for each lane", {LINE: 32, CALL: 12800}),
            "sectors": ("Of 32 bytes", {CALL: 8}),
        },
    }
    return KernelPane(**{**fields, **changes})


def page_with(*kernels: KernelPane, title: str = "scale.cu") -> Page:
    return Page(title=title, kernels=kernels or (scale(),), rows=(("compiler", "NVRTC 13.0"),))


InBrowser = Callable[..., Any]
