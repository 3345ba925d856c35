from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, inline_source
from dotcu.errors import UsageError
from dotcu.inspection.code.build import (
    FileUnit,
    UninstantiatedTemplate,
    cxx_argument,
    kernels_in_source,
)
from dotcu.kernel.declarations import split_arguments

SOURCE = """
__global__ void plain(int* x) {}
template <typename T, int N> __global__ void scale(T* x) {}
namespace deep { template <typename T> __global__ void inner(T* x) {} }
namespace other { template <typename T> __global__ void inner(T* x) {} }
"""


def found(
    *instantiate: str, text: str = SOURCE
) -> tuple[FileUnit, list[FileUnit], tuple[UninstantiatedTemplate, ...]]:
    return kernels_in_source(inline_source(text), CompileOptions(), instantiate)


def names(*instantiate: str) -> list[tuple[str, ...]]:
    plain, instances, _ = found(*instantiate)
    return [plain.names, *(unit.names for unit in instances)]


def test_plain_kernels_are_one_unit_and_each_instantiation_one() -> None:
    assert names("scale[float32,256]", "scale[float, 8]") == [
        ("plain",), ("scale<float, 256>",), ("scale<float, 8>",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "arguments"),
    [
        ("scale[float32,256]", "<float, 256>"),
        ("scale[torch.bfloat16, 8]", "<__nv_bfloat16, 8>"),
        ("scale[pair<int, float>, 8]", "<pair<int, float>, 8>"),
        ("scale[int64,True]", "<long long, true>"),
    ],
)
def test_dtypes_stand_for_their_types_and_anything_else_for_itself(asked: str, arguments: str) -> None:
    assert names(asked)[1] == (f"scale{arguments}",)


def test_the_header_that_an_argument_needs_is_included() -> None:
    _, (instance,), _ = found("scale[float16,1]")
    assert "#include <cuda_fp16.h>" in instance.source.text


def test_a_template_that_no_one_instantiates_says_what_to_type() -> None:
    (template,) = [one for one in found("deep::inner[int32]")[2] if one.name == "scale"]
    assert template.declaration == "template <typename T, int N> scale"
    assert template.remedy == "type: --instantiate 'scale[float32,256]'"


def test_a_name_that_several_have_must_be_whole() -> None:
    with pytest.raises(UsageError, match="has 2 templates of kernels of that name"):
        found("inner[int32]")
    assert names("deep::inner[int32]")[1] == ("deep::inner<int>",)


@pytest.mark.parametrize("asked", ["scale", "scale[", "scale<float>", "[float]", ""])
def test_what_is_no_template_with_arguments_is_refused(asked: str) -> None:
    with pytest.raises(UsageError, match=r"scale\[float32,256\]"):
        found(asked)


def test_a_template_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="template <typename T, int N> scale"):
        found("missing[float32]")


def test_a_file_without_templates_says_so() -> None:
    with pytest.raises(UsageError, match="It has none"):
        found("missing[float32]", text="__global__ void plain(int* x) {}")


def test_too_few_arguments_are_refused() -> None:
    shown = r"takes 2 template arguments, got 1.*\n.*\nType: --instantiate 'scale\[float32,"
    with pytest.raises(UsageError, match=shown):
        found("scale[float32]")


def test_commas_within_brackets_part_nothing() -> None:
    assert split_arguments("pair<int, 2>, f(1, 2),3") == ("pair<int, 2>", "f(1, 2)", "3")
    assert split_arguments("") == ()


@pytest.mark.parametrize(("given", "text"), [("float32", "float"), ("'uint8'", "unsigned char"), ("3", "3")])
def test_arguments_are_spelled_for_the_compiler(given: str, text: str) -> None:
    assert cxx_argument(given) == text
