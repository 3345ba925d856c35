"""Commands are planned from the request: what takes part, with which words, under which key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dotcu.compile.target import Target
from dotcu.cpp.plan import begins_with_header, link_words, name_of, units
from dotcu.cpp.tools import Nvcc
from dotcu.errors import SourceNotFound, UsageError
from helpers.cpp_projects import Project


@pytest.fixture
def nvcc(tmp_path: Path) -> Nvcc:
    cuda = tmp_path / "cuda"
    return Nvcc(
        path=cuda / "bin" / "nvcc",
        version=(13, 0),
        home=cuda,
        include=cuda / "include",
        library=cuda / "lib",
        identity="n",
    )


def test_without_cuda_the_cu_is_left_out_and_nothing_says_that_there_is_cuda(project: Project) -> None:
    project.write("a.cpp", "")
    project.write("b.cu", "")
    request = project.request("a.cpp", "b.cu")
    (unit,) = units(request, project.tools())
    assert unit.source.name == "a.cpp"
    assert [path.name for path in request.left_out] == ["b.cu"]
    assert not any("CUDA" in word for word in unit.words)


def test_with_cuda_nvcc_compiles_the_cu_for_each_target(project: Project, nvcc: Nvcc) -> None:
    project.write("a.cpp", "")
    project.write("b.cu", "")
    targets = (Target.parse("sm_80"), Target.parse("compute_90"))
    request = replace(project.request("a.cpp", "b.cu"), cuda=True, targets=targets)
    host, device = units(request, replace(project.tools(), nvcc=nvcc))
    assert {"-DWITH_CUDA", "-DUSE_CUDA"} <= set(host.words) & set(device.words)
    assert device.words[0] == str(nvcc.path)
    assert "arch=compute_80,code=sm_80" in device.words
    assert "arch=compute_90,code=compute_90" in device.words


def test_a_library_of_cu_files_alone_is_refused_without_cuda(project: Project) -> None:
    project.write("b.cu", "")
    with pytest.raises(UsageError, match=r"b\.cu is CUDA, which is off here"):
        units(project.request("b.cu"), project.tools())


def test_debug_leaves_optimization_out(project: Project, nvcc: Nvcc) -> None:
    project.write("a.cpp", "")
    project.write("b.cu", "")
    request = replace(project.request("a.cpp", "b.cu"), cuda=True, debug=True)
    host, device = units(request, replace(project.tools(), nvcc=nvcc))
    assert {"-O0", "-g"} <= set(host.words)
    assert {"-O0", "-g", "-G"} <= set(device.words)


def test_a_source_that_is_missing_or_of_no_kind_is_reported(project: Project) -> None:
    project.write("a.py", "")
    with pytest.raises(SourceNotFound, match=r"none\.cpp cannot be read"):
        units(project.request("none.cpp"), project.tools())
    with pytest.raises(UsageError, match=r"a\.py is not a source that can be compiled"):
        units(project.request("a.py"), project.tools())


def test_the_linker_takes_torch_of_cuda_only_where_torch_has_it(project: Project, nvcc: Nvcc) -> None:
    request, tools = replace(project.request("b.cu"), cuda=True), replace(project.tools(), nvcc=nvcc)
    assert "-ltorch_cuda" not in link_words(request, tools)
    with_cuda = replace(tools, torch=replace(project.torch, cuda=(13, 0)))
    assert "-ltorch_cuda" in link_words(request, with_cuda)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#include <torch/extension.h>\n", True),
        ('// a comment\n#pragma once\n#include <vector>\n# include "torch/extension.h"\n', True),
        ("#define TORCH_ASSERT_NO_OPERATORS\n#include <torch/extension.h>\n", False),
        ("#include <vector>\nint x;\n#include <torch/extension.h>\n", False),
        ("#include <torch/library.h>\n", False),
        ("/* #include <torch/extension.h> */\n", False),
    ],
)
def test_the_header_is_read_first_only_where_nothing_stands_before_it(text: str, expected: bool) -> None:
    assert begins_with_header(text) is expected


@pytest.mark.parametrize(("stem", "name"), [("scale", "scale"), ("my-op.v2", "my_op_v2"), ("2d", "_2d")])
def test_a_name_is_an_identifier(stem: str, name: str) -> None:
    assert name_of(Path(f"{stem}.cpp")) == name
