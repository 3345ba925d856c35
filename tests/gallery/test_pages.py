"""Each folder of the gallery is whole: three files, an example that runs, a kernel that is one page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from dotcu import gallery, process
from dotcu.compile import kernels

FOLDERS = sorted(path.parent for path in Path(gallery.__file__).parent.glob("*/kernel.cu"))
INCLUDE = Path(gallery.__file__).parents[1] / "include"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)

INSTANTIATIONS = {
    "add": [
        "add<__half>",
        "add<signed char>",
        "add_number<__nv_bfloat16, float>",
        "add_number<int, long long>",
    ],
    "fast_add": ["fast_add<float>", "fast_add<__half>", "fast_add_unaligned<__nv_bfloat16>"],
    "square": ["square<double>", "square<__half>", "square<unsigned char>"],
    "matmul": ["matmul_naive<float, float, 16>", "matmul_tiled<__half, float, 32>"],
    "sum": [
        "sum<float, float, double>",
        "sum<__nv_bfloat16, float, double>",
        "sum<short, long long, long long>",
        "sum<double, double, double>",
    ],
}


def test_the_operator_is_named_like_its_folder(folder: Path) -> None:
    assert folder.name in gallery.__all__
    assert {path.name for path in folder.iterdir() if path.is_file()} == {"kernel.cu", "op.py", "README.md"}


def test_the_example_of_the_readme_runs(folder: Path) -> None:
    torch.manual_seed(0)
    examples = EXAMPLE.findall((folder / "README.md").read_text(encoding="utf-8"))
    assert len(examples) == 1
    exec(compile(examples[0], str(folder / "README.md"), "exec"), {})


def test_the_kernel_file_is_one_page_that_says_what_it_costs(folder: Path) -> None:
    text = (folder / "kernel.cu").read_text(encoding="utf-8")
    assert text.startswith(f"// {folder.name}: ")
    assert "\n// Cost: " in text
    assert len(text.splitlines()) <= 100
    assert kernels(text)


def test_the_kernel_file_compiles_under_nvcc(folder: Path, tmp_path: Path) -> None:
    nvcc = process.find("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: it shows that the same file serves both compilers")
    uses = "".join(f"auto* use{i} = &{name};\n" for i, name in enumerate(INSTANTIATIONS[folder.name]))
    page = tmp_path / "page.cu"
    headers = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
    page.write_text(f'{headers}#include "{folder / "kernel.cu"}"\n{uses}', encoding="utf-8")
    command = [nvcc, "-c", "-std=c++17", "-arch=sm_80", f"-I{INCLUDE}", page, "-o", tmp_path / "page.o"]
    finished = process.run(command, timeout_s=180)
    assert finished.status == 0, finished.stderr
