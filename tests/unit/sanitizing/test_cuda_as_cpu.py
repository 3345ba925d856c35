"""Code that asks for "cuda" runs on the CPU, and a copy between host and GPU stays a copy."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dotcu.sanitizing.cuda_as_cpu import cuda_on_cpu


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    before = vars(torch.cuda).copy()
    with cuda_on_cpu((9, 0)):
        yield
    assert vars(torch.cuda) == before


def test_tensors_are_made_on_the_gpu_however_it_is_named() -> None:
    made = [
        torch.zeros(3, device="cuda"),
        torch.zeros(3, device="cuda:0"),
        torch.zeros(3, device=torch.device("cuda")),
        torch.zeros(3, device=0),
        torch.zeros(3).cuda(),
        torch.zeros(3).to("cuda"),
        torch.zeros(3).to(0),
        torch.zeros(3).to(device="cuda", dtype=torch.float16),
        torch.zeros(3).to(torch.ones(1, device="cuda")),
        torch.zeros_like(torch.ones(1, device="cuda")),
        torch.ones(1, device="cuda").new_empty(4),
        torch.ones(1, device="cuda") + 1,
    ]
    for tensor in made:
        assert (tensor.is_cuda, tensor.is_cpu, str(tensor.device), tensor.get_device()) == (
            True,
            False,
            "cuda:0",
            0,
        )
        assert tensor.data_ptr()


def test_tensors_that_nothing_puts_on_the_gpu_are_on_the_host() -> None:
    made = [
        torch.zeros(3),
        torch.tensor([1, 2]) + 1,
        torch.zeros(3, device="cuda").cpu(),
        torch.zeros(3, device="cuda").to("cpu"),
        torch.zeros_like(torch.zeros(3, device="cuda"), device="cpu"),
    ]
    for tensor in made:
        assert (tensor.is_cuda, tensor.device.type, tensor.get_device()) == (False, "cpu", -1)


def test_a_copy_to_the_host_does_not_see_later_writes() -> None:
    x = torch.zeros(3, device="cuda")
    host = x.cpu()
    x += 1
    assert host.tolist() == [0, 0, 0]
    assert x.tolist() == [1, 1, 1]


def test_a_copy_to_the_gpu_leaves_the_host_as_it_was() -> None:
    host = torch.zeros(3)
    host.cuda().fill_(1)
    assert host.tolist() == [0, 0, 0]


def test_as_tensor_copies_between_host_and_gpu() -> None:
    host = torch.zeros(3)
    x = torch.as_tensor(host, device="cuda")
    x += 1
    back = torch.as_tensor(x, device="cpu")
    x += 1
    assert (host.tolist(), x.tolist(), back.tolist()) == ([0, 0, 0], [2, 2, 2], [1, 1, 1])
    assert (host.is_cuda, x.is_cuda, back.is_cuda) == (False, True, False)


def test_a_tensor_that_is_there_already_is_not_copied() -> None:
    x, host = torch.zeros(3, device="cuda"), torch.zeros(3)
    assert x.cuda() is x
    assert x.to("cuda") is x
    assert host.cpu() is host
    assert host.to("cpu") is host


def test_the_default_device_may_be_the_gpu() -> None:
    with torch.device("cuda"):
        assert torch.zeros(3).is_cuda
        assert not torch.zeros(3, device="cpu").is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(3).is_cuda
        assert torch.get_default_device().type == "cuda"
    finally:
        torch.set_default_device(None)
    assert not torch.zeros(3).is_cuda


def test_a_module_moves_and_gets_gradients_where_it_is() -> None:
    host = torch.nn.Linear(3, 4)
    host(torch.rand(2, 3)).sum().backward()
    assert host.weight.grad is not None
    assert not host.weight.grad.is_cuda
    moved = torch.nn.Linear(3, 4).cuda()
    moved(torch.rand(2, 3, device="cuda")).sum().backward()
    assert moved.weight.grad is not None
    assert moved.weight.grad.is_cuda
    assert torch.nn.Linear(3, 4, device="cuda").weight.is_cuda


def test_torch_cuda_answers_as_with_one_gpu() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability() == torch.cuda.get_device_capability("cuda") == (9, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    assert torch.cuda.get_device_name(0) == "dotcu simulator of sm_90"
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    assert torch.cuda.memory_allocated() == 0


def test_streams_and_events_do_nothing_but_answer() -> None:
    stream, start, end = (
        torch.cuda.Stream(),
        torch.cuda.Event(enable_timing=True),
        torch.cuda.Event(enable_timing=True),
    )
    with torch.cuda.device(0), torch.cuda.stream(stream):
        start.record()
        torch.zeros(3, device="cuda").record_stream(stream)
        end.record()
    stream.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert end.query()
    assert start.elapsed_time(end) >= 0


def test_autocast_of_the_gpu_is_that_of_the_cpu() -> None:
    x = torch.rand(3, 3, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16
    with torch.autocast(device_type="cuda", enabled=False):
        assert (x @ x).dtype == torch.float32


def test_random_numbers_repeat_by_their_seed() -> None:
    torch.cuda.manual_seed(7)
    first = torch.rand(3, device="cuda")
    torch.cuda.manual_seed_all(7)
    assert torch.equal(first, torch.rand(3, device="cuda"))
    numbers = [
        torch.rand(3, generator=torch.Generator("cuda").manual_seed(1), device="cuda") for _ in range(2)
    ]
    assert torch.equal(*numbers)


def test_the_state_of_random_numbers_can_be_kept() -> None:
    torch.cuda.seed()
    (state,) = torch.cuda.get_rng_state_all()
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state_all([state])
    assert torch.equal(first, torch.rand(3, device="cuda"))
    assert isinstance(torch.cuda.initial_seed(), int)
    assert torch.Generator(device="cuda").device.type == "cuda"
    assert torch.Generator().device.type == "cpu"


def test_autocast_without_a_dtype_takes_that_of_a_gpu() -> None:
    x = torch.rand(3, 3, device="cuda")
    with torch.autocast("cuda"):
        assert (x @ x).dtype == torch.float16
    with torch.autocast("cpu"):
        assert (x @ x).dtype == torch.bfloat16


@pytest.mark.parametrize("place", ["cuda", "cuda:0", torch.device("cuda")])
def test_a_file_is_loaded_onto_the_gpu(place: Any) -> None:
    file = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, file)
    file.seek(0)
    assert torch.load(file, map_location=place)["weight"].is_cuda
    file.seek(0)
    assert torch.load(file, map_location="cpu")["weight"].is_cpu


def test_the_name_of_a_type_has_the_place() -> None:
    x = torch.ones(3, device="cuda")
    assert (x.type(), x.cpu().type()) == ("torch.cuda.FloatTensor", "torch.FloatTensor")
    assert x.type(torch.float16).type() == "torch.cuda.HalfTensor"
    assert torch.ones(3).type("torch.cuda.HalfTensor").is_cuda
    assert x.type("torch.FloatTensor").is_cpu


def test_what_scripts_ask_of_the_gpu_has_an_answer() -> None:
    assert torch.backends.cuda.is_built()
    assert torch.cuda.memory_summary() == ""
    assert torch.cuda.current_stream().priority == 0
    assert torch.cuda.get_device_properties("cuda").max_threads_per_block == 1024
    with torch.cuda.device(0), torch.cuda.device_of(torch.ones(1)):
        assert torch.ones(3, device="cuda").is_cuda


def test_pinned_memory_is_memory() -> None:
    assert torch.zeros(3, pin_memory=True).pin_memory().tolist() == [0, 0, 0]


def test_the_meta_device_stays() -> None:
    assert torch.zeros(3, device="meta").is_meta
    assert torch.zeros(3, device="cuda").to("meta").is_meta


def test_one_block_inside_another_restores_what_it_found() -> None:
    outer = torch.cuda.is_available
    with cuda_on_cpu((8, 0)):
        assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.is_available is outer
    assert torch.cuda.get_device_capability() == (9, 0)


class Doubled(torch.autograd.Function):
    """An autograd function whose backward makes a tensor on "cuda"."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.device = x.device
        return x + x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        assert gradient.device.type == "cuda"
        return gradient * torch.full((1,), 2.0, device=ctx.device)


@pytest.mark.parametrize("how", ["method", "function", "gradients"])
def test_a_backward_gets_its_tensors_on_the_cpu(how: str) -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    total = Doubled.apply(x).sum()
    if how == "method":
        total.backward()
    elif how == "function":
        torch.autograd.backward(total)
    else:
        (x.grad,) = torch.autograd.grad(total, x)
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert x.grad.is_cuda
