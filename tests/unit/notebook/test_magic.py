"""`%%cu`: a cell's kernels can be called at once, and its faults are told by the cell's lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dotcu import settings
from dotcu.kernel import Module

if TYPE_CHECKING:
    from unit.notebook.conftest import Notebook

SCALE = """%%cu
__global__ void scale(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = by * x[i];
}
"""
CALL = "x = torch.ones(100)\nscale(x, 2.0, 100, grid=1, block=128)\nfloat(x.sum())"


def test_a_kernel_of_a_cell_can_be_called_in_the_next(notebook: Notebook) -> None:
    assert notebook.run(SCALE) == ""
    assert "200.0" in notebook.run(CALL)


TILES = """%%cu
#include <cuda_tile.h>
namespace ct = cuda::tiles;

__tile_global__ void double_tiles(float* x, int n) {
    const ct::partition_view tiles{ct::tensor_span{x, ct::extents{n}}, ct::shape<256>{}};
    tiles.store_masked(2.f * tiles.load_masked(ct::bid().x), ct::bid().x);
}
"""


def test_a_cell_of_tile_kernels_can_be_called_without_a_block(notebook: Notebook) -> None:
    assert notebook.run(TILES) == ""
    call = "x = torch.ones(1000)\ndouble_tiles(x, 1000, grid=4)\nfloat(x.sum())"
    assert "2000.0" in notebook.run(call)


def test_running_a_cell_again_replaces_its_kernels(notebook: Notebook) -> None:
    notebook.run(SCALE)
    assert notebook.run(SCALE.replace("by *", "2 * by *")) == ""
    assert "400.0" in notebook.run(CALL)


def test_a_cell_that_is_run_again_is_not_compiled_again(notebook: Notebook) -> None:
    cell = SCALE.replace("%%cu", "%%cu kernels").replace("by *", "7 * by *")
    notebook.run(cell)
    first = notebook["kernels"]
    notebook.run(cell)
    again = notebook["kernels"]
    assert first is not again
    assert first.source.display != again.source.display
    assert again.units()[0].codes()[0].object.cached


def test_a_compile_error_shows_the_line_of_the_cell_and_nothing_of_dotcu(notebook: Notebook) -> None:
    shown = notebook.run(SCALE.replace("by * x[i]", "by * y[i]"))
    assert shown.startswith("CompileError: <cell In[2]> does not compile")
    assert (
        '<cell In[2]>:4:28: error: identifier "y" is undefined\n'
        "        if (i < n) x[i] = by * y[i];\n"
        "                               ^\n"
    ) in shown
    assert "Traceback" not in shown
    assert ".py" not in shown
    assert "run_cell_magic" not in shown


def test_a_cell_that_fails_leaves_the_kernel_of_before(notebook: Notebook) -> None:
    notebook.run(SCALE)
    notebook.run(SCALE.replace("by * x[i]", "by * y[i]"))
    assert "200.0" in notebook.run(CALL)


def test_a_finding_shows_the_call_and_the_line_of_the_cell(notebook: Notebook) -> None:
    notebook.run(SCALE.replace("if (i < n) ", ""))
    shown = notebook.run(CALL)
    assert shown.startswith(
        "Cell In[3], line 2\n"
        "    scale(x, 2.0, 100, grid=1, block=128)\n"
        "FindingError: <cell In[2]>:4: out-of-bounds read of 4 bytes at `x`[100]"
    )
    assert "    4 | x[i] = by * x[i];" in shown
    assert "shape (100,) float32, launched at <cell In[3]>:2" in shown
    assert ".py" not in shown


def test_lines_that_were_inlined_are_the_cell_s_too(notebook: Notebook) -> None:
    notebook.run(
        "%%cu\n"
        "__device__ void put(float* x, int i) {\n"
        "    x[i] = 1;\n"
        "}\n"
        "__global__ void fill(float* x) { put(x, threadIdx.x); }"
    )
    assert "<cell In[2]>:3: out-of-bounds write" in notebook.run("fill(torch.ones(3), grid=1, block=32)")


def test_an_error_is_shown_whole_where_that_is_asked_for(notebook: Notebook) -> None:
    notebook.run(SCALE)
    with settings.override(debug=True):
        shown = notebook.run("scale(1, grid=1, block=1)")
    assert "module.py" in shown
    assert "ArgumentError" in shown


def test_with_a_name_the_module_is_there_too(notebook: Notebook) -> None:
    assert notebook.run(SCALE.replace("%%cu", "%%cu kernels")) == ""
    assert isinstance(notebook["kernels"], Module)
    assert notebook["kernels"].scale is notebook["scale"]
    assert "<dotcu.Module '<cell In[2]>': scale>" in notebook.run("kernels")


@pytest.mark.parametrize(
    ("kernel", "before", "what"),
    [
        ("scale", "scale = 3", "a variable of yours, of type int"),
        ("sum", "", "a Python built-in"),
        ("lambda", "", "a Python keyword"),
    ],
)
def test_a_name_that_is_taken_is_refused(notebook: Notebook, kernel: str, before: str, what: str) -> None:
    notebook.run(before)
    cell = SCALE.replace("scale(", f"{kernel}(")
    shown = notebook.run(cell)
    assert f"has a kernel {kernel}, but {kernel} is {what}" in shown
    assert f"kernels.{kernel}: %%cu kernels" in shown
    assert notebook.run("print(scale)") == "3\n" or not before


def test_with_a_name_a_kernel_leaves_a_variable_as_it_is(notebook: Notebook) -> None:
    notebook.run("scale = 3")
    assert notebook.run(SCALE.replace("%%cu", "%%cu kernels")) == ""
    assert notebook["scale"] == 3
    assert "200.0" in notebook.run(CALL.replace("scale", "kernels.scale"))


def test_the_name_of_a_module_is_no_variable_s(notebook: Notebook) -> None:
    notebook.run("kernels = 3")
    shown = notebook.run(SCALE.replace("%%cu", "%%cu kernels"))
    assert (
        "kernels is a variable of yours, of type int.\nTake another name, or first type: del kernels" in shown
    )
    assert notebook["kernels"] == 3


def test_kernels_can_be_replaced_after_the_extension_is_loaded_again(notebook: Notebook) -> None:
    notebook.run(SCALE)
    notebook.run("%reload_ext dotcu")
    assert notebook.run(SCALE) == ""


def test_the_line_gives_the_compiler_s_options(notebook: Notebook) -> None:
    notebook.run(
        "%%cu -D BY=3 -D TWICE --use_fast_math --std c++20\n"
        "#if !defined(TWICE) || !defined(__USE_FAST_MATH__) || __cplusplus < 202002L\n"
        "#error options\n#endif\n"
        "__global__ void fill(float* x) { x[threadIdx.x] = BY; }"
    )
    assert "96.0" in notebook.run("x = torch.ones(32)\nfill(x, grid=1, block=32)\nfloat(x.sum())")


def test_a_header_beside_the_notebook_is_found(notebook: Notebook) -> None:
    Path("three.cuh").write_text("constexpr int three = 3;\n")
    notebook.run('%%cu\n#include "three.cuh"\n__global__ void fill(float* x) { x[threadIdx.x] = three; }')
    assert "96.0" in notebook.run("x = torch.ones(32)\nfill(x, grid=1, block=32)\nfloat(x.sum())")


def test_a_template_is_compiled_when_it_is_called(notebook: Notebook) -> None:
    cell = "%%cu\ntemplate <typename T> __global__ void fill(T* x) { x[threadIdx.x] = T(3); }"
    call = "x = torch.ones(32)\nfill[torch.float32](x, grid=1, block=32)\nfloat(x.sum())"
    assert notebook.run(cell) == ""
    assert "96.0" in notebook.run(call)
    notebook.run(cell.replace("T(3)", "T(y)"))
    shown = notebook.run(call)
    assert shown.startswith(
        "Cell In[5], line 2\n    fill[torch.float32](x, grid=1, block=32)\nCompileError: "
    )
    assert "<cell In[4]>:2:" in shown
    assert 'identifier "y" is undefined' in shown


def test_a_cell_without_a_kernel_is_refused(notebook: Notebook) -> None:
    assert "<cell In[2]> has no kernel" in notebook.run("%%cu\n__device__ int one() { return 1; }")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a b", "'b' after 'a'"),
        ("1a", "'1a' is not a valid name"),
        ("-D", "-D/--define: expected one argument"),
        ("'a", "No closing quotation"),
        ("--no-such-option", "--no-such-option"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(notebook: Notebook, line: str, told: str) -> None:
    shown = notebook.run(SCALE.replace("%%cu", f"%%cu {line}"))
    assert told in shown
    assert ".py" not in shown


TRIPLE = """
@dotcu.op("notebook_test::triple")
def triple(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    kernels.scale(out, 3.0, out.numel(), grid=1, block=128)
    return out
"""


def test_an_operator_of_a_cell_can_be_defined_again_and_follows_its_kernel(notebook: Notebook) -> None:
    cell = SCALE.replace("%%cu", "%%cu kernels")
    call = "with dotcu.simulate():\n    y = triple(torch.ones(4))\nfloat(y.sum())"
    notebook.run(cell)
    assert notebook.run(TRIPLE) == ""
    assert "12.0" in notebook.run(call)
    assert "12.0" in notebook.run(call)
    notebook.run(cell.replace("by *", "2 * by *"))
    assert "24.0" in notebook.run(call)
    assert notebook.run(TRIPLE.replace("3.0", "5.0")) == ""
    assert "40.0" in notebook.run(call)


def test_a_report_is_shown_as_a_table_not_as_a_repr(notebook: Notebook) -> None:
    notebook.run(SCALE)
    shown = notebook.run("dotcu.inspect(scale)")
    assert "scale  sm_90  <cell In[2]>:2" in shown
    assert "InspectReport(" not in shown
