"""Files as people have them, with kernels and host code in one: loaded, compiled and run as they are.

Each is in the style of one of the templates that dotcu replaces, of a course's programs, or of
PyTorch's tutorial on extensions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.errors import CompileError, FindingError
from helpers.quick_cases import quick

FOLDER = Path(__file__).parent.parent / "compile" / "host_split" / "mixed"
KERNELS = {
    "adamw": ["adamw_kernel2"],
    "encoder_forward": ["encoder_forward_kernel2", "encoder_forward_kernel3"],
    "fast_add_main": ["fast_add"],
    "gelu_forward": ["gelu_forward_kernel1", "gelu_forward_kernel2"],
    "half_samples": ["add_f16_kernel", "add_f16x2_kernel", "dot_f16_kernel"],
    "jit_launch": ["axpb_impl"],
    "layernorm_forward": ["layernorm_forward_kernel1", "layernorm_forward_kernel2"],
    "lltm": ["lltm_cuda_forward_kernel"],
    "lltm_accessor": ["lltm_kernel"],
    "muladd": ["extension_cpp::muladd_kernel", "extension_cpp::add_kernel"],
    "scalar_add": ["scalar_add_kernel"],
    "simple_add": ["add_kernel"],
    "softmax_forward": ["softmax_forward_block", "softmax_forward_online"],
    "square_matmul": ["square_kernel", "matmul_kernel"],
    "template_op": ["my_extension::activation_kernel", "my_extension::activation_backward_kernel"],
}


def loaded(name: str) -> dotcu.Module:
    return dotcu.load(FOLDER / f"{name}.cu")


def rows(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def simple_add(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    a, b = rows(300, dtype=torch.bfloat16), rows(300, dtype=torch.bfloat16, seed=1)
    out = torch.empty_like(a)
    module.add_kernel[torch.bfloat16](a, b, out, 300, grid=2, block=64)
    return out, a + b


def lltm_accessor(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    gates, out = rows(2, 3, 5), torch.empty(2, 5)
    module.lltm_kernel[torch.float32](gates, out, grid=(1, 2), block=8)
    return out, gates[:, 0]


def fast_add_main(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    a, b, out = rows(131), rows(131, seed=1), torch.empty(131)
    module.fast_add(a, b, out, 131, grid=1, block=64)
    return out, a + b


def scalar_add(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    x, y = rows(300), torch.empty(300)
    module.scalar_add_kernel(x, y, 3.0, 300, grid=2, block=256)
    return y, x + 3


def template_op(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    x, out = rows(200), torch.empty(200)
    kernel = module.kernels["my_extension::activation_kernel"]
    kernel[torch.float32](x, out, 0.25, 1, 200, grid=1, block=64)
    return out, torch.nn.functional.leaky_relu(x, 0.25)


def jit_launch(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    x = rows(100, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    module.axpb_impl[128, True](x, y, 2.0, 1.0, 100, grid=1, block=128)
    return y, (2 * (2 * x.float() + 1)).bfloat16()


def half_samples(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    a, b = rows(101, dtype=torch.float16), rows(101, dtype=torch.float16, seed=1)
    c = torch.empty_like(a)
    module.add_f16x2_kernel(a, b, c, 101, grid=1, block=64)
    return c, a + b


def square_matmul(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    a, b, c = rows(17, 9), rows(9, 20, seed=1), torch.empty(17, 20)
    module.matmul_kernel(a, b, c, 17, 20, 9, grid=(2, 2), block=(16, 16))
    return c, a @ b


def layernorm_forward(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    x, weight, bias = rows(5, 70), rows(70, seed=1), rows(70, seed=2)
    out, mean, rstd = torch.empty_like(x), torch.empty(5), torch.empty(5)
    module.layernorm_forward_kernel2(out, mean, rstd, x, weight, bias, 5, 70, grid=3, block=64)
    return out, torch.nn.functional.layer_norm(x, (70,), weight, bias)


def softmax_forward(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    x = rows(4, 70)
    blocked, online = torch.empty_like(x), torch.empty_like(x)
    module.softmax_forward_block(blocked, x, 4, 70, grid=4, block=64, smem_bytes=256)
    module.softmax_forward_online(online, x, 4, 70, grid=2, block=64)
    return torch.stack((blocked, online)), x.softmax(-1).expand(2, 4, 70)


def gelu_forward(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    x, out = rows(256), torch.empty(256)
    module.gelu_forward_kernel2(out, x, 256, grid=1, block=64)
    return out, torch.nn.functional.gelu(x, approximate="tanh")


def adamw(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    weights, grads = rows(100), rows(100, seed=1)
    parameter = torch.nn.Parameter(weights.clone())
    parameter.grad = grads
    torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.0).step()
    module.adamw_kernel2(
        weights, grads, torch.zeros(100), torch.zeros(100), 100, 1e-3, 0.9, 0.999, 0.1, 0.001, 1e-8, 0.0,
        grid=1, block=128,
    )  # fmt: skip
    return weights, parameter.detach()


def encoder_forward(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    tokens, wte, wpe = torch.tensor([[1, 0, 4], [2, 2, 3]], dtype=torch.int32), rows(5, 8), rows(3, 8, seed=1)
    out = torch.empty(2, 3, 8)
    module.encoder_forward_kernel3(out, tokens, wte, wpe, 2, 3, 8, grid=1, block=32)
    return out, wte[tokens.long()] + wpe


def lltm(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    gates, cell = rows(2, 3 * 20), rows(2, 20, seed=1)
    h, new_cell = torch.empty(2, 20), torch.empty(2, 20)
    module.lltm_cuda_forward_kernel[torch.float32](gates, cell, h, new_cell, 20, grid=(1, 2), block=32)
    inward, outward, candidate = gates.chunk(3, dim=1)
    want = cell + torch.nn.functional.elu(candidate) * inward.sigmoid()
    return torch.stack((h, new_cell)), torch.stack((want.tanh() * outward.sigmoid(), want))


def muladd(module: dotcu.Module) -> tuple[Tensor, Tensor]:
    a, b, out = rows(100), rows(100, seed=1), torch.empty(100)
    module.kernels["extension_cpp::muladd_kernel"](100, a, b, 0.5, out, grid=1, block=128)
    return out, a * b + 0.5


RUNS: list[Callable[[dotcu.Module], tuple[Tensor, Tensor]]] = [
    simple_add, fast_add_main, scalar_add, template_op, jit_launch, half_samples, square_matmul,
    layernorm_forward, softmax_forward, gelu_forward, adamw, encoder_forward, lltm,
    lltm_accessor, muladd,
]  # fmt: skip


def test_every_file_is_tried() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.cu")) == sorted(KERNELS)
    assert {run.__name__ for run in RUNS} == KERNELS.keys()


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_are_offered_and_nothing_else(name: str) -> None:
    assert list(loaded(name).kernels) == KERNELS[name]


COSTLY = (layernorm_forward, softmax_forward)
"""They include cooperative_groups.h, two seconds of compiling, as kernels in tests/goldens and wrong do."""


@pytest.mark.parametrize(
    "run", quick([run for run in RUNS if run not in COSTLY], RUNS), ids=lambda run: run.__name__
)
def test_a_kernel_computes_what_torch_does(run: Callable[[dotcu.Module], tuple[Tensor, Tensor]]) -> None:
    got, want = run(loaded(run.__name__))
    torch.testing.assert_close(got, want)


def test_a_fault_in_a_device_function_is_at_the_users_line_and_column(tmp_path: Path) -> None:
    text = (FOLDER / "adamw.cu").read_text().replace("return fma(", "return missing + fma(", 1)
    (tmp_path / "adamw.cu").write_text(text)
    shutil.copy(FOLDER / "common.h", tmp_path)
    with pytest.raises(CompileError) as error:
        adamw(dotcu.load(tmp_path / "adamw.cu"))
    line = 1 + text[: text.index("missing")].count("\n")
    (found,) = (one for one in error.value.diagnostics if one.severity == "error")
    assert (found.line, found.column) == (line, 12)
    assert found.source == "    return missing + fma(weight, end, fma(-weight, start, start));"


def test_a_finding_of_the_simulator_is_at_the_users_line() -> None:
    module = loaded("gelu_forward")
    with pytest.raises(FindingError) as error:
        module.gelu_forward_kernel1(torch.zeros(20), torch.zeros(32), 32, grid=1, block=32)
    source = (FOLDER / "gelu_forward.cu").read_text().splitlines()
    finding = error.value.finding
    assert finding.kind == "out-of-bounds"
    assert "out[i] = 0.5f * xi " in source[finding.line - 1]


@pytest.mark.slow
def test_a_file_with_host_code_is_inspected_as_it_is() -> None:
    report = dotcu.inspect(FOLDER / "softmax_forward.cu", arch="sm_80")
    assert not report.failed
    assert [kernel.code.name for kernel in report.kernels] == KERNELS["softmax_forward"]
    assert "softmax_forward.cu:32" in str(report)


def test_a_kernel_of_the_host_part_is_not_offered() -> None:
    module = dotcu.load_inline(
        '#include <string>\nstd::string s = R"(__global__ void hidden() {})";\n'
        "void f() { struct A { int __global__1; }; }\n__global__ void seen(int* x) { *x = 1; }\n"
        "#define __HOST_ONLY 1\nvoid launch() { seen<<<1, 1>>>(nullptr); }\n"
    )
    assert list(module.kernels) == ["seen"]


def test_a_file_of_host_code_alone_has_no_kernels() -> None:
    module = dotcu.load_inline("#include <vector>\nint main() { std::vector<int> v; return 0; }\n")
    assert list(module.kernels) == []
    with pytest.raises(
        AttributeError, match=r"inline\.cu has no kernel named 'main'; it has no kernel at all"
    ):
        _ = module.main


def test_a_kernel_asked_for_by_name_where_nothing_can_be_reported_shows_the_line() -> None:
    module = dotcu.load_inline("MAKE_IT(kk, float)\nint main() { return 0; }\n")
    with pytest.raises(
        AttributeError, match=r"could not be queried: Device code(.|\n)*inline\.cu:1: host code or"
    ):
        _ = module.kk_float
