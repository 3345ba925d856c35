"""Libraries of each binding are compiled by the compiler of this machine, loaded, and called."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.cpp.load import load_library, targets
from dotcu.errors import CacheError, CompileError, DuplicateOperator, EnvironmentFault, UsageError
from helpers.cpp_projects import missing_nvcc

pytestmark = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler; c++ is not on PATH")

STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor twice(const Tensor& x)
{
    Tensor out = torch::stable::empty_like(x);
    const float* from = static_cast<const float*>(x.data_ptr());
    float* to = static_cast<float*>(out.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
    return out;
}

STABLE_TORCH_LIBRARY(@NAME@, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(@NAME@, CPU, m) { m.impl("twice", TORCH_BOX(&twice)); }
"""

LIBRARY = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

at::Tensor twice(const at::Tensor& x) { return at::mul(x, 2); }

TORCH_LIBRARY(@NAME@, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
"""

MODULE = """
#include <pybind11/pybind11.h>

int twice(int x) { return 2 * x; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.cpp"
    path.write_text(text.replace("@NAME@", name))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "text"), [("stable", STABLE), ("plain", LIBRARY)])
def test_a_library_registers_its_operators(tmp_path: Path, kind: str, text: str) -> None:
    name = f"cpp_{kind}"
    library = dotcu.load_cpp(write(tmp_path, name, text))
    assert isinstance(library, dotcu.CppLibrary)
    assert library.operators == (f"{name}::twice",)
    assert library.path.is_file()
    x = torch.arange(5.0)
    assert torch.equal(getattr(torch.ops, name).twice(x), 2 * x)
    assert dotcu.load_cpp(write(tmp_path, name, text)) == library


@pytest.mark.slow
def test_a_pybind_module_is_a_module(tmp_path: Path) -> None:
    module = dotcu.load_cpp(write(tmp_path, "cpp_module", MODULE))
    assert (module.__name__, module.twice(21)) == ("cpp_module", 42)


@pytest.mark.slow
def test_an_edited_library_of_a_namespace_that_is_taken_is_refused(tmp_path: Path) -> None:
    dotcu.load_cpp(write(tmp_path, "cpp_edited", STABLE))
    with pytest.raises(DuplicateOperator, match="start Python again"):
        dotcu.load_cpp(write(tmp_path, "cpp_edited", STABLE.replace("2 * from", "3 * from")))
    assert torch.ops.cpp_edited.twice(torch.ones(1)).item() == 2


@pytest.mark.slow
def test_an_operator_that_is_there_already_is_refused_and_the_process_lives(tmp_path: Path) -> None:
    with torch.library._scoped_library("cpp_taken", "FRAGMENT") as own:
        own.define("twice(Tensor x) -> Tensor")
        with pytest.raises(DuplicateOperator, match="cpp_taken::twice"):
            dotcu.load_cpp(write(tmp_path, "cpp_taken", STABLE))


@pytest.mark.slow
def test_a_function_that_is_defined_nowhere_is_named(tmp_path: Path) -> None:
    source = write(tmp_path, "cpp_missing", "int missing(int);\nint call() { return missing(1); }\n")
    with pytest.raises(CompileError, match="_Z7missingi is used and defined nowhere"):
        dotcu.load_cpp(source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("Tensor x", "Tenso x"), "unknown type specifier"),
        (
            ("{ m.def(", '{ m.def("twice(Tensor x) -> Tensor"); m.def('),
            "same name and overload name multiple",
        ),
        ((", CPU,", ", CPUU,"), r"SIGSEGV\.\nCPUU is no dispatch key of torch. Near it: .*CPU\."),
        (("@NAME@, m) { m.def", "aten, m) { m.def"), "The namespace aten has operators already"),
        (("using torch", "struct Q { Q() { throw 5; } } q;\nusing torch"), "throwing an instance of 'int'"),
    ],
)
def test_what_would_end_the_process_that_loads_a_library_is_an_error(
    tmp_path: Path, cache_dir: Path, change: tuple[str, str], says: str
) -> None:
    source = write(tmp_path, "cpp_fatal", STABLE.replace(*change))
    for _ in range(2):  # the cache does not have it either
        with pytest.raises(
            CompileError, match=rf"cpp_fatal\.so compiles, but Python crashes when it loads it(?s:.*){says}"
        ):
            dotcu.load_cpp(source)


def test_a_library_in_a_folder_that_may_not_be_executed_says_which_setting_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: str) -> None:
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(torch.ops, "load_library", load)
    with pytest.raises(CacheError, match=r"noexec\.\n.*export DOTCU_CACHE_DIR="):
        load_library(tmp_path / "a.so", [])


@pytest.mark.parametrize("name", ["flags", "cuda_flags", "link_flags"])
def test_flags_are_a_list_and_the_message_has_it(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"Write {name}=['-DX=a b', '-O1'].")):
        dotcu.load_cpp("none.cpp", **{name: "-DX='a b' -O1"})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is a list of flags, got 3"):
        dotcu.load_cpp("none.cpp", **{name: 3})  # type: ignore[arg-type]


def test_include_folders_are_a_list() -> None:
    with pytest.raises(UsageError, match=r"Write include=\['own'\]"):
        dotcu.load_cpp("none.cpp", include=Path("own"))  # type: ignore[arg-type]


@pytest.mark.slow
def test_without_cuda_the_cu_is_left_out(tmp_path: Path) -> None:
    text = MODULE.replace("return 2 * x", "\n#ifdef WITH_CUDA\n    return 0;\n#endif\n    return 2 * x")
    (tmp_path / "launch.cu").write_text("this is no C++")
    module = dotcu.load_cpp([write(tmp_path, "cpp_cpu", text), tmp_path / "launch.cu"], cuda=False)
    assert module.twice(2) == 4


WRAPPER = '#include <torch/extension.h>\n#include "launch.h"\nint twice(int x) { return 2 * x; }\n'
LAUNCH_H = "#ifndef LAUNCH_H_\n#define LAUNCH_H_\n@INCLUDE@\n#endif\n"
KERNEL = "#include <torch/extension.h>\n@INCLUDE@\n__global__ void fill(int* x) { *x = 1; }\n"

without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="needs a torch without CUDA")


@without_cuda
@pytest.mark.parametrize(
    ("include", "cuda"),
    [
        ("#include <c10/cuda/CUDAGuard.h>", None),
        ("#include <cuda_runtime.h>", None),
        ("#include <ATen/cuda/CUDAContext.h>", True),
    ],
)
def test_a_torch_without_cuda_says_at_once_what_it_can_do(
    tmp_path: Path, include: str, cuda: bool | None
) -> None:
    (tmp_path / "launch.h").write_text(LAUNCH_H.replace("@INCLUDE@", include))
    (tmp_path / "launch.cu").write_text(KERNEL.replace("@INCLUDE@", include))
    source, start = write(tmp_path, "cpp_wrapper", WRAPPER), time.perf_counter()
    with pytest.raises(EnvironmentFault) as raised:
        dotcu.load_cpp([source, tmp_path / "launch.cu"], cuda=cuda)
    assert time.perf_counter() - start < 1
    header = include.partition("<")[2]
    assert re.search(
        rf"is built without CUDA, and launch\.(h:3|cu:2): #include <{header} needs CUDA\.", str(raised.value)
    )
    assert f"dotcu.load('{tmp_path / 'launch.cu'}')" in str(raised.value)
    assert f"dotcu inspect {tmp_path / 'launch.cu'}\n" in str(raised.value)


@without_cuda
def test_a_cu_alone_says_how_its_kernels_load_on_a_torch_without_cuda(tmp_path: Path) -> None:
    cu = tmp_path / "launch.cu"
    cu.write_text(KERNEL.replace("@INCLUDE@", "#include <ATen/cuda/CUDAContext.h>"))
    with pytest.raises(EnvironmentFault, match=r"launch\.cu is CUDA") as raised:
        dotcu.load_cpp(cu)
    assert f"dotcu.load('{cu}')" in str(raised.value)
    x = torch.zeros(1, dtype=torch.int32)
    dotcu.load(cu).fill(x, grid=1, block=1)
    assert x.item() == 1


@pytest.mark.slow
@without_cuda
def test_cuda_inside_an_ifdef_is_compiled_for_the_cpu(tmp_path: Path) -> None:
    guarded = "#ifdef WITH_CUDA\n#include <c10/cuda/CUDAGuard.h>\n#endif\n"
    (tmp_path / "launch.cu").write_text("this is no C++")
    module = dotcu.load_cpp([write(tmp_path, "cpp_ifdef", guarded + MODULE), tmp_path / "launch.cu"])
    assert module.twice(2) == 4


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_nvcc()), reason=missing_nvcc())
def test_a_cu_is_compiled_for_two_architectures_and_linked(tmp_path: Path) -> None:
    cu = tmp_path / "launch.cu"
    cu.write_text(
        "__global__ void fill(int* x) { *x = 1; }\n"
        "int launch() { fill<<<1, 1>>>(nullptr); return static_cast<int>(cudaGetLastError()); }\n"
    )
    text = MODULE.replace("return 2 * x", "return launch() < 0 ? 0 : 2 * x").replace(
        "int twice", "int launch();\nint twice"
    )
    source = write(tmp_path, "cpp_cuda", text)
    module = dotcu.load_cpp([source, cu], arch=("sm_80", "sm_90"), cuda=True)
    assert module.twice(3) == 6
    assert module.__file__ is not None
    words = [sys.executable, "-m", "dotcu", "inspect", module.__file__]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  (\w+) +SASS", shown, re.MULTILINE) == ["sm_80", "sm_90"]


RELATIVE = """
import dotcu
print(dotcu.load_cpp("own.cpp").twice(4))
"""


@pytest.mark.slow
def test_a_relative_path_is_taken_from_the_callers_file(tmp_path: Path) -> None:
    write(tmp_path, "own", MODULE)
    (tmp_path / "caller.py").write_text(RELATIVE)
    done = subprocess.run(
        [sys.executable, tmp_path / "caller.py"], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "8\n"


def test_an_architecture_is_named_or_is_that_of_the_gpus() -> None:
    assert [str(target) for target in targets(("sm_90a", "compute_80"))] == ["sm_90a", "compute_80"]
    assert targets(None)
    with pytest.raises(UsageError, match="arch="):
        targets(())
