from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.compile import CompileOptions, ObjectCode, Target, build_visible, inline_source
from dotcu.errors import CompileError, SourceError

SOURCE = """
template <typename T> __global__ void wide(T* x) { x[0] = 1; }
__global__ void always(int* x) { x[0] = 1; }
#if __CUDA_ARCH__ >= 900
__global__ void newer(int* x) { x[0] = 1; }
__constant__ int table[3];
#else
__global__ void older(int* x) { x[0] = 1; }
#endif
"""


def visible(names: list[str], target: str = "sm_90", source: str = SOURCE) -> ObjectCode:
    return build_visible(
        inline_source(source), options=CompileOptions(), target=Target.parse(target), names=names
    )


@pytest.mark.parametrize(("target", "hidden"), [("sm_80", {"newer", "&table"}), ("sm_90", {"older"})])
def test_names_that_the_preprocessor_hides_are_left_out(
    cache_dir: Path, target: str, hidden: set[str]
) -> None:
    names = {"always", "newer", "older", "&table"}
    assert set(visible(sorted(names), target).lowered) == names - hidden


def test_what_is_hidden_costs_one_compile_more_however_much_it_is(
    cache_dir: Path, compiles: list[str]
) -> None:
    visible(["always", "newer", "older", "&table"], "sm_80")
    assert len(compiles) == 2


def test_an_instantiation_that_is_not_possible_is_an_error(cache_dir: Path) -> None:
    with pytest.raises(SourceError):
        visible(["always", "wide<Missing>"])


def test_a_fault_of_the_source_is_told_as_such(cache_dir: Path) -> None:
    with pytest.raises(CompileError, match="expected a"):
        visible(["k"], source="__global__ void k(int* x) { x[0] = ; }")
