"""Which variables a kernel's PTX uses and may write, and who has a copy in use."""

from __future__ import annotations

import pytest

from dotcu.errors import SourceError
from dotcu.kernel.state import Users, uses


def module(body: str, helper: str = "") -> str:
    return f""".version 9.0
.global .align 4 .b8 table[1024];
.func _Z6helperPi(
\t.param .b64 p
)
{{
\t{helper}
\tret;
}}
\t// .globl\t_Z5otherv
.visible .entry _Z5otherv()
{{
\tst.global.u32 \t[table], %r1;
\tret;
}}
.visible .entry _Z1kPf(
\t.param .u64 _Z1kPf_param_0
)
.maxntid 128, 1, 1
{{
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
    assert uses(module(body), "_Z1kPf", ["table", "absent"]) == found


def test_functions_count_where_they_are_called() -> None:
    text = module("call.uni \n\t_Z6helperPi, \n\t(\n\tparam0\n\t);", "st.global.u32 [table], %r1;")
    assert uses(text, "_Z1kPf", ["table"]) == {"table": True}
    assert uses(module("", "st.global.u32 [table], %r1;"), "_Z1kPf", ["table"]) == {}


def test_readers_may_each_have_a_copy_until_somebody_writes() -> None:
    users = Users("k.cu")
    users.claim("sm_80", "one", "read<float>", {"table": False})
    users.claim("sm_80", "two", "read<int>", {"table": False})
    users.claim("sm_90", "three", "fill<float>", {"table": True})
    with pytest.raises(
        SourceError, match=r"fill<float> would .* variable table, which read<float>, read<int>"
    ):
        users.claim("sm_80", "three", "fill<float>", {"other": True, "table": True})
    users.claim("sm_80", "four", "read<bool>", {"other": False, "table": False})


def test_a_writer_keeps_others_out_and_gives_the_line_to_type() -> None:
    users = Users("k.cu")
    users.claim("sm_80", "one", "bump<float, 3>", {"n": True})
    users.claim("sm_80", "one", "plain", {"n": True})
    with pytest.raises(SourceError) as caught:
        users.claim("sm_80", "two", "ns::bump<pair<int, int>, true>", {"n": False})
    assert str(caught.value).endswith(
        'Type: dotcu.load(..., instantiate={"bump": [(torch.float32, 3)], '
        '"ns::bump": [("pair<int, int>", True)]})'
    )
