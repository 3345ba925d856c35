"""The memory that a kernel's PTX may write: variables, and tensors through tensor maps."""

from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source
from dotcu.compile.object_code import skeleton
from dotcu.errors import SourceError
from dotcu.kernel.compiled import ModuleVariables
from dotcu.kernel.ptx_uses import MapUse, map_uses, parameter_is_written, variable_writes
from dotcu.ptx.module import parse_module

REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<12>; .reg .f32 %f<9>; .reg .pred %p<9>; .param .b64 param0;"


def module(body: str, helper: str = "") -> str:
    return f""".version 9.0
.global .align 4 .b8 table[1024];
.func _Z6helperPi(
\t.param .b64 p
)
{{
\t{REGISTERS}
\t{helper}
\tret;
}}
\t// .globl\t_Z5otherv
.visible .entry _Z5otherv()
{{
\t{REGISTERS}
\tst.global.u32 \t[table], %r1;
\tret;
}}
.visible .entry _Z1kPf(
\t.param .u64 _Z1kPf_param_0
)
.maxntid 128, 1, 1
{{
\t{REGISTERS}
\t.loc\t1 4 3
\t{body}
\tret;
}}
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("mov.u32 %r1, 0; // table", {}),
        ("ld.global.f32 \t%f1, [table+20];", {"table": False}),
        ("mov.u64 %rd1, table;\n add.s64 %rd2, %rd1, %rd9;\n ld.global.f32 %f1, [%rd2];", {"table": False}),
        ("ld.global.u64 %rd1, [table];\n st.global.u32 [%rd1], %r2;", {"table": False}),
        (
            "mov.u64 %rd1, table;\n setp.eq.s64 %p1, %rd1, 0;\n @%p1 st.global.u32 [%rd7], 1;",
            {"table": False},
        ),
        ("st.global.u32 [table+4], %r1;", {"table": True}),
        ("@!%p1 st.global.u32 [table+4], %r1;", {"table": True}),
        ("red.global.add.u32 [table], 1;", {"table": True}),
        ("mov.u64 %rd1, table;\n atom.global.add.u32 %r1, [%rd1], 1;", {"table": True}),
        ("mov.u64 %rd1, table;\n cvta.global.u64 %rd2, %rd1;\n st.u32 [%rd2], %r1;", {"table": True}),
        ("add.s64 %rd3, %rd2, 4;\n mov.u64 %rd2, table;\n st.u32 [%rd3], %r1;", {"table": True}),
        ("mov.u64 %rd1, table;\n st.global.u64 [%rd9], %rd1;", {"table": True}),
        ("mov.b64 {%r1, %r2}, table;\n st.global.u32 [%rd9], %r2;", {"table": True}),
        ("mov.u64 %rd1, table;\n fence.proxy.async; st.global.u32 [%rd1], %r1;", {"table": True}),
        ("mov.u64 %rd1, table;\n { .reg .pred p; @p st.global.u32 [%rd1], %r1; }", {"table": True}),
        (
            "mov.u64 %rd1, table;\n cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;",
            {"table": True},
        ),
        ("{ // callseq\n mov.u64 %rd1, table;\n st.param.b64 [param0], %rd1;\n }", {"table": True}),
    ],
)
def test_a_kernel_writes_through_addresses_that_come_from_a_variable(
    body: str, found: dict[str, bool]
) -> None:
    assert variable_writes(parse_module(module(body)), "_Z1kPf", ["table", "absent"]) == found


def test_functions_count_where_they_are_called() -> None:
    text = module("call.uni \n\t_Z6helperPi, \n\t(\n\tparam0\n\t);", "st.global.u32 [table], %r1;")
    assert variable_writes(parse_module(text), "_Z1kPf", ["table"]) == {"table": True}
    assert variable_writes(parse_module(module("", "st.global.u32 [table], %r1;")), "_Z1kPf", ["table"]) == {}


def test_readers_may_each_have_a_copy_until_somebody_writes() -> None:
    users = ModuleVariables("k.cu")
    users.claim("sm_80", "one", "read<float>", {"table": False})
    users.claim("sm_80", "two", "read<int>", {"table": False})
    users.claim("sm_90", "three", "fill<float>", {"table": True})
    with pytest.raises(
        SourceError, match=r"fill<float> would .* variable table, which read<float>, read<int>"
    ):
        users.claim("sm_80", "three", "fill<float>", {"other": True, "table": True})
    users.claim("sm_80", "four", "read<bool>", {"other": False, "table": False})


def test_a_writer_keeps_others_out_and_gives_the_line_to_type() -> None:
    users = ModuleVariables("k.cu")
    users.claim("sm_80", "one", "bump<float, 3>", {"n": True})
    users.claim("sm_80", "one", "plain", {"n": True})
    with pytest.raises(SourceError) as caught:
        users.claim("sm_80", "two", "ns::bump<pair<int, int>, true>", {"n": False})
    assert str(caught.value).endswith(
        'Type: dotcu.load(..., instantiate={"bump": [(torch.float32, 3)], '
        '"ns::bump": [("pair<int, int>", True)]})'
    )


# Whether a kernel stores through its tensor maps, and whether it copies them, told from its PTX.


LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
ADD = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"

MAP_USES_REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>, p; .param .b64 param0;"


def uses(body: str, helper: str = "") -> list[MapUse]:
    text = f""".version 9.0
.func _Z6helperPi(
\t.param .b64 p
)
{{
\t{MAP_USES_REGISTERS}
\t{helper}
\tret;
}}
.visible .entry k(
\t.param .align 128 .b8 k_param_0[128],
\t.param .align 128 .b8 k_param_1[128]
)
{{
\t{MAP_USES_REGISTERS}
\t{body}
\tret;
}}
"""
    return list(map_uses(parse_module(text), "k", ["k_param_0", "k_param_1"]))


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
    assert uses(body) == ["stored" if one else "loaded" for one in stored]


@pytest.mark.parametrize(("helper", "stored"), [(f"{STORE} [%rd1, {{%r1, %r1}}], [%r1];", True), ("", False)])
def test_a_map_that_is_handed_on_is_stored_through_where_any_function_stores(
    helper: str, stored: bool
) -> None:
    body = f"{BOTH} {{ // callseq\n st.param.b64 [param0], %rd3;\n call.uni\n _Z6helperPi, (param0);\n }}"
    assert uses(body, helper) == ["stored" if stored else "loaded", "loaded"]


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
    return map_uses(parse_module(ptx), "k", ["k_param_0", "k_param_1"])


def test_what_the_compiler_makes_of_a_kernel_is_read_rightly() -> None:
    found = of_source(SOURCE.replace("CONST", "const __grid_constant__"))
    assert found == ("loaded", "stored")


@pytest.mark.parametrize("const", ["const", ""])
def test_without_grid_constant_a_map_is_copied(const: str) -> None:
    assert of_source(SOURCE.replace("CONST", const))[0] == "copied"


LOAD = "ld.param.u64 %rd1, [_Z1kPf_param_0];\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (f"{LOAD} ld.global.f32 %f1, [%rd1];", False),
        (f"{LOAD} ld.global.f32 %f1, [%rd1];\n st.global.f32 [%rd7], %f1;", False),
        (f"{LOAD} cvta.to.global.u64 %rd2, %rd1;\n st.global.u32 [%rd2], 1;", True),
        (f"{LOAD} add.s64 %rd2, %rd1, 8;\n red.global.add.u32 [%rd2], 1;", True),
        ("st.global.u32 [%rd7], 1;", False),
    ],
)
def test_a_parameter_is_written_where_its_address_is_stored_through(body: str, found: bool) -> None:
    assert parameter_is_written(parse_module(module(body)), "_Z1kPf", "_Z1kPf_param_0") is found


def test_a_parameter_of_a_skeleton_may_be_written() -> None:
    text = skeleton(
        ".version 9.0\n.visible .entry k(\n\t.param .u64 x\n)\n{\n\tadd.s32 %r1, %r1, 1;\n\tret;\n}\n"
    )
    assert "add" not in text
    assert parameter_is_written(parse_module(text), "k", "x")
