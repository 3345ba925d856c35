"""Pages of one kernel, small enough to know by heart, for the tests of the HTML report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

SOURCE = (
    "// scale",
    "__device__ float twice(float x) { return 2 * x; }",
    "__global__ void scale(float* x) {",
    "    x[threadIdx.x] = twice(x[threadIdx.x]);",
    "}",
)
LINE, CALL, END = "0:2", "0:4", "0:5"


def row(text: str, label: str = "", *locations: str, control: str = "") -> list[Any]:
    """A line of PTX or SASS."""
    return [text, label, locations, control]


def scale(arch: str = "sm_90", **changes: Any) -> dict[str, Any]:
    """A kernel that doubles its element through a function, which is inlined."""
    fields: dict[str, Any] = {
        "name": "scale",
        "arch": arch,
        "failure": "",
        "language": "PTX",
        "facts": [["registers", "8", "one less changes nothing", "good"]],
        "notes": [["loads of 4 bytes", CALL, "warn"]],
        "files": [0],
        "ptx": [
            row("\tld.global.f32 \t%f1, [%rd4];", "20", CALL),
            row("\tadd.f32 \t%f2, %f1, %f1;", "22", LINE, CALL),
            row("\tst.global.f32 \t[%rd4], %f2;", "24", CALL),
            row("\tret;", "26", END),
        ],
        "sass": [
            row("LDG.E R0, desc[UR4][R2.64]", "0000", CALL),
            row(".L_x_0:"),
            row("FADD R5, R0, R0", "0010", LINE, CALL),
            row("STG.E desc[UR4][R2.64], R5", "0020", CALL),
            row("EXIT", "0030", END),
            row("BRA `(.L_x_0)", "0040"),
        ],
        "metrics": [
            {
                "name": "thread instructions",
                "meaning": "Once for each lane",
                "counts": {LINE: 32, CALL: 12800},
            },
            {"name": "sectors", "meaning": "Of 32 bytes", "counts": {CALL: 8}},
        ],
        "missing": {},
    }
    return {**fields, **changes}


def page_with(
    *kernels: dict[str, Any],
    title: str = "scale.cu",
    lines: Sequence[tuple[int, str]] = tuple(enumerate(SOURCE, 1)),
    file: str = "scale.cu",
) -> dict[str, Any]:
    return {
        "title": title,
        "rows": [["compiler", "NVRTC 13.0"]],
        "names": [file],
        "files": [{"name": 0, "lines": lines}],
        "kernels": kernels or [scale()],
    }


InBrowser = Callable[..., Any]
"""What the tests of the page share: a real browser."""
