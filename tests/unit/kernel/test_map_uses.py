"""Whether a kernel stores through its tensor maps, and whether it copies them, told from its PTX."""

from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source
from dotcu.kernel.map_uses import MapUse, map_uses

LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
ADD = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"


def uses(body: str, helper: str = "") -> list[tuple[bool, bool]]:
    text = f""".version 9.0
.func _Z6helperPi(
\t.param .b64 p
)
{{
\t{helper}
\tret;
}}
.visible .entry k(
\t.param .align 128 .b8 k_param_0[128],
\t.param .align 128 .b8 k_param_1[128]
)
{{
\t{body}
\tret;
}}
"""
    return [(use.stored, use.copied) for use in map_uses(text, "k", ["k_param_0", "k_param_1"])]


BOTH = "mov.b64 %rd1, k_param_0;\n mov.b64 %rd2, k_param_1;\n cvta.param.u64 %rd3, %rd1;\n"


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("", [False, False]),
        (f"{BOTH} {LOAD} [%r1], [%rd3, {{%r2, %r2}}], [%r1];", [False, False]),
        (f"{BOTH} {STORE} [%rd3, {{%r2, %r2}}], [%r1];", [True, False]),
        (f"{BOTH} {STORE} [%rd2, {{%r2, %r2}}], [%r1];", [False, True]),
        (f"{BOTH} {ADD} [%rd2, {{%r2, %r2}}], [%r1];", [False, True]),
        (f"{BOTH} @%p1 {STORE} [%rd3, {{%r2, %r2}}], [%r1];", [True, False]),
        (f"{BOTH} fence.proxy.async; {STORE} [%rd3, {{%r2, %r2}}], [%r1];", [True, False]),
        (f"{BOTH} {{ @p {STORE} [%rd3, {{%r2, %r2}}], [%r1]; }}", [True, False]),
        (f"{BOTH} selp.b64 %rd4, %rd2, %rd1, %p1;\n {STORE} [%rd4, {{%r2, %r2}}], [%r1];", [True, True]),
        (
            f"{BOTH} {LOAD} [%r1], [%rd3, {{%r2, %r2}}], [%r1];\n {STORE} [%rd2, {{%r2, %r2}}], [%r1];",
            [False, True],
        ),
    ],
)
def test_a_map_is_stored_through_where_a_copy_out_names_it(body: str, stored: list[bool]) -> None:
    assert uses(body) == [(one, False) for one in stored]


@pytest.mark.parametrize(("helper", "stored"), [(f"{STORE} [%rd1, {{%r1, %r1}}], [%r1];", True), ("", False)])
def test_a_map_that_is_handed_on_is_stored_through_where_any_function_stores(
    helper: str, stored: bool
) -> None:
    body = f"{BOTH} {{ // callseq\n st.param.b64 [param0], %rd3;\n call.uni\n _Z6helperPi, (param0);\n }}"
    assert uses(body, helper) == [(stored, False), (False, False)]


SOURCE = """
#include <dotcu/tma.cuh>
struct Pair { long long a, b; };
extern "C" __global__ void k(CONST CUtensorMap x, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[64];
    __shared__ dotcu::mbarrier arrived;
    dotcu::tma_load(tile, x, arrived, 0);
    dotcu::tma_store(out, tile, 0);
}
"""


def of_source(text: str) -> tuple[MapUse, ...]:
    options, target = CompileOptions(), Target.parse("compute_90")
    ptx = build(inline_source(text), options=options, target=target, names=["k"]).ptx
    return map_uses(ptx, "k", ["k_param_0", "k_param_1"])


def test_what_the_compiler_makes_of_a_kernel_is_read_rightly() -> None:
    found = of_source(SOURCE.replace("CONST", "const __grid_constant__"))
    assert found == (MapUse(), MapUse(stored=True))


@pytest.mark.parametrize("const", ["const", ""])
def test_without_grid_constant_a_map_is_copied(const: str) -> None:
    assert of_source(SOURCE.replace("CONST", const))[0].copied
