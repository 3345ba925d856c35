"""Guarded inputs tell what was written where, and poison shows what was not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking import memory
from dotcu.checking.memory import (
    NAN_BYTE,
    OTHER_BYTE,
    GuardedTensor,
    bits,
    guard,
    poisoning,
    same_bits,
    snapshot,
    writes_outside,
)
from dotcu.operator import Sample


def base() -> Tensor:
    return torch.arange(48, dtype=torch.float32)


TENSORS: dict[str, Callable[[], Tensor]] = {
    "contiguous": base,
    "transposed": lambda: base().view(6, 8).T,
    "every other one": lambda: base()[::2],
    "columns": lambda: base().view(6, 8)[:, 2:5],
    "one element on": lambda: base()[1:],
    "expanded": lambda: base().view(6, 8)[:, :1].expand(6, 8),
    "windows": lambda: base().unfold(0, 5, 2),
    "0-dimensional": lambda: base()[7],
    "empty": lambda: base()[:0].view(0, 3),
    "half": lambda: base().half()[3:],
    "bytes": lambda: base().to(torch.uint8)[5:],
    "bools": lambda: (base() > 5)[1::2],
    "complex": lambda: torch.complex(base(), base())[1:],
    "conjugated": lambda: torch.complex(base(), base()).conj(),
}
every_tensor = pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS.keys())
each_with_elements = pytest.mark.parametrize(
    "make", [pytest.param(make, id=name) for name, make in TENSORS.items() if name != "empty"]
)


def guarded(tensor: Tensor) -> GuardedTensor:
    _, (only,) = guard(Sample(tensor))
    return only


def bytes_around(made: GuardedTensor) -> tuple[Tensor, Tensor]:
    """The bytes before a guarded tensor's first element and behind its last."""
    start = made.tensor.data_ptr() - made.buffer.data_ptr()
    span = memory.span(made.tensor)
    return made.buffer[:start], made.buffer[start + len(span) :]


class TestGuard:
    @every_tensor
    def test_values_and_strides_stay(self, make: Callable[[], Tensor]) -> None:
        tensor = make()
        copy = guarded(tensor).tensor
        assert torch.equal(copy, tensor)
        assert (copy.stride(), copy.dtype) == (tensor.resolve_conj().stride(), tensor.dtype)
        assert memory.meet(memory.span(copy), memory.span(tensor)) is False

    @every_tensor
    def test_misalignment_stays(self, make: Callable[[], Tensor]) -> None:
        tensor = make()
        assert guarded(tensor).tensor.data_ptr() % 64 == tensor.resolve_conj().data_ptr() % 64

    @every_tensor
    def test_what_nobody_touches_is_unchanged(self, make: Callable[[], Tensor]) -> None:
        assert guarded(make()).changed() == (False, False)

    @each_with_elements
    def test_a_write_to_the_last_element_is_inside(self, make: Callable[[], Tensor]) -> None:
        made = guarded(make())
        last = made.tensor[tuple(size - 1 for size in made.tensor.shape)]
        last.copy_(last == 0)
        assert made.changed() == (True, False)

    @each_with_elements
    @pytest.mark.parametrize("side", [0, 1])
    def test_a_write_to_the_byte_beside_it_is_outside(self, make: Callable[[], Tensor], side: int) -> None:
        made = guarded(make())
        band = bytes_around(made)[side]
        band[0 if side else -1] += 1
        assert made.changed() == (False, True)

    @each_with_elements
    def test_both_bands_are_wide(self, make: Callable[[], Tensor]) -> None:
        assert all(len(band) >= memory.BAND_BYTES for band in bytes_around(guarded(make())))

    def test_a_write_to_a_gap_is_outside(self) -> None:
        made = guarded(base().view(6, 8)[:, 2:5])
        made.tensor.as_strided((1,), (1,), made.tensor.storage_offset() + 3).zero_()
        assert made.changed() == (False, True)

    def test_the_original_is_left_alone(self) -> None:
        tensor = base()
        guarded(tensor).tensor.zero_()
        assert torch.equal(tensor, base())

    def test_one_tensor_in_several_places_stays_one(self) -> None:
        x = base()
        sample, guards = guard(Sample(x, [x, base()], out=x))
        assert sample.args[0] is sample.kwargs["out"] is sample.args[1][0]
        assert sample.args[1][1] is not sample.args[0]
        assert len(guards) == 2

    def test_it_requires_no_gradient(self) -> None:
        assert not guarded(base().requires_grad_()).tensor.requires_grad

    @every_tensor
    def test_a_poisoned_argument_has_a_byte_everywhere(self, make: Callable[[], Tensor]) -> None:
        sample, guards = guard(Sample(out=make()), {"out": OTHER_BYTE})
        assert bool((bits(sample.kwargs["out"]) == OTHER_BYTE).all())
        assert guards[0].changed() == (False, False)

    def test_an_argument_that_is_read_too_is_not_poisoned(self) -> None:
        x = base()
        sample, _ = guard(Sample(x, out=x), {"out": NAN_BYTE})
        assert torch.equal(sample.args[0], x)

    def test_an_argument_that_is_not_given_is_not_poisoned(self) -> None:
        sample, _ = guard(Sample(base()), {"out": NAN_BYTE})
        assert torch.equal(sample.args[0], base())

    def test_fresh_gives_the_same_call_again(self) -> None:
        sample = memory.fresh(Sample(base().view(6, 8).T, 3, name="n"))
        assert torch.equal(sample.args[0], base().view(6, 8).T)
        assert (sample.args[1], sample.kwargs["name"]) == (3, "n")


kernels = dotcu.load_inline("""
__global__ void first(const float* x, float* out) { out[0] = x[0]; }
""")


@dotcu.op("memory_test::first")
def first(x: Tensor) -> Tensor:
    """Writes the first element alone."""
    out = torch.empty_like(x)
    kernels.first(x, out, grid=1, block=1)
    return out


@dotcu.op("memory_test::allocates")
def allocates(x: Tensor, how: str) -> Tensor:
    return {
        "empty": lambda: torch.empty(x.shape, device=x.device),
        "empty_like": lambda: torch.empty_like(x),
        "empty_strided": lambda: torch.empty_strided((4, 2), (1, 4), device=x.device),
        "new_empty": lambda: x.new_empty((3,)),
        "zeros": lambda: torch.zeros_like(x),
        "clone": lambda: x.clone(),
    }[how]()


class TestPoisoning:
    @pytest.mark.parametrize("byte", [NAN_BYTE, OTHER_BYTE])
    @pytest.mark.parametrize("how", ["empty", "empty_like", "empty_strided", "new_empty"])
    def test_what_a_body_allocates_is_filled(self, device: torch.device, how: str, byte: int) -> None:
        with dotcu.simulate(), poisoning(byte):
            out = allocates(base().to(device), how)
        assert bool((bits(out) == byte).all())

    @pytest.mark.parametrize(("how", "value"), [("zeros", 0.0), ("clone", 1.0)])
    def test_what_a_body_fills_itself_is_not(self, device: torch.device, how: str, value: float) -> None:
        with dotcu.simulate(), poisoning(NAN_BYTE):
            assert allocates(torch.ones(5, device=device), how).tolist() == [value] * 5

    def test_what_a_kernel_writes_is_there(self, device: torch.device) -> None:
        with dotcu.simulate(), poisoning(OTHER_BYTE):
            out = first(torch.full((4,), 3.0, device=device))
        assert out[0].item() == 3.0
        assert bool((bits(out[1:]) == OTHER_BYTE).all())

    def test_it_ends_with_its_block(self, device: torch.device) -> None:
        with dotcu.simulate(), poisoning(NAN_BYTE):
            with poisoning(OTHER_BYTE):
                first(torch.ones(4, device=device))
            assert bool((bits(first(torch.ones(4, device=device))[1:]) == NAN_BYTE).all())

    def test_what_is_allocated_outside_of_a_body_is_left_alone(self) -> None:
        with poisoning(NAN_BYTE) as allocated:
            torch.empty(5)
        assert list(writes_outside(allocated)) == []

    def test_every_pattern_of_the_first_is_nan(self) -> None:
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            poisoned = torch.full((dtype.itemsize,), NAN_BYTE, dtype=torch.uint8).view(dtype)
            assert bool(poisoned.isnan().all())

    @pytest.mark.gpu
    def test_a_write_beside_what_a_body_allocates_on_a_gpu_is_reported(self) -> None:
        beyond = dotcu.load_inline("__global__ void beyond(float* out, int i) { out[i] = 0; }")

        @dotcu.op("memory_test::beyond")
        def writes_beyond(x: Tensor, i: int) -> Tensor:
            out = torch.empty_like(x)
            beyond.beyond(out, i, grid=1, block=1)
            return out

        x = torch.ones(8, device="cuda")
        for i, said in ((0, []), (8, ["4 bytes after 32 allocated ones, the nearest 1 off"])):
            with poisoning(NAN_BYTE) as allocated:
                writes_beyond(x, i)
            assert list(writes_outside(allocated)) == said


class TestBits:
    @every_tensor
    def test_a_row_holds_an_element(self, make: Callable[[], Tensor]) -> None:
        tensor = make()
        rows = bits(tensor)
        assert rows.shape == (tensor.numel(), tensor.itemsize)
        assert torch.equal(rows.flatten().view(tensor.dtype), tensor.flatten())

    def test_a_bool_that_is_neither_0_nor_1_is_reported_as_it_is(self) -> None:
        strange = torch.tensor([NAN_BYTE, 0, OTHER_BYTE, 0], dtype=torch.uint8).view(torch.bool)[::2]
        for tensor in (strange, snapshot(strange)):
            assert bits(tensor).flatten().tolist() == [NAN_BYTE, OTHER_BYTE]

    def test_a_stride_that_means_nothing_does_no_harm(self) -> None:
        assert bits(torch.ones(3)[:1].expand(1).as_strided((1,), (0,))).shape == (1, 4)
        assert bits(torch.ones(4, 1).expand(4, 0)).shape == (0, 4)

    @every_tensor
    def test_a_snapshot_has_the_same_bits_in_other_memory(self, make: Callable[[], Tensor]) -> None:
        tensor = make()
        assert same_bits([snapshot(tensor)], [tensor])
        assert not memory.meet(memory.span(snapshot(tensor)), memory.span(tensor))

    def test_zeros_of_both_signs_differ_and_the_same_nan_does_not(self) -> None:
        zero, nan = torch.zeros(1), torch.full((1,), float("nan"))
        assert not same_bits([zero], [-zero])
        assert same_bits([nan], [nan.clone()])

    @pytest.mark.parametrize("other", [torch.zeros(4), torch.zeros(2, dtype=torch.int32), torch.zeros(1, 2)])
    def test_another_shape_or_dtype_is_not_the_same(self, other: Tensor) -> None:
        assert not same_bits([torch.zeros(2)], [other])
        assert not same_bits([torch.zeros(2)], [])


class TestSpans:
    def test_neighbours_do_not_meet(self) -> None:
        x = base()
        assert memory.meet(memory.span(x[:11]), memory.span(x[10:]))
        assert not memory.meet(memory.span(x[:10]), memory.span(x[10:]))
        assert len(memory.span(x[::2])) == 4 * 47

    def test_nothing_meets_what_is_empty(self) -> None:
        x = base()
        assert not memory.meet(memory.span(x), memory.span(x[5:5]))
