from __future__ import annotations

import random
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dotcu import settings
from dotcu.errors import ArgumentError
from dotcu.kernel import by_layout, capability, cdiv, is_aligned, native, shape_queries, simulate, sm_count
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from helpers.fake_gpu import configured


@given(st.integers(0, 2**70), st.integers(1, 2**40))
def test_cdiv_is_the_quotient_rounded_up(a: int, b: int) -> None:
    assert (cdiv(a, b) - 1) * b < a <= cdiv(a, b) * b


def test_queries_put_no_guard_on_symbolic_sizes() -> None:
    environment = ShapeEnv()
    with FakeTensorMode(shape_env=environment):
        x = torch.empty(environment.create_unbacked_symint())  # a guard on its size would raise
        blocks = cdiv(x.numel(), 256)
        assert isinstance(blocks, torch.SymInt)
        assert is_aligned(x, 16)
        assert sm_count(x) == 108
    assert environment.guards == []


def test_alignment_is_that_of_the_first_element() -> None:
    x = torch.zeros(8)
    assert is_aligned(x, 16)
    assert not is_aligned(x[1:], 16)
    assert is_aligned(x[1:], 4)


def test_alignment_of_what_has_no_memory_is_assumed() -> None:
    with entering_scope(LaunchPolicy.SKIP):
        assert is_aligned(torch.zeros(8, device="meta")[1:], 16)


def test_alignment_of_memory_is_reported_where_launches_are_skipped_too() -> None:
    with entering_scope(LaunchPolicy.SKIP):  # dotcu build asks so which kernels the samples reach
        assert not is_aligned(torch.zeros(8)[1:], 16)


def test_the_capability_on_the_cpu_is_that_of_the_simulated_gpu() -> None:
    assert capability(torch.zeros(1)) == (8, 0)
    with simulate(arch="sm_90"):
        assert capability("cpu") == capability(torch.zeros(1, device="meta")) == (9, 0)
    with FakeTensorMode(shape_env=ShapeEnv()):
        assert capability(torch.empty(3)) == (8, 0)
    with pytest.raises(ArgumentError, match=r"capability takes a tensor or a device, got 3\.5"):
        capability(3.5)  # type: ignore[arg-type]


def test_multiprocessors_on_the_cpu_are_those_of_the_simulated_gpu() -> None:
    x = torch.zeros(1)
    assert sm_count(x) == 108
    with simulate(arch="sm_90"):
        assert sm_count(x) == 132


@pytest.mark.gpu
def test_multiprocessors_are_those_of_the_device() -> None:
    x = torch.zeros(1, device="cuda")
    assert sm_count(x) == torch.cuda.get_device_properties(x.device).multi_processor_count
    assert capability(x) == torch.cuda.get_device_capability(x.device)


@pytest.mark.parametrize("numbers", [(5.5, 2), (5, 2.0)])
def test_cdiv_refuses_floats(numbers: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentError, match="cdiv takes two whole numbers, got 5"):
        cdiv(*numbers)


@pytest.mark.parametrize("device", ["foo", object(), 1.5])
def test_multiprocessors_of_no_device_are_refused(device: Any) -> None:
    with pytest.raises(ArgumentError, match="sm_count takes a tensor or a device"):
        sm_count(device)


@pytest.fixture
def ready() -> Iterator[None]:
    """Native code that reads CPU tensors, as it else reads CUDA tensors, in the body of an operator."""
    with configured({}), entering_scope(LaunchPolicy.BODY, gpu=0):
        yield


class Choosing:
    """A choice by layout that gives how often it was made so far."""

    def __init__(self) -> None:
        self.made = 0
        self.choice = by_layout(self.choose)

    def choose(self, *args: Any, **kwargs: Any) -> int:
        self.made += 1
        return self.made

    def is_kept(self, *args: Any, **kwargs: Any) -> bool:
        """Whether a second call gives what the first one gave."""
        return self.choice(*args, **kwargs) == self.choice(*args, **kwargs)


@pytest.fixture
def choosing(ready: None) -> Choosing:
    return Choosing()


def at(byte: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor that starts so many bytes behind an address divisible by 1024."""
    memory = torch.zeros(8192, dtype=torch.uint8)
    start = -memory.data_ptr() % 1024 + byte
    count = torch.Size(shape).numel() * dtype.itemsize
    return memory[start : start + count].view(dtype).view(shape)


def test_one_layout_is_chosen_for_once(choosing: Choosing) -> None:
    x, y = at(0, 4, 6), at(0, 4, 6).fill_(7)
    assert choosing.choice(x, 3, None) == choosing.choice(y, 3, None) == 1
    assert choosing.choice(torch.nn.Parameter(x), 3, None) == 1
    with torch.inference_mode():
        assert choosing.choice(x, 3, None) == 1
    assert choosing.made == 1


def test_addresses_divisible_by_more_than_256_are_alike(choosing: Choosing) -> None:
    assert choosing.choice(at(512, 8)) == choosing.choice(at(1024, 8))


@pytest.mark.parametrize(
    "other",
    [
        (at(0, 6, 4), 3, None, 1.5, torch.float32),
        (at(0, 4, 6, 1), 3, None, 1.5, torch.float32),
        (at(0, 6, 4).T, 3, None, 1.5, torch.float32),
        (at(0, 4, 6, dtype=torch.int32), 3, None, 1.5, torch.float32),
        (at(16, 4, 6), 3, None, 1.5, torch.float32),
        (at(256, 4, 6), 3, None, 1.5, torch.float32),
        (at(0, 4, 6), 4, None, 1.5, torch.float32),
        (at(0, 4, 6), 3, 0, 1.5, torch.float32),
        (at(0, 4, 6), 3, at(0, 1), 1.5, torch.float32),
        (at(0, 4, 6), 3.0, None, 1.5, torch.float32),
        (at(0, 4, 6), 3, None, 1.25, torch.float32),
        (at(0, 4, 6), 3, None, 1.5, torch.float64),
        (at(0, 4, 6), 3, None, 1.5, None),
        (at(0, 4, 6), 3, None, 1.5),
        (3, at(0, 4, 6), None, 1.5, torch.float32),
    ],
    ids=[
        "shape", "rank", "strides", "dtype", "alignment", "alignment to 256 bytes", "number", "0 for None",
        "tensor for None", "float for int", "float", "dtype given", "None for a dtype", "fewer", "order",
    ],
)  # fmt: skip
def test_another_layout_or_constant_is_chosen_for_anew(choosing: Choosing, other: tuple[Any, ...]) -> None:
    first = at(0, 4, 6), 3, None, 1.5, torch.float32
    assert choosing.choice(*first) == 1
    assert choosing.choice(*other) == choosing.choice(*other) == 2
    assert choosing.choice(*first) == 1


def test_a_bool_is_no_number(choosing: Choosing) -> None:
    x = at(0, 8)
    assert [choosing.choice(x, value) for value in (1, True, 0, False, True)] == [1, 2, 3, 4, 2]


@pytest.mark.parametrize("seed", range(5))
def test_two_calls_share_a_choice_just_where_python_sees_one_layout(choosing: Choosing, seed: int) -> None:
    draw = random.Random(seed)
    made: dict[tuple[Any, ...], int] = {}
    for _ in range(300):
        shape = [draw.choice([0, 1, 2, 3]) for _ in range(draw.randrange(4))]
        dtype = draw.choice([torch.float32, torch.int32, torch.bfloat16])
        x = at(draw.choice([0, 4, 8, 64, 256]), *shape, dtype=dtype)
        x = x.permute(draw.sample(range(x.dim()), x.dim()))
        number = draw.choice([None, True, 1, 2])
        address = x.data_ptr()
        seen = (x.shape, x.stride(), dtype, address & -address & 511, repr(number))
        assert choosing.choice(x, number) == made.setdefault(seen, len(made) + 1)


def test_another_device_is_chosen_for_anew(choosing: Choosing) -> None:
    x = at(0, 8)
    assert choosing.is_kept(x)
    assert not choosing.is_kept(x.to("meta"))


class Special(Tensor):
    """A tensor of a class of its own."""


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {"x": at(0, 8)}),
        ((at(0, 8),), {"n": 3}),
        ((at(0, 8).as_subclass(Special),), {}),
        ((at(0, 8), "a text"), {}),
        ((at(0, 8), (3, 4)), {}),
        ((at(0, 8), torch.device("cpu")), {}),
        ((at(0, 8), 2**70), {}),
        ((torch.eye(3).to_sparse(),), {}),
        ((at(0, 8), *range(300)), {}),
        ((3, None), {}),
        ((), {}),
    ],
    ids=[
        "keyword", "keyword number", "subclass", "text", "tuple", "device", "70 bits", "sparse", "very many",
        "no tensor", "nothing",
    ],
)  # fmt: skip
def test_what_native_code_cannot_tell_apart_is_chosen_for_at_each_call(
    choosing: Choosing, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert not choosing.is_kept(*args, **kwargs)
    assert choosing.made == 2


def test_a_fake_is_chosen_for_at_each_call_and_a_symbolic_size_gets_no_guard(choosing: Choosing) -> None:
    environment, real = ShapeEnv(), at(0, 8)
    with FakeTensorMode(shape_env=environment):
        x = torch.empty(environment.create_unbacked_symint())  # a guard on its size would raise
        assert not choosing.is_kept(x)
        assert not choosing.is_kept(real, x.shape[0])
    assert environment.guards == []


def test_where_choices_hold_for_one_call_alone_each_is_made(choosing: Choosing) -> None:
    x = at(0, 8)
    assert choosing.choice(x) == 1
    with entering_scope(LaunchPolicy.BODY, gpu=0, keeps=False):
        assert [choosing.choice(x), choosing.choice(x)] == [2, 3]
    with entering_scope(LaunchPolicy.BODY, gpu=0):
        assert choosing.choice(x) == 1


def test_a_choice_that_fails_is_not_kept(ready: None) -> None:
    @by_layout
    def choose(x: Tensor) -> int:
        raise ValueError(f"no tile for {x.dim()} dimensions")

    for _ in range(2):
        with pytest.raises(ValueError, match="no tile for 1 dimensions"):
            choose(at(0, 8))


def test_what_is_forgotten_is_chosen_anew(choosing: Choosing) -> None:
    x = at(0, 8)
    assert [choosing.choice(x), choosing.choice(x)] == [1, 1]
    choosing.choice.forget()
    assert [choosing.choice(x), choosing.choice(x)] == [2, 2]


def test_settings_that_change_are_chosen_by_anew(choosing: Choosing) -> None:
    x = at(0, 8)
    assert [choosing.choice(x), choosing.choice(x)] == [1, 1]
    with settings.override(debug=not settings.current().debug):
        assert [choosing.choice(x), choosing.choice(x)] == [2, 2]
    assert [choosing.choice(x), choosing.choice(x)] == [3, 3]


def test_a_function_keeps_some_thousand_choices_and_then_begins_anew(
    choosing: Choosing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_queries, "MAX_LAYOUTS", 3)
    x = at(0, 8)
    assert [choosing.choice(x, n) for n in (0, 1, 2, 0, 1, 2)] == [1, 2, 3, 1, 2, 3]
    assert [choosing.choice(x, n) for n in (3, 3, 2, 0)] == [4, 4, 5, 6]
    for n in range(50):
        choosing.choice(x, n)
        assert len(choosing.choice._kept) <= 3


def test_two_functions_keep_their_own_choices(ready: None) -> None:
    one, other, x = Choosing(), Choosing(), at(0, 8)
    assert one.is_kept(x)
    assert other.made == 0
    assert other.is_kept(x)


def test_a_tensor_is_not_kept_alive(choosing: Choosing) -> None:
    x = at(0, 8)
    choosing.choice(x)
    alive = weakref.ref(x)
    del x
    assert alive() is None


def test_without_the_native_part_each_call_chooses(choosing: Choosing) -> None:
    with settings.override(native=False):
        assert not choosing.is_kept(at(0, 8))


def test_a_tensor_on_the_cpu_is_chosen_for_at_each_call() -> None:
    assert not Choosing().is_kept(at(0, 8))


@pytest.mark.gpu
def test_a_tensor_on_a_gpu_is_chosen_for_once() -> None:
    x = torch.zeros(8, device="cuda")
    if native.prepare():
        pytest.skip(native.prepare())
    choosing = Choosing()
    with entering_scope(LaunchPolicy.BODY, gpu=0):
        assert choosing.is_kept(x)
        assert choosing.is_kept(torch.zeros(8, device="cuda"))
    assert choosing.made == 1


def test_a_choice_is_called_and_described_as_its_function() -> None:
    @by_layout
    def tile(x: Tensor, most: int) -> tuple[int, int]:
        """The sides of a tile."""
        return min(x.shape[0], most), most

    assert tile(at(0, 8), 4) == tile.function(at(0, 8), 4) == (4, 4)
    assert vars(tile)["__name__"] == "tile"
    assert tile.__doc__ == "The sides of a tile."


def test_outside_a_body_nothing_is_kept(choosing: Choosing) -> None:
    """Nothing there knows the GPU that `occupancy` answers for."""
    with entering_scope(LaunchPolicy.OUTSIDE):
        assert not choosing.is_kept(at(0, 4))
    assert choosing.is_kept(at(0, 4))


def test_an_error_of_the_choice_is_the_callers_alone(ready: None) -> None:
    def refuse(x: Tensor) -> int:
        raise ValueError("too narrow")

    with pytest.raises(ValueError, match="too narrow") as caught:
        by_layout(refuse)(at(0, 4))
    assert caught.value.__context__ is None
