"""An operator made by `dotcu.op`: what a call runs, and what torch sees of it."""

from __future__ import annotations

import contextvars
import copy
import math
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors, settings
from dotcu.checking.target import resolve
from dotcu.gallery.add.op import add
from helpers.scale_operators import kernels, make_scale_add, names


class TestCalls:
    def test_a_call_gives_the_values_of_the_kernel(self, scale_add, pair) -> None:
        a, b = pair
        with dotcu.simulate():
            torch.testing.assert_close(scale_add(a, b, 0.5), a + 0.5 * b)

    def test_torch_ops_reaches_the_same_operator(self, scale_add, pair) -> None:
        namespace, name = scale_add.qualified_name.split("::")
        packet = getattr(getattr(torch.ops, namespace), name)
        with dotcu.simulate():
            torch.testing.assert_close(packet(*pair, alpha=2.0), scale_add(*pair, 2.0), rtol=0, atol=0)

    def test_an_empty_input_gives_an_empty_result(self, scale_add, device) -> None:
        with dotcu.simulate():
            assert scale_add(torch.empty(0, 4, device=device), torch.empty(4, device=device)).shape == (0, 4)

    def test_a_call_that_names_out_fills_and_returns_it(self, scale_add, pair) -> None:
        out = torch.full_like(pair[0], torch.nan)
        before = out._version
        with dotcu.simulate():
            assert scale_add(*pair, 2.0, out=out) is out
        torch.testing.assert_close(out, pair[0] + 2 * pair[1])
        assert out._version > before

    def test_a_reference_fills_out_too(self, scale_add) -> None:
        a, out = torch.ones(4), torch.empty(4)
        assert scale_add(a, a, 2.0, out=out) is out
        assert out.tolist() == [3.0] * 4

    def test_a_reference_into_out_runs_the_checks_of_the_body_too(self) -> None:
        @dotcu.op(next(names))
        def double(a: Tensor) -> Tensor:
            return a * 2

        double.reference(lambda a: a * 2)

        @double.overload("out", mutates_args=("out",))
        def _(a: Tensor, *, out: Tensor) -> None:
            if not a.is_floating_point():
                raise TypeError("floating, please")
            out.fill_(torch.nan)

        a = torch.ones(4)
        with pytest.raises(TypeError, match="floating, please"):
            double(torch.ones(4, dtype=torch.int64), out=torch.empty(4, dtype=torch.int64))
        assert double(a, out=a).tolist() == [2.0] * 4, "out may be an input"

    def test_another_dtype_of_out_is_a_mismatch(self, scale_add) -> None:
        with pytest.raises(errors.ReferenceMismatch, match=r"float32\[4\].*float64\[4\]"):
            scale_add(torch.ones(4), torch.ones(4), out=torch.empty(4, dtype=torch.float64))

    def test_an_out_overload_has_no_reference_of_its_own(self, scale_add) -> None:
        with pytest.raises(errors.UsageError, match="whose reference is used"):
            scale_add.overloads["out"].reference(torch.add)

    def test_an_operator_that_writes_its_argument_counts_the_write(self, device) -> None:
        @dotcu.op(next(names), mutates_args=("a",))
        def increment(a: Tensor) -> None:
            n = a.numel()
            kernels.increment[a.dtype](a, n, grid=dotcu.cdiv(n, 32), block=32)

        a = torch.zeros(40, device=device)
        before = a._version
        assert increment(a=a) is None
        assert a._version > before
        assert a.tolist() == [1.0] * 40

    def test_two_outputs_and_an_optional_tensor(self, device) -> None:
        @dotcu.op(next(names))
        def split(a: Tensor, bias: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:  # noqa: UP045
            a = (a if bias is None else a + bias).contiguous()
            high, low = torch.empty_like(a), torch.empty_like(a)
            n = a.numel()
            kernels.split[a.dtype](a, high, low, n, grid=dotcu.cdiv(n, 64), block=64)
            return high, low

        a = torch.arange(-3.0, 4.0, device=device)
        high, low = split(a)
        assert (high.tolist(), low.tolist()) == (a.clamp(min=0).tolist(), a.clamp(max=0).tolist())
        assert split(a, torch.ones(7, device=device))[0].tolist() == (a + 1).clamp(min=0).tolist()

    def test_a_body_may_call_another_operator(self, scale_add, pair) -> None:
        @dotcu.op(next(names))
        def twice(a: Tensor, b: Tensor) -> Tensor:
            return scale_add(scale_add(a, b), b)

        with dotcu.simulate():
            torch.testing.assert_close(twice(*pair), pair[0] + 2 * pair[1])


class TestOnTheCpu:
    def test_a_reference_is_what_cpu_tensors_get(self) -> None:
        operator = make_scale_add()
        calls = []
        operator.reference(lambda a, b, alpha=1.0: calls.append(1) or a + alpha * b)
        assert operator(torch.ones(3), torch.ones(3), 2.0).tolist() == [3.0] * 3
        assert calls == [1]

    def test_the_result_has_the_layout_that_the_body_gives(self, scale_add) -> None:
        a = torch.randn(3, 5).t()
        assert scale_add(a, a).is_contiguous()

    def test_a_shape_that_depends_on_values_is_the_references(self) -> None:
        @dotcu.op(next(names))
        def positives(a: Tensor) -> Tensor:
            return a[a > 0]

        positives.fake(lambda a: a.new_empty(torch.library.get_ctx().new_dynamic_size()))
        positives.reference(lambda a: a[a > 0])
        assert positives(torch.tensor([1.0, -1.0, 2.0])).tolist() == [1.0, 2.0]
        positives.reference(lambda a: a[1:])  # a view: a result has memory of its own
        a = torch.ones(3)
        positives(a).zero_()
        assert a.tolist() == [1.0] * 3

    def test_what_a_reference_that_writes_returns_is_left_aside(self) -> None:
        @dotcu.op(next(names), mutates_args=("a",))
        def doubled(a: Tensor) -> None:
            a *= 2

        doubled.reference(lambda a: a.mul_(2))
        a = torch.ones(3)
        assert doubled(a) is None
        assert a.tolist() == [2.0] * 3

    def test_a_reference_of_another_dtype_is_a_mismatch(self) -> None:
        operator = make_scale_add()
        operator.reference(lambda a, b, alpha=1.0: (a + b).double())
        with pytest.raises(errors.ReferenceMismatch, match=r"float64\[3\].*float32\[3\]"):
            operator(torch.ones(3), torch.ones(3))

    def test_simulate_runs_the_body(self, scale_add) -> None:
        with dotcu.simulate(on_finding="collect") as run:
            scale_add(torch.ones(3), torch.ones(3))
        assert run.counters.launches == 1

    @pytest.mark.parametrize("where", [("meta", "cpu"), ("cpu", "meta")])
    def test_a_tensor_without_memory_among_others_is_refused(self, scale_add, where) -> None:
        with pytest.raises(errors.ArgumentError, match="on meta"):
            scale_add(*(torch.ones(3, device=place) for place in where))
        assert scale_add(torch.ones(3, device="meta"), torch.ones(3, device="meta")).shape == (3,)

    def test_the_setting_simulates_a_whole_script(self) -> None:
        operator = make_scale_add()
        operator.reference(lambda a, b, alpha=1.0: pytest.fail("the reference ran"))
        with settings.override(simulate=True):
            assert operator(torch.ones(3), torch.ones(3)).tolist() == [2.0] * 3

    def test_an_inner_operator_only_allocates_where_the_outer_one_is_asked_for_shapes(self) -> None:
        @dotcu.op(next(names))
        def gather(x: Tensor, index: Tensor) -> Tensor:
            out = torch.empty_like(x)
            kernels.gather(x, index, out, grid=1, block=x.numel())
            return out

        @dotcu.op(next(names))
        def flip(x: Tensor) -> Tensor:
            index = torch.full((x.numel(),), 1 << 30, dtype=torch.int32)  # a kernel would fill it
            return gather(x, index)

        flip.reference(lambda x: x.flip(0))
        assert flip(torch.arange(4.0)).tolist() == [3.0, 2.0, 1.0, 0.0]

    def test_the_repr_says_what_runs(self, scale_add) -> None:
        assert "CPU tensors it runs the reference" in repr(scale_add)
        with dotcu.simulate():
            assert "in the simulator" in repr(scale_add)

    def test_what_a_body_allocates_counts_as_unwritten(self) -> None:
        @dotcu.op(next(names))
        def forgetful(a: Tensor) -> Tensor:
            out, scratch = torch.empty_like(a), torch.empty_like(a)
            n = a.numel()
            kernels.scale_add[a.dtype](a, scratch, 1.0, out, n, grid=1, block=64)
            return out

        with pytest.raises(errors.FindingError, match="uninitialized") as caught:
            forgetful(torch.ones(8))
        assert caught.value.finding.kind == "uninitialized-read"
        assert caught.value.finding.address_of == "b"
        assert caught.value.finding.line == 5

    def test_what_torch_fills_in_a_body_counts_as_written(self) -> None:
        @dotcu.op(next(names))
        def careful(a: Tensor) -> Tensor:
            out, scratch = torch.empty_like(a), torch.empty_like(a).fill_(2)
            n = a.numel()
            kernels.scale_add[a.dtype](a, scratch, 1.0, out, n, grid=1, block=64)
            return out

        assert careful(torch.ones(8)).tolist() == [3.0] * 8


class TestTracing:
    @pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch 2.15 looks at it, and hides this itself
    def test_opcheck_holds(self, scale_add, device) -> None:
        a = torch.randn(4, device=device, requires_grad=True)
        with dotcu.simulate():
            torch.library.opcheck(scale_add.torch_op, (a, a, 2.0))
            torch.library.opcheck(
                scale_add.overloads["out"].torch_op,
                (a.detach(), a.detach()),
                {"out": torch.empty(4, device=device)},
            )

    def test_new_sizes_cause_no_recompilation(self, scale_add, device) -> None:
        from torch._dynamo.testing import CompileCounterWithBackend

        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(
            lambda a, b: scale_add(a, b, 2.0) * 2, fullgraph=True, dynamic=True, backend=counter
        )
        with dotcu.simulate():
            for n in (3, 4):
                compiled(torch.ones(n, 2 * n, device=device), torch.ones(n, 2 * n, device=device))
            settled = counter.frame_count
            for n in (5, 17, 64, 100, 1000):
                a, b = (torch.randn(n, 2 * n, device=device) for _ in range(2))
                torch.testing.assert_close(compiled(a, b), 2 * a + 4 * b)
        assert counter.frame_count == settled

    def test_gradients_hold_under_compile(self, scale_add, device) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(lambda a, b: scale_add(a, b, 2.0), fullgraph=True, backend="aot_eager")
        a, b = (torch.randn(4, device=device, requires_grad=True) for _ in range(2))
        with dotcu.simulate():
            compiled(a, b).sum().backward()
        assert (a.grad.tolist(), b.grad.tolist()) == ([1.0] * 4, [2.0] * 4)

    def test_out_holds_under_compile(self, scale_add, device) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(lambda a, out: scale_add(a, a, out=out), fullgraph=True, backend="aot_eager")
        a, out = torch.ones(4, device=device), torch.empty(4, device=device)
        with dotcu.simulate():
            assert compiled(a, out) is out
        assert out.tolist() == [2.0] * 4

    def test_export_keeps_the_operator(self, scale_add, device) -> None:
        class Model(torch.nn.Module):
            def forward(self, a: Tensor) -> Tensor:
                return scale_add(a, a)

        exported = torch.export.export(Model(), (torch.ones(4, device=device),))
        assert scale_add.torch_op in [node.target for node in exported.graph.nodes]

    def test_a_fake_of_its_own_serves_where_the_body_reads_values(self, device) -> None:
        @dotcu.op(next(names))
        def positives(a: Tensor) -> Tensor:
            return torch.empty(int((a > 0).sum()), device=a.device)

        @positives.fake
        def _(a: Tensor) -> Tensor:
            return a.new_empty(torch.library.get_ctx().new_dynamic_size())

        namespace, name = positives.qualified_name.split("::")
        exported = torch.export.export(
            Wrap(getattr(getattr(torch.ops, namespace), name)), (torch.ones(4, device=device),)
        )
        assert positives.torch_op in [node.target for node in exported.graph.nodes]


class Wrap(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Tensor) -> Tensor:
        return self.function(a)


def make_batched() -> dotcu.operator.Operator:
    """A scale_add with a batching rule, which puts the batch last in its result."""
    operator = make_scale_add()

    @operator.vmap
    def _(
        info: Any, in_dims: tuple[Any, ...], a: Tensor, b: Tensor, alpha: float = 1.0
    ) -> tuple[Tensor, int]:
        whole = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((a, b), in_dims, strict=False)
        ]
        result = operator(*whole, alpha).movedim(0, -1)
        return result, result.dim() - 1

    return operator


@pytest.fixture(scope="module")
def batched() -> dotcu.operator.Operator:
    return make_batched()


class TestVmap:
    """What torch.func.vmap does with a rule, and without one."""

    @pytest.fixture(autouse=True)
    def _simulated(self) -> Iterator[None]:
        with dotcu.simulate():
            yield

    @pytest.mark.parametrize("in_dims", [(0, 0), (1, 1), (0, None), (None, 0), (1, 0)], ids=str)
    @pytest.mark.parametrize("out_dims", [0, 1])
    def test_a_rule_serves_batches_in_any_dimension(self, batched, device, in_dims, out_dims) -> None:
        rows = [torch.randn(3, 4, device=device), torch.randn(3, 4, device=device)]
        args = [
            rows[i][0] if dim is None else rows[i] if dim == 0 else rows[i].t().contiguous()
            for i, dim in enumerate(in_dims)
        ]
        got = torch.func.vmap(batched, in_dims=in_dims, out_dims=out_dims)(*args)
        whole = [rows[i][0] if dim is None else rows[i] for i, dim in enumerate(in_dims)]
        expected = whole[0] + whole[1]
        torch.testing.assert_close(got, expected if out_dims == 0 else expected.t())

    def test_a_rule_is_called_once_for_the_whole_batch(self, device) -> None:
        operator, calls = make_scale_add(), []

        @operator.vmap
        def _(info: Any, in_dims: Any, a: Tensor, b: Tensor, alpha: float = 1.0) -> Any:
            calls.append((info.batch_size, in_dims, alpha))
            return operator(a, b, alpha), 0

        a = torch.ones(3, 4, device=device)
        for factor in (2.0, 3.0, 4.0):
            assert torch.func.vmap(lambda a: operator(a, a, factor))(a).tolist() == (a + factor * a).tolist()  # noqa: B023
        assert calls == [(3, (0, 0, None), factor) for factor in (2.0, 3.0, 4.0)]

    def test_vmap_nests(self, batched, device) -> None:
        a, b = torch.randn(2, 3, 4, device=device), torch.randn(3, 4, device=device)
        inner = torch.func.vmap(lambda a, b: batched(a, b, 2.0))
        got = torch.func.vmap(inner, in_dims=(0, None))(a, b)
        torch.testing.assert_close(got, a + 2 * b)

    def test_a_gradient_goes_through_a_rule(self, batched, device) -> None:
        a, b = (torch.randn(3, 4, device=device) for _ in range(2))

        def loss(a: Tensor) -> Tensor:
            return (torch.func.vmap(lambda a, b: batched(a, b, 2.0))(a, b) ** 2).sum()

        torch.testing.assert_close(torch.func.grad(loss)(a), 2 * (a + 2 * b))
        a.requires_grad_()
        loss(a).backward()
        torch.testing.assert_close(a.grad, 2 * (a.detach() + 2 * b))

    def test_each_element_of_a_batch_has_its_gradient(self, batched, device) -> None:
        a, b = (torch.randn(3, 4, device=device) for _ in range(2))
        per_sample = torch.func.vmap(torch.func.grad(lambda b, a: (batched(a, b, 3.0) ** 2).sum()))
        torch.testing.assert_close(per_sample(b, a), 6 * (a + 3 * b))

    def test_a_rule_for_two_results_has_two_out_dims(self, device) -> None:
        @dotcu.op(next(names))
        def both(a: Tensor) -> tuple[Tensor, Tensor]:
            return a + 1, a * 2

        both.vmap(lambda info, in_dims, a: (both(a), (in_dims[0], in_dims[0])))
        a = torch.randn(3, 4, device=device)
        plus, times = torch.func.vmap(both, in_dims=1, out_dims=(0, 1))(a)
        torch.testing.assert_close((plus, times), ((a + 1).t(), a * 2))

    def test_an_overload_has_a_rule_of_its_own(self, device) -> None:
        operator = make_scale_add()

        @operator.overload("Scalar")
        def scalar(a: Tensor, number: float) -> Tensor:
            return a + number

        scalar.vmap(lambda info, in_dims, a, number: (scalar(a, number), in_dims[0]))
        a = torch.randn(3, 4, device=device)
        torch.testing.assert_close(torch.func.vmap(lambda a: operator(a, 5.0))(a), a + 5)

    def test_without_a_rule_torch_warns_and_calls_it_for_each_element(self, scale_add, device, capfd) -> None:
        a = torch.randn(3, 4, device=device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = torch.func.vmap(scale_add, in_dims=(0, None))(a, a[0])
        torch.testing.assert_close(got, a + a[0])
        said = capfd.readouterr().err + "".join(str(warning.message) for warning in caught)  # torch's choice
        assert f"batching rule for {scale_add.qualified_name}" in said

    def test_a_rule_given_again_replaces_the_first(self, device) -> None:
        operator = make_batched()
        operator.vmap(lambda info, in_dims, a, b, alpha=1.0: (torch.zeros_like(a), in_dims[0]))
        a = torch.ones(3, 4, device=device)
        assert not torch.func.vmap(operator)(a, a).any()

    def test_a_keyword_tensor_cannot_have_a_rule(self) -> None:
        @dotcu.op(next(names))
        def keyword(a: Tensor, *, b: Tensor) -> Tensor:
            return a + b

        with pytest.raises(errors.SchemaError, match="takes b by keyword only"):
            keyword.vmap(lambda info, in_dims, a, b: None)


class TestDeclarations:
    def test_autocast_casts_floating_inputs(self, device) -> None:
        operator = make_scale_add()
        operator.autocast(torch.float16)
        seen = []
        operator.reference(lambda a, b, alpha=1.0: seen.append(a.dtype) or a + alpha * b)
        a = torch.ones(4, device=device)
        with torch.autocast(device.type, dtype=torch.float16):
            assert operator(a, a).dtype == torch.float16
        assert operator(a, a).dtype == torch.float32

    @pytest.mark.parametrize("has_rule", [False, True])
    def test_simulate_hides_no_autocast_from_a_body(self, has_rule) -> None:
        seen: list[tuple[torch.dtype, bool]] = []

        @dotcu.op(next(names))
        def inner(x: Tensor, y: Tensor) -> Tensor:
            product = x @ y
            seen.append((product.dtype, torch.is_autocast_enabled("cpu")))
            return product

        @dotcu.op(next(names))
        def outer(x: Tensor, y: Tensor) -> Tensor:
            product = x @ y
            seen.append((product.dtype, torch.is_autocast_enabled("cpu")))
            return inner(x, y) + product

        if has_rule:  # as its torch.library counterpart, it calls the body past autocast
            outer.autocast(torch.float32)
        x = torch.ones(2, 2, requires_grad=True)
        expected = torch.float32 if has_rule else torch.bfloat16
        for grad in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            for simulated in (False, True):
                place = dotcu.simulate() if simulated else nullcontext()
                with place, torch.autocast("cpu", torch.bfloat16), grad():
                    assert outer(x, x).dtype == expected
                    assert (x @ x).dtype == torch.bfloat16  # outside of the body all is as before
                    with torch.autocast("cpu", enabled=False):
                        assert outer(x, x).dtype == torch.float32
        once = [(expected, not has_rule)] * 2 + [(torch.float32, False)] * 2
        assert seen == once * 6

    def test_a_thread_that_simulate_does_not_reach_is_told_so(self) -> None:
        @dotcu.op(next(names))
        def twice(x: Tensor) -> Tensor:
            return 2 * x

        twice.reference(lambda x: 3 * x)
        x = torch.ones(1)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(twice, x).result() == 3  # nobody simulates
            with dotcu.simulate():
                with pytest.warns(RuntimeWarning, match="computes its reference: this thread is not in"):
                    assert pool.submit(twice, x).result() == 3
                assert pool.submit(contextvars.copy_context().run, twice, x).result() == 2  # as it advises
                with settings.override(simulate=True):
                    assert pool.submit(twice, x).result() == 2
            assert pool.submit(twice, x).result() == 3

    def test_a_body_in_a_region_of_autocast_still_leaves_memory_unwritten(self) -> None:
        kernels = dotcu.load_inline(
            'extern "C" __global__ void twice(const float* x, float* y) { y[0] = 2 * x[0]; }'
        )

        @dotcu.op(next(names))
        def twice(x: Tensor) -> Tensor:
            read, y = torch.empty_like(x), torch.empty_like(x)
            kernels.twice(read, y, grid=1, block=1)
            return y

        region = torch.autocast("cpu", torch.bfloat16)
        with dotcu.simulate(), region, pytest.raises(errors.FindingError, match="uninitialized"):
            twice(torch.ones(1))

    def test_an_operator_that_writes_its_arguments_has_no_rule_for_autocast(self) -> None:
        @dotcu.op(next(names), mutates_args=("a",))
        def add_(a: Tensor, b: Tensor) -> None:
            a += b

        with pytest.raises(errors.SchemaError, match="writes a, and a cast would be a copy"):
            add_.autocast(torch.bfloat16)

    @pytest.mark.parametrize("const", ["", "const "])
    def test_the_schema_says_what_a_call_writes_and_not_a_pointer_without_const(self, const) -> None:
        source = f'extern "C" __global__ void twice({const}float* x, float* y) {{ y[0] = 2 * x[0]; }}'
        kernels = dotcu.load_inline(source)

        @dotcu.op(next(names))
        def twice(x: Tensor) -> Tensor:
            y = torch.empty_like(x)
            kernels.twice(x, y, grid=1, block=1)
            return y

        @dotcu.op(next(names), mutates_args=("y",))
        def twice_into(x: Tensor, y: Tensor) -> None:
            kernels.twice(x, y, grid=1, block=1)

        x, y = torch.ones(1), torch.zeros(1)
        with dotcu.simulate():
            twice(x)
            twice_into(x, y)
            assert (x._version, y._version > 0) == (0, True)
            with torch.inference_mode():
                before = y._version
                twice_into(x, y)
        assert (x._version, y._version > before) == (0, True)

    def test_an_overload_is_picked_by_its_arguments(self, device) -> None:
        operator = make_scale_add()

        @operator.overload("Scalar")
        def _(a: Tensor, number: float) -> Tensor:
            return a + number

        with dotcu.simulate():
            assert operator(torch.ones(2, device=device), 5.0).tolist() == [6.0, 6.0]
            assert operator(torch.ones(2, device=device), torch.ones(2, device=device)).tolist() == [2.0, 2.0]

    def test_the_same_function_defined_again_replaces_the_operator(self) -> None:
        def define(factor: float) -> dotcu.operator.Operator:
            @dotcu.op("operator_test::again")
            def again(a: Tensor) -> Tensor:
                return a * factor

            return again

        first = define(2.0)
        second = define(3.0)
        assert second(torch.ones(1)).item() == 3.0
        assert first(torch.ones(1)).item() == 3.0, "a stale object reaches the definition in force"

    def test_another_function_may_not_take_the_name(self) -> None:
        @dotcu.op("operator_test::taken")
        def taken(a: Tensor) -> Tensor:
            return a.clone()

        with pytest.raises(errors.DuplicateOperator) as caught:

            @dotcu.op("operator_test::taken")
            def usurper(a: Tensor) -> Tensor:
                return a.clone()

        assert str(caught.value).count("test_operator.py:") == 2

    def test_two_files_of_one_name_may_not_define_one_operator(self, tmp_path: Path) -> None:
        source = (
            "import dotcu\nfrom torch import Tensor\n\n"
            '@dotcu.op("operator_test::in_ops")\ndef in_ops(a: Tensor) -> Tensor:\n    return a.clone()\n'
        )
        for folder in ("first", "second"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "ops.py").write_text(source)
        first = str(tmp_path / "first" / "ops.py")
        assert resolve(first)[0][0] == resolve(first)[0][0] == "in_ops", "a file may be loaded again"
        with pytest.raises(errors.DuplicateOperator, match=r"first/ops\.py:4(.|\n)*second/ops\.py:4"):
            resolve(str(tmp_path / "second" / "ops.py"))

    def test_a_notebooks_cell_that_runs_again_replaces_its_operator(self) -> None:
        names = {"__name__": "__main__", "dotcu": dotcu, "Tensor": Tensor}
        for number in (1, 2):
            source = (
                '@dotcu.op("operator_test::in_cell")\n'
                f"def in_cell(a: Tensor) -> Tensor:\n    return a * {number}\n"
            )
            exec(compile(source, f"/tmp/ipykernel_1/{number}.py", "exec"), names)
        assert names["in_cell"](torch.ones(1)).item() == 2

    def test_another_librarys_operator_may_not_be_taken(self) -> None:
        library = torch.library.Library("operator_test", "FRAGMENT")
        library.define("theirs(Tensor a) -> Tensor")
        with pytest.raises(errors.DuplicateOperator, match="a library other than dotcu"):

            @dotcu.op("operator_test::theirs")
            def theirs(a: Tensor) -> Tensor:
                return a.clone()

    def test_a_body_that_returns_nothing_is_named(self) -> None:
        @dotcu.op(next(names))
        def forgot(a: Tensor) -> Tensor:
            torch.empty_like(a)

        with pytest.raises(errors.BodyError, match="returned nothing"):
            forgot(torch.ones(2))

    @pytest.mark.parametrize(
        "alias", [lambda a: a, lambda a: a.view(-1), lambda a: a[1:]], ids=["itself", "a view", "a slice"]
    )
    def test_a_body_that_returns_memory_of_its_input_is_named(
        self, alias: Callable[[Tensor], Tensor]
    ) -> None:
        @dotcu.op(next(names))
        def same(xs: Sequence[Tensor]) -> Tensor:
            return alias(xs[0])

        with pytest.raises(errors.BodyError, match=r"memory of one of its inputs, as float32"):
            same([torch.ones(2)])

    def test_a_body_that_returns_one_tensor_twice_is_named(self) -> None:
        @dotcu.op(next(names))
        def twice(a: Tensor) -> tuple[Tensor, Tensor]:
            b = a.clone()
            return b, b

        with pytest.raises(errors.BodyError, match="memory of another of its results"):
            twice(torch.ones(2))

    def test_a_list_may_be_returned_as_a_tuple_as_in_torch(self) -> None:
        @dotcu.op(next(names))
        def parts(a: Tensor) -> list[Tensor]:
            return a[:1].clone(), a[1:].clone()  # type: ignore[return-value]

        @dotcu.op(next(names))
        def parts_and_all(a: Tensor) -> tuple[list[Tensor], Tensor]:
            return [(a[:1].clone(),), a.clone()]  # type: ignore[return-value]

        @dotcu.op(next(names))
        def none(a: Tensor) -> list[Tensor]:
            return []

        a = torch.ones(3)
        with dotcu.simulate():
            assert [type(parts(a)), len(parts(a)), none(a)] == [list, 2, []]
            first, second = parts_and_all(a)
            assert ([len(part) for part in first], second.tolist()) == ([1], [1.0] * 3)
        assert [type(parts(a.to("meta"))), len(parts(a.to("meta")))] == [list, 2]

    def test_an_overload_needs_a_name(self) -> None:
        with pytest.raises(errors.UsageError, match="takes a name"):
            make_scale_add().overload("")

    def test_deepcopy_and_pickle_keep_an_operator(self, scale_add) -> None:
        assert copy.deepcopy(scale_add) is scale_add
        assert pickle.loads(pickle.dumps(add)) is add
        assert pickle.loads(pickle.dumps(add.overloads["out"])) is add.overloads["out"]

    def test_a_subclass_that_only_names_tensors_is_taken(self, scale_add, device) -> None:
        class Named(Tensor):
            pass

        with dotcu.simulate():
            result = scale_add(torch.ones(3, device=device).as_subclass(Named), torch.ones(3, device=device))
        assert result.tolist() == [2.0] * 3

    def test_a_keyword_tensor_cannot_have_a_gradient(self) -> None:
        @dotcu.op(next(names))
        def keyword(a: Tensor, *, b: Tensor) -> Tensor:
            return a + b

        with pytest.raises(errors.SchemaError, match="takes b by keyword only"):
            keyword.backward(lambda ctx, grad: grad)

    def test_work_defaults_to_every_tensor_once(self, scale_add) -> None:
        a = torch.ones(8)
        assert scale_add.work_of(dotcu.Sample(a, torch.ones(8)), torch.ones(8)) == (96, 0)
        assert scale_add.work_of(dotcu.Sample(a, a), torch.ones(8)) == (64, 0)

    def test_an_overload_that_writes_out_has_the_work_of_the_one_that_returns(self) -> None:
        @dotcu.op(next(names))
        def f(a: Tensor) -> Tensor:
            return a.clone()

        @f.overload("out", mutates_args=("out",))
        def f_out(a: Tensor, *, out: Tensor) -> None:
            out.copy_(a)

        sample = dotcu.Sample(torch.ones(8), out=torch.ones(8))
        assert not f_out.declares_work
        f.work(lambda a: (a.numel(), 3))
        assert f_out.declares_work
        assert f_out.work_of(sample, None) == (8, 3)
        f_out.work(lambda a, *, out: (2 * out.numel(), 4))
        assert f_out.work_of(sample, None) == (16, 4)


@pytest.mark.parametrize(
    "tolerance", [math.nan, math.inf, -1e-3, 1.5, {torch.float16: 1e-3, torch.float32: math.nan}]
)
def test_a_tolerance_that_bounds_nothing_is_wrong_usage(tolerance: Any) -> None:
    with pytest.raises(errors.UsageError, match=r"relative error from 0 to 1 \(got "):
        dotcu.op(next(names), tolerance=tolerance)


@pytest.mark.parametrize("tolerance", [None, 0, 1e-3, 1, {}, {torch.float16: 1e-3}])
def test_a_tolerance_is_a_relative_error(tolerance: Any) -> None:
    assert make_scale_add(tolerance=tolerance).tolerance == tolerance
