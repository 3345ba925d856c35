"""Types in debug information, as the compiler writes it."""

from __future__ import annotations

from typing import Any

import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source
from dotcu.ptx.debug_info import parameter_types

SOURCE = """
struct Head { long long rows; int kept; };
struct Params : Head {
    float* rows[3][2];
    const int* const idx;
    union { int whole; float part; };
    struct { int deep; };
    static const int LIMIT = 3;
    int low : 3;
    Params* next;
};
__global__ void step(const Params params, void* out) { *static_cast<int*>(out) = params.whole; }
"""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    code = build(
        inline_source(SOURCE),
        options=CompileOptions(debug=True),
        target=Target.parse("compute_80"),
        names=("step",),
    )
    assert parameter_types(code.ptx, "other") == []
    return parameter_types(code.ptx, code.lowered["step"])


def test_members_have_their_places(rows: list[dict[str, Any]]) -> None:
    params = rows[rows[0]["members"][0][3]]
    assert (params["tag"], params["name"], params["size"], params["const"]) == ("struct", "Params", 96, True)
    assert [tuple(member[:3]) for member in params["members"]] == [
        ("Head::rows", 0, False),
        ("kept", 8, False),
        ("rows", 16, False),
        ("idx", 64, False),
        ("whole", 72, False),
        ("part", 72, False),
        ("deep", 76, False),
        ("low", 80, True),
        ("next", 88, False),
    ]


def test_types_lead_to_each_other(rows: list[dict[str, Any]]) -> None:
    members = {name: rows[number] for name, _, _, number in rows[rows[0]["members"][0][3]]["members"]}
    outer = members["rows"]
    inner = rows[outer["to"]]
    assert (outer["length"], inner["length"], rows[inner["to"]]["tag"]) == (3, 2, "pointer")
    idx = rows[members["idx"]["to"]]
    assert (members["idx"]["const"], idx["name"], idx["const"]) == (True, "int", True)
    again = rows[members["next"]["to"]]
    assert (again["name"], again["const"]) == ("Params", False), "a struct may lead to itself"
    out = rows[rows[0]["members"][1][3]]
    assert rows[out["to"]]["tag"] == "void"


def test_code_without_debug_information_has_no_types() -> None:
    assert parameter_types("", "step") == []
