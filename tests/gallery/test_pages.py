"""Each folder of the gallery is whole: three files, an example that runs, a kernel that is one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from dotcu import gallery, process
from dotcu.compile import kernels
from helpers.quick_cases import quick

FOLDERS = sorted(path.parent for path in Path(gallery.__file__).parent.glob("*/kernel.cu"))
INCLUDE = Path(gallery.__file__).parents[1] / "include"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)

INSTANTIATIONS = {
    "all_reduce": [
        "all_reduce<__nv_bfloat16, 2>",
        "all_reduce<double, 3>",
        "one_shot<__half, 8, 2>",
        "two_shots<float, 4, 8>",
    ],
    "all_reduce_add_rms_norm": [
        "all_reduce_add_rms_norm<__nv_bfloat16, __nv_bfloat16, 2, 4, 512>",
        "all_reduce_add_rms_norm<__half, float, 8, 1, 512>",
    ],
    "reduce_scatter": ["reduce_scatter<__nv_bfloat16, 8, 2>", "reduce_scatter<double, 1, 4>"],
    "attention": [
        "attention_plain<float, float>",
        "attention_plain<__nv_bfloat16, float>",
        "attention_plain_queries<__half, float>",
        "attention_plain_keys<double, double>",
    ],
    "add": [
        "add<__half, 2, 4, true>",
        "add<signed char, 1, 16, false>",
        "add_number<__nv_bfloat16, float, 2, 4, true>",
        "add_number<int, long long, 1, 4, false>",
    ],
    "fast_add": [
        "fast_add<float, 4, 1, false>",
        "fast_add<__half, 8, 1, true>",
        "fast_add<__nv_bfloat16, 1, 8, false>",
    ],
    "square": ["square<double, 2, 2>", "square<__half, 8, 1>", "square<unsigned char, 16, 1>"],
    "softmax": [
        "softmax<float, dotcu::aligned, 4, 4, 128, 1>",
        "softmax<__half, dotcu::aligned, 1, 16, 8, 1>",
        "softmax<__nv_bfloat16, dotcu::apart, 8, 8, 512, 8>",
        "softmax_parts<__nv_bfloat16, dotcu::alike, 8, 4, 512>",
        "softmax_long<__nv_bfloat16, dotcu::alike, 8, 4, 512>",
    ],
    "cross_entropy": [
        "cross_entropy<float, dotcu::aligned, 4, 4, 256>",
        "cross_entropy<__nv_bfloat16, dotcu::alike, 8, 4, 8>",
        "cross_entropy_reduce<__half>",
    ],
    "matmul": ["matmul_naive<float, float, 16>", "matmul_tiled<__half, float, 32>"],
    "rms_norm": [
        "rms_norm<__nv_bfloat16, dotcu::aligned, float, float, 8, 2, 32, true, false>",
        "rms_norm<float, dotcu::alike, float, float, 4, 4, 256, false, true>",
        "rms_norm<__half, dotcu::apart, __half, float, 8, 4, 128, false, false>",
    ],
    "layer_norm": [
        "layer_norm<__nv_bfloat16, dotcu::aligned, float, float, 8, 2, 32, true>",
        "layer_norm<float, dotcu::alike, float, float, 4, 4, 256, false>",
        "layer_norm<double, dotcu::aligned, double, double, 2, 1, 64, false>",
    ],
    "transpose": [
        "transpose<unsigned short, 8, 8, 128, 256, 2, long long, long long>",
        "transpose<unsigned, 4, 1, 32, 256, 2, long long, long long>",
        "transpose<unsigned char, 16, 16, 128, 64, 2, long long, long long>",
        "shifted<unsigned short, 16, 128, 128, 256, 2, long long, long long>",
    ],
    "gemv": [
        "gemv<__nv_bfloat16, __nv_bfloat16, float, 16, true, false, 1, 1, 1, 8, 1, 4>",
        "gemv<__half, e4m3, float, 16, false, false, 1, 2, 2, 4, 2, 3>",
        "gemv<__nv_bfloat16, int4_pair, __nv_bfloat16, 8, true, true, 2, 8, 4, 1, 2, 4>",
    ],
    "quantize_fp8": [
        "quantize_fp8<__nv_bfloat16, dotcu::alike, 8, 4, 256, 256, 1>",
        "quantize_fp8<float, dotcu::aligned, 1, 2, 8, 128, 1>",
        "quantize_fp8<__half, dotcu::apart, 8, 8, 256, 256, 4>",
    ],
    "cumsum": [
        "cumsum<float, float, float, 4, 8, 256, 1, dotcu::alike, false>",
        "cumsum<__nv_bfloat16, __nv_bfloat16, float, 8, 4, 128, 1, dotcu::apart, true>",
        "cumsum_rows<unsigned char, long long, long long, 2, 1, 256, 8, 4, dotcu::aligned, false>",
        "cumsum_tiles<short, long long, long long, 2, 8, 160, dotcu::aligned, false, false>",
        "cumsum_columns<double, double, double, 2, 8, 256, 8, false, true, true>",
        "cumsum_columns<__half, __half, float, 8, 8, 256, 8, true, true, false>",
    ],
    "sum": [
        "sum_rows<float, float, float, float, 256, 4>",
        "sum_rows<__nv_bfloat16, float, float, __nv_bfloat16, 8, 4>",
        "sum_rows<short, int, long long, long long, 512, 4>",
        "sum_columns<double, double, double, double, 2, 8, false>",
        "sum_columns<__half, float, float, __half, 8, 8, true>",
        "sum_columns<signed char, int, long long, long long, 8, 8, false>",
    ],
    "swiglu": [
        "swiglu<float, float, 4, 1>",
        "swiglu<double, double, 2, 1>",
        "swiglu_backward<__half, float, 8, 1>",
        "swiglu_backward<__nv_bfloat16, float, 1, 8>",
    ],
}


@each_folder
def test_the_operator_is_named_like_its_folder(folder: Path) -> None:
    assert folder.name in gallery.__all__
    files = {path.name for path in folder.iterdir() if path.suffix not in (".cuh", ".cu")}
    assert files - {"__pycache__"} == {"op.py", "README.md"}


@pytest.mark.parametrize(
    "folder",
    quick([path for path in FOLDERS if path.name in ("add", "softmax", "sum")], FOLDERS),
    ids=lambda folder: folder.name,
)
def test_the_example_of_the_readme_runs(folder: Path) -> None:
    torch.manual_seed(0)
    examples = EXAMPLE.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert len(examples) == 1
    exec(compile(examples[0], str(folder / "README.md"), "exec"), {})


@each_folder
def test_the_kernel_file_is_one_page_that_says_what_it_costs(folder: Path) -> None:
    text = (folder / "kernel.cu").read_text(encoding="utf-8")
    assert text.startswith(f"// {folder.name}: ")
    assert "\n// Cost: " in text
    assert len(text.splitlines()) <= 100
    assert kernels(text)


@pytest.mark.slow
@each_folder
def test_the_kernel_files_compile_under_nvcc(folder: Path, tmp_path: Path) -> None:
    if folder.name.endswith("_tile"):
        pytest.skip("nvcc compiles tile kernels from CUDA 13.3 on, and for C++20")
    nvcc = process.find("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: it shows that the same file serves both compilers")
    headers = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
    compiled = []
    for path in sorted(folder.glob("*.cu")):
        if path.name.startswith("hopper"):  # wgmma: for sm_90a
            continue
        own = {kernel.name for kernel in kernels(path.read_text(encoding="utf-8"))}
        names = [name for name in INSTANTIATIONS[folder.name] if name.split("<")[0] in own]
        uses = "".join(f"auto* use{i} = &{name};\n" for i, name in enumerate(names))
        page = tmp_path / "page.cu"
        page.write_text(f'{headers}#include "{path}"\n{uses}', encoding="utf-8")
        command = [nvcc, "-c", "-std=c++17", "-arch=sm_80", f"-I{INCLUDE}", page, "-o", tmp_path / "page.o"]
        finished = process.run(command, timeout_s=180)
        assert finished.status == 0, finished.stderr
        compiled += names
    assert sorted(compiled) == sorted(INSTANTIATIONS[folder.name])
