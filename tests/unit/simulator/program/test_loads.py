"""Where loaded values end: in stores, in what they decide, in the warp."""

from __future__ import annotations

import pytest

from dotcu.ptx.module import parse_module
from dotcu.simulator.program.inlining import inline_calls
from dotcu.simulator.program.loads import LoadedValues, loaded_values

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 4;
    ld.global.u32 %r2, [%rd1];
    {body}
    ret;
}}
"""


def values(body: str) -> LoadedValues:
    module = parse_module(KERNEL.format(body=body))
    return loaded_values(inline_calls(module, "k", frozenset(), module.files).code)


def of_global_load(body: str) -> tuple[int, int] | None:
    """Return the number of stores and of exchanges that the load of global memory ends in."""
    found = values(body)
    ends = [each for each in found.ends.values() if each.position == 3]
    return (len(ends[0].stores), len(ends[0].exchanges)) if ends else None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", (0, 0)),
        ("add.u32 %r3, %r2, 1; @%p1 st.global.u32 [%rd1], %r3;", (1, 0)),
        ("shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; @%p1 st.global.u32 [%rd1], %r3;", (1, 1)),
        ("setp.eq.u32 %p2, %r2, 0; @%p2 st.global.u32 [%rd1], %r1;", None),
        ("setp.eq.u32 %p2, %r2, 0; @%p2 bra DONE; DONE:", None),
        ("cvt.u64.u32 %rd2, %r2; st.global.u32 [%rd2], %r1;", None),
        ("cvt.u64.u32 %rd2, %r2; ld.global.u32 %r3, [%rd2];", None),
        ("atom.global.add.u32 %r3, [%rd1], %r2;", None),
    ],
)
def test_what_a_value_can_show(body: str, expected: tuple[int, int] | None) -> None:
    assert of_global_load(body) == expected
