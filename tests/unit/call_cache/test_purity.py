from __future__ import annotations

import dis
import functools
import math
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, empty_like

import bodies
import dotcu
from dotcu.call_cache.purity import compares_tensors, dependencies
from dotcu.call_cache.record import Unsupported
from dotcu.gallery.add.op import add

kernels = bodies.kernels

SIZES = (64, 128)
TABLE = {1: 2}
SEEN: list[int] = []
COUNT = 0
CACHE: Any = None


class Settings:
    block = 64


SETTINGS = Settings()


def helper(n: int, block: int = 64) -> int:
    return dotcu.cdiv(n, block)


@functools.cache
def remembered(n: int) -> int:
    return n


def remembers(n: int, seen: list[int] = SEEN) -> int:
    seen.append(n)
    return n


# What may be used.


def ordinary(x: Tensor) -> Tensor:
    """A helper, constants, torch, math, comprehensions, a nested function, a default."""
    out = empty_like(x)
    sizes = [size for size in x.shape if size != 1]

    def blocks(n: int) -> int:
        return helper(n, SIZES[0]) + math.prod(sizes)

    if not all(size < 9 for size in x.shape):
        raise ValueError(f"sizes below 9, got {tuple(x.shape)}")
    if x.dtype not in (torch.float32, torch.int32):
        raise TypeError(str(x.dtype))
    kernels.add[x.dtype](x, x, out, x.numel(), grid=blocks(x.numel()), block=SIZES[0])
    return out


def made(limit: int) -> Callable[[Tensor], Tensor]:
    def body(x: Tensor) -> Tensor:
        return empty_like(x) if limit > 3 else x.new_empty(limit)

    return body


def test_what_a_body_reads_is_given_back_with_its_value() -> None:
    found = dependencies(ordinary)
    assert {name: value for holder, name, value in found if holder is globals()} == {
        "empty_like": empty_like,
        "helper": helper,
        "SIZES": SIZES,
        "kernels": kernels,
    }
    functions = [read for read in found if read[0] is not globals()]
    assert (helper, "__code__", helper.__code__) in functions
    assert (ordinary, "__defaults__", None) in functions


def test_a_closures_variable_is_read_in_its_cell() -> None:
    body = made(5)
    found = dependencies(body)
    (cell,) = body.__closure__ or ()
    assert (cell, "", 5) in found


def test_modules_that_stay_what_they_are_are_no_reads() -> None:
    def body(x: Tensor) -> Tensor:
        return torch.empty_like(x[: math.floor(dotcu.cdiv(3, 2))])

    found = dependencies(body)
    assert all(holder is body for holder, _, _ in found)


def test_a_constant_of_another_module_is_read_in_that_module() -> None:
    def body(x: Tensor) -> Tensor:
        return x.new_empty(bodies.LIMIT)

    found = dependencies(body)
    assert ("LIMIT", 40) in [read[1:] for read in found if read[0] is vars(bodies)]


# What may not.


def counts(x: Tensor) -> Tensor:
    global COUNT
    COUNT += 1
    return empty_like(x)


def keeps(x: Tensor) -> Tensor:
    global CACHE
    CACHE = x
    return empty_like(x)


def prints(x: Tensor) -> Tensor:
    print(x.shape)  # noqa: T201
    return empty_like(x)


def appends(x: Tensor) -> Tensor:
    SEEN.append(x.numel())
    return empty_like(x)


def looks_up(x: Tensor) -> Tensor:
    return x.new_empty(TABLE[1])


def reads_an_object(x: Tensor) -> Tensor:
    return x.new_empty(SETTINGS.block)


def sets_an_attribute(x: Tensor) -> Tensor:
    x.seen = True  # type: ignore[attr-defined]
    return empty_like(x)


def reads_an_attribute(x: Any) -> Tensor:
    return x.new_empty(x.seen)


def rolls_dice(x: Tensor) -> Tensor:
    return x.new_empty(random.randint(1, 6))


def looks_at_the_clock(x: Tensor) -> Tensor:
    return x.new_empty(int(time.time()))


def draws_numbers(x: Tensor) -> Tensor:
    return torch.rand(3)


def asks_torch(x: Tensor) -> Tensor:
    return empty_like(x) if torch.is_grad_enabled() else x.new_empty(3)


def asks_the_current_gpu(x: Tensor) -> Tensor:
    return x.new_empty(torch.cuda.current_device())


def calls_an_operator(x: Tensor) -> Tensor:
    return add(x, x)


def calls_a_torch_operator(x: Tensor) -> Tensor:
    return torch.ops.dotcu.add(x, x)


def remembers_by_cache(x: Tensor) -> Tensor:
    return x.new_empty(remembered(3))


def remembers_in_a_default(x: Tensor) -> Tensor:
    return x.new_empty(remembers(3))


def asks_for_types(x: Tensor) -> Tensor:
    return x.new_empty(3 if type(x.numel()) is int else 4)


def asks_for_identity(x: Tensor) -> Tensor:
    return x.new_empty(id(x) % 7)


def catches(x: Tensor) -> Tensor:
    try:
        return x.view(-1, 7)
    except RuntimeError:
        return empty_like(x)


def enters(x: Tensor) -> Tensor:
    with torch.no_grad():
        return empty_like(x)


def imports(x: Tensor) -> Tensor:
    import os

    return x.new_empty(os.getpid())


def builds_a_set(x: Tensor) -> Tensor:
    return x.new_empty(next(iter({x.size(0), x.size(1)})))


def passes_a_module(x: Tensor) -> Tensor:
    return helper_of(math, x)


def helper_of(module: Any, x: Tensor) -> Tensor:
    return x.new_empty(module.tau)


def writes_a_variable(x: Tensor) -> Tensor:
    kernels.variable("c").write(x)
    return empty_like(x)


def yields(x: Tensor) -> Any:
    yield x


def missing(x: Tensor) -> Tensor:
    return nowhere(x)  # type: ignore[name-defined]  # noqa: F821


REFUSED = {
    counts: "the global COUNT",
    keeps: "the global CACHE",
    prints: "print",
    appends: "the list SEEN, which can change; make it a tuple",
    looks_up: "the dict TABLE, which can change; make it a tuple",
    reads_an_object: "SETTINGS, a Settings, which can change",
    sets_an_attribute: "the attribute seen",
    reads_an_attribute: ".seen",
    rolls_dice: "random.randint",
    looks_at_the_clock: "time.time",
    draws_numbers: "torch.rand",
    asks_torch: "torch.is_grad_enabled",
    asks_the_current_gpu: "torch.cuda.current_device",
    calls_an_operator: "the operator add",
    calls_a_torch_operator: "torch.ops",
    remembers_by_cache: "remembered",
    remembers_in_a_default: "the list a default of remembers",
    asks_for_types: "type",
    asks_for_identity: "id",
    catches: "try",
    enters: "with",
    imports: "imports os",
    builds_a_set: "set",
    passes_a_module: ".tau of a value",
    writes_a_variable: "kernels.variable",
    yields: "generator",
    missing: "nowhere",
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_what_may_differ_from_call_to_call_is_refused_by_name(body: Callable[..., Any]) -> None:
    with pytest.raises(Unsupported, match=re.escape(REFUSED[body])):
        dependencies(body)


def test_a_function_that_is_reached_is_looked_into() -> None:
    def body(x: Tensor) -> Tensor:
        return (lambda y: outer(y))(x)

    def outer(x: Tensor) -> Tensor:
        return appends(x)

    with pytest.raises(Unsupported, match=re.escape("SEEN")):
        dependencies(body)


@pytest.mark.parametrize("name", ["LOAD_FAST_FROM_ELSEWHERE", "BINARY_OP_IN_PLACE", "JUMP_ELSEWHERE"])
def test_an_instruction_that_a_later_python_may_add_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def body(x: Tensor, number: int) -> Tensor:
        return x.new_empty(number + 1)

    row = next(row for row in dis.get_instructions(body) if row.opname == "LOAD_FAST")
    rows = [row._replace(opname=name), *dis.get_instructions(body)]
    monkeypatch.setattr(dis, "get_instructions", lambda code: iter(rows))
    with pytest.raises(Unsupported, match=f"it uses the instruction {name} "):
        dependencies(body)


def test_a_variable_of_an_enclosing_function_may_not_be_set() -> None:
    calls = 0

    def body(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return empty_like(x)

    with pytest.raises(Unsupported, match=re.escape("calls")):
        dependencies(body)


def test_functions_that_call_each_other_end() -> None:
    assert dependencies(even)


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


# Identity.


def test_comparing_with_a_constant_distinguishes_no_tensors() -> None:
    def body(x: Tensor, y: Tensor | None) -> Tensor:
        if y is None or x.dtype is torch.float32 or x.dtype is not torch.int32:
            return empty_like(x)
        return x.new_empty(3)

    assert not compares_tensors(body)


@pytest.mark.parametrize(
    "body",
    [lambda x, y: x is y, lambda x, y: len({x: 1, y: 2}), lambda x, y: dict.fromkeys((x, y), 1)],
    ids=["is", "dict", "dict comprehension"],
)
def test_comparing_tensors_by_identity_distinguishes_them(body: Callable[..., Any]) -> None:
    assert compares_tensors(body)
