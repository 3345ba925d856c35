"""What holds for every operator of the gallery: values, registration, gradients, compilation, refusals."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import gradcheck, gradgradcheck

import dotcu
from dotcu import gallery
from dotcu.checking import numerics
from dotcu.checking.subject import Subject
from dotcu.errors import GradientError, LaunchConfigError
from dotcu.kernel import compiled, cuda, shape_queries
from dotcu.kernel.launch_policy import LaunchPolicy, Scope, scope_variable
from helpers.fake_gpu import configured
from helpers.quick_cases import quick

OPERATORS: dict[str, Any] = {name: getattr(gallery, name) for name in gallery.__all__}
DERIVED = [name for name in OPERATORS if name.endswith("backward") or "tile" in name]
DERIVED += ["reverse_cumsum", "add_rms_norm", "attention", "attention_decode", "attention_varlen", "gemv"]
DERIVED += ["matmul_fp8", "matmul_swiglu"]
OVER_RANKS = ["all_reduce", "all_reduce_", "all_reduce_add_rms_norm", "reduce_scatter"]
DERIVED += OVER_RANKS
"""Operators with tests of their own on every way through their kernels."""
MAIN = [name for name in OPERATORS if name not in DERIVED]
QUICK = ["add", "matmul", "cumsum", "softmax"]
"""One of each kind: elementwise, a product, a scan, rows."""
CASES = [
    pytest.param(
        operator,
        overload,
        dtype,
        id=f"{name}.{key or 'default'}-{str(dtype)[6:]}",
        # `dotcu check` tries every dtype.
        marks=() if dtype == torch.bfloat16 and name in ("add", "square") else pytest.mark.slow,
    )
    for name, operator in OPERATORS.items()
    for key, overload in operator.overloads.items()
    for dtype in operator.dtypes
    if not overload.signature.mutates
]

Make = Callable[..., Tensor]


def _classes(make: Make, n: int) -> Tensor:
    """Targets for n rows of three logits."""
    return (make(n) > 0).to(torch.int64)


# Operators as functions of one size, and of tensors to differentiate by.
BY_SIZE: dict[str, Callable[[Any, Make, int], Tensor]] = {
    "add": lambda op, make, n: op(make(n, 3), make(n, 3)),
    "fast_add": lambda op, make, n: op(make(n, 3), make(n, 3)),
    "square": lambda op, make, n: op(make(n, 3)),
    "matmul": lambda op, make, n: op(make(n, n + 30), make(n + 30, n + 60)),
    "sum": lambda op, make, n: op(make(n, 3)),
    "swiglu": lambda op, make, n: op(make(n, 3), make(n, 3)),
    "swiglu_backward": lambda op, make, n: op(make(n, 3), make(n, 3), make(n, 3))[0],
    "cumsum": lambda op, make, n: op(make(n, 3), 0),
    "rms_norm": lambda op, make, n: op(make(n, 3), make(3)),
    "add_rms_norm": lambda op, make, n: op(make(n, 3), make(n, 3), make(3))[0],
    "layer_norm": lambda op, make, n: op(make(n, 3), make(3), make(3)),
    "transpose": lambda op, make, n: op(make(n, n + 30)),
    "permute_copy": lambda op, make, n: op(make(n, 3, n + 30), [2, 0, 1]),
    "quantize_fp8": lambda op, make, n: op(make(n, n + 30))[1],
    "softmax": lambda op, make, n: op(make(n, 3)),
    "softmax_backward": lambda op, make, n: op(make(n, 3), make(n, 3)),
    "cross_entropy": lambda op, make, n: op(make(n, 3), _classes(make, n))[0],
    "cross_entropy_backward": lambda op, make, n: op(
        make(1)[0], make(n), make(n, 3), _classes(make, n), make(n)
    ),
}
FACTORS: dict[str, list[tuple[int, ...]]] = {
    "add": [(4, 1, 3), (2, 1)],
    "fast_add": [(4, 1, 3), (2, 1)],
    "square": [(5, 3)],
    "matmul": [(3, 4), (4, 2)],
    "sum": [(3, 5)],
    "swiglu": [(4, 3), (4, 3)],
    "swiglu_backward": [(4, 3), (4, 3), (4, 3)],
    "cumsum": [(3, 5)],
    "transpose": [(3, 5)],
    "rms_norm": [(3, 5), (5,)],
    "layer_norm": [(3, 5), (5,), (5,)],
    "softmax": [(3, 5)],
    "softmax_backward": [(3, 5), (3, 5)],
}

WITH_OUT = [name for name, operator in OPERATORS.items() if "out" in operator.overloads]
WITH_BLOCK_SIZE = [
    name for name, op in OPERATORS.items() if "block_size" in inspect.signature(op.body).parameters
]


@pytest.fixture(params=quick(QUICK, FACTORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def inputs(name: str, device: torch.device) -> list[Tensor]:
    """Tensors to call an operator with that gradients can be checked by."""
    return [torch.randn(s, dtype=torch.float64, device=device, requires_grad=True) for s in FACTORS[name]]


def samples_of(overload: Any, device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield from overload.make_samples(device, dtype)


def several(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(("operator", "overload", "dtype"), CASES)
def test_every_sample_agrees_with_the_reference(
    operator: Any, overload: Any, dtype: torch.dtype, device: torch.device
) -> None:
    declared = Subject(overload=overload, device=device).tolerance(dtype)
    tolerance = 1e-10 if declared is None and dtype == torch.float64 else declared
    cases = 0
    for sample in samples_of(overload, device, dtype):
        got = operator(*sample.args, **sample.kwargs)
        assert all(one.device.type == device.type for one in several(got))
        judged = numerics.judge(got, numerics.oracle(overload.reference_function, sample, tolerance))
        assert judged.passed, f"{sample}: {judged}"
        cases += 1
    assert cases >= 5


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_include_empty_strided_and_odd_ones(name: str) -> None:
    tensors = [
        tensor
        for sample in samples_of(OPERATORS[name], torch.device("cpu"), OPERATORS[name].dtypes[0])
        for tensor in sample.tensors
    ]
    assert any(tensor.numel() == 0 for tensor in tensors)
    symmetric = name in ("all_reduce_", "reduce_scatter")  # which takes contiguous memory alone
    assert symmetric or any(not tensor.is_contiguous() for tensor in tensors)
    odd = any(tensor.numel() % 32 for tensor in tensors)
    assert odd or name in ("attention", "attention_tile")  # whose rows are multiples of 8, or of 64


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck_holds(name: str, device: torch.device) -> None:
    overload = OPERATORS[name]
    if overload.dtypes[0] == torch.float8_e4m3fn:
        pytest.skip("torch.library.opcheck multiplies its arguments, which torch cannot do in float8")
    for sample in [*samples_of(overload, device, overload.dtypes[0])][:2]:
        torch.library.opcheck(overload.torch_op, sample.args, dict(sample.kwargs))
        if not overload.has_backward:
            continue
        differentiable = sample.map_tensors(lambda t: t.requires_grad_(t.is_floating_point()))
        torch.library.opcheck(overload.torch_op, differentiable.args, dict(differentiable.kwargs))


@pytest.mark.parametrize("name", quick(["add", "sum"], WITH_OUT))
def test_opcheck_holds_for_the_out_overload(name: str, device: torch.device) -> None:
    sample = next(samples_of(OPERATORS[name], device, torch.float32))
    out = torch.empty_like(OPERATORS[name](*sample.args))
    torch.library.opcheck(OPERATORS[name].overloads["out"].torch_op, sample.args, {"out": out})


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_are_right(name: str, inputs: list[Tensor], fast: bool) -> None:
    """Along one direction at random, or in full."""
    assert gradcheck(OPERATORS[name], inputs, fast_mode=fast)


@pytest.mark.slow
def test_second_gradients_are_right(name: str, inputs: list[Tensor]) -> None:
    assert gradgradcheck(OPERATORS[name], inputs)


@pytest.mark.parametrize("name", quick(["cross_entropy"], BY_SIZE))
def test_a_graph_serves_every_size(name: str, device: torch.device) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    operator = OPERATORS[name]
    call = torch.compile(lambda *tensors: operator(*tensors), backend=counter, fullgraph=True, dynamic=True)

    def make(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device)

    def run(n: int) -> None:
        torch.manual_seed(n)
        got = BY_SIZE[name](call, make, n)
        torch.manual_seed(n)
        torch.testing.assert_close(got, BY_SIZE[name](operator, make, n))

    for n in (5, 12):
        run(n)
    compiled = counter.frame_count
    assert compiled >= 1
    for n in (7, 33, 270):
        run(n)
    assert counter.frame_count == compiled


@pytest.mark.skipif(
    not torch.cuda.is_available() and shutil.which("g++") is None,
    reason="inductor needs a GPU or a C++ compiler, and there is neither",
)
@pytest.mark.slow
def test_inductor_compiles_all_operators_once(device: torch.device) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")

    def model(a: Tensor, b: Tensor) -> Tensor:
        hidden = gallery.square(gallery.add(gallery.fast_add(a, a), 1.0)).relu()
        return gallery.sum(gallery.matmul(hidden, b)) * 2

    call = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    settled = 0
    for count, n in enumerate((5, 12, 33, 70)):
        a, b = torch.randn(n, n + 1, device=device), torch.randn(n + 1, n + 2, device=device)
        torch.testing.assert_close(call(a, b), model(a, b), rtol=1e-4, atol=1e-3)
        settled = counter.frame_count if count < 2 else settled
    assert counter.frame_count == settled


@pytest.mark.slow
def test_gradients_are_the_same_under_compile(name: str, inputs: list[Tensor]) -> None:
    torch._dynamo.reset()
    operator = OPERATORS[name]
    call = torch.compile(
        lambda *tensors: operator(*tensors), backend="aot_eager", fullgraph=True, dynamic=True
    )
    eager = torch.autograd.grad(several(operator(*inputs))[0].cos().sum(), inputs)
    compiled = torch.autograd.grad(several(call(*inputs))[0].cos().sum(), inputs)
    torch.testing.assert_close(compiled, eager)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes | None]]:
    """The keys of choices, in a body whose CPU tensors native code reads as it else reads CUDA tensors."""
    asked: list[bytes | None] = []
    look = shape_queries._layout_key
    monkeypatch.setattr(shape_queries, "_layout_key", lambda args: asked.append(look(args)) or asked[-1])
    monkeypatch.setattr(cuda, "capability", lambda index: (8, 0))
    monkeypatch.setattr(compiled, "_targets", {})
    token = scope_variable.set(Scope(policy=LaunchPolicy.SKIP, gpu=0))
    with configured({}):
        yield asked
    scope_variable.reset(token)


CHOOSING = [name for name in OPERATORS if name not in OVER_RANKS]


@pytest.mark.parametrize("name", quick(["add", "sum", "matmul", "cumsum", "softmax"], CHOOSING))
def test_what_is_launched_is_chosen_once_for_each_layout(name: str, keys: list[bytes | None]) -> None:
    overloads = [each for each in OPERATORS[name].overloads.values() if not each.signature.mutates]
    for overload in overloads:
        for sample in samples_of(overload, torch.device("cpu"), OPERATORS[name].dtypes[0]):
            overload.body(*sample.args, **sample.kwargs)
    assert len(keys) >= 4 * len(overloads)
    assert None not in keys


@pytest.mark.parametrize("name", WITH_OUT)
def test_out_is_written_and_returned(name: str, inputs: list[Tensor]) -> None:
    plain = [tensor.detach() for tensor in inputs]
    expected = OPERATORS[name](*plain)
    out = torch.full_like(expected, torch.nan)
    version = out._version
    assert OPERATORS[name](*plain, out=out) is out
    assert torch.equal(out, expected)
    assert out._version > version


@pytest.mark.parametrize("name", WITH_OUT)
def test_a_non_contiguous_out_receives_the_result_and_its_neighbours_keep_theirs(
    name: str, inputs: list[Tensor]
) -> None:
    plain = [tensor.detach() for tensor in inputs]
    expected = OPERATORS[name](*plain)
    shape = [2 * size for size in reversed(expected.shape)]
    memory = torch.full([*shape, 2], 7.0, dtype=expected.dtype, device=expected.device)
    cut = memory[..., 0][tuple(slice(None, None, 2) for _ in shape)]
    out = cut.permute([*reversed(range(len(shape)))])
    assert out.shape == expected.shape
    OPERATORS[name](*plain, out=out)
    assert torch.equal(out, expected)
    out.fill_(7.0)
    assert (memory == 7.0).all()


@pytest.mark.parametrize("name", quick(["add", "sum"], WITH_OUT))
def test_out_is_written_under_compile(name: str, inputs: list[Tensor]) -> None:
    torch._dynamo.reset()
    plain = [tensor.detach() for tensor in inputs]
    operator = OPERATORS[name]

    def write_and_double(out: Tensor, *tensors: Tensor) -> Tensor:
        operator(*tensors, out=out)
        return out * 2

    call = torch.compile(write_and_double, backend="aot_eager", fullgraph=True, dynamic=True)
    expected = operator(*plain)
    out = torch.full_like(expected, torch.nan)
    assert torch.equal(call(out, *plain), expected * 2)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", WITH_OUT)
def test_out_has_no_gradient(name: str, inputs: list[Tensor]) -> None:
    out = torch.empty_like(OPERATORS[name](*inputs).detach())
    with pytest.raises(GradientError, match="out"):
        OPERATORS[name](*inputs, out=out)


@pytest.mark.parametrize("name", WITH_OUT)
def test_out_of_another_dtype_or_shape_is_refused(name: str, inputs: list[Tensor]) -> None:
    plain = [tensor.detach() for tensor in inputs]
    right = torch.empty_like(OPERATORS[name](*plain))
    for wrong in (right.to(torch.float32), right.new_empty((2, *right.shape))):
        with pytest.raises(ValueError, match="out= must"):
            OPERATORS[name](*plain, out=wrong)


@pytest.mark.parametrize("name", [name for name in FACTORS if name != "transpose"])  # which takes any
@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_another_dtype_is_refused_with_those_that_are_taken(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    wrong = [torch.zeros(shape, dtype=dtype, device=device) for shape in FACTORS[name]]
    with pytest.raises(TypeError) as caught:
        OPERATORS[name](*wrong)
    message = str(caught.value)
    assert f"got {dtype}" in message
    assert all(str(taken).removeprefix("torch.") in message for taken in OPERATORS[name].dtypes)


@pytest.mark.parametrize("name", WITH_BLOCK_SIZE)
@pytest.mark.parametrize("block_size", [0, -32, 2048])
def test_a_block_size_that_no_gpu_has_is_refused(name: str, block_size: int, inputs: list[Tensor]) -> None:
    with pytest.raises((LaunchConfigError, ValueError), match=str(block_size)):
        OPERATORS[name](*inputs, block_size=block_size)


def test_inputs_are_left_as_they_were(name: str, inputs: list[Tensor]) -> None:
    before = [tensor.detach().clone() for tensor in inputs]
    versions = [tensor._version for tensor in inputs]
    OPERATORS[name](*inputs)
    assert all(torch.equal(tensor, old) for tensor, old in zip(inputs, before, strict=True))
    assert [tensor._version for tensor in inputs] == versions


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["add", "fast_add", "square", "sum"])
def test_more_than_two_to_the_31_elements_are_computed(name: str) -> None:
    x = torch.ones(2**31 + 77, dtype=torch.int8, device="cuda")
    x[-1] = 5
    got = OPERATORS[name](*[x] * len(FACTORS[name]))
    if name == "sum":
        assert got.item() == 2**31 + 81
        return
    of_one, of_five = (1, 25) if name == "square" else (2, 10)
    assert got[2**31 - 1 : -1].unique().tolist() == [of_one]
    assert got[-1].item() == of_five
