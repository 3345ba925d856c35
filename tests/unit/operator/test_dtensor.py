"""Calls on DTensors: four ranks in this process, by torch's LocalTensorMode."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

import dotcu.gallery
from dotcu.checking.numerics import judge
from dotcu.checking.subject import Subject
from dotcu.checking.trials.sharding import dtype_of
from dotcu.errors import ArgumentError
from dotcu.gallery import add, matmul, rms_norm, swiglu
from dotcu.operator import Overload
from helpers import forked_scripts

pytestmark = pytest.mark.skipif(
    not hasattr(torch.distributed, "is_available") or not torch.distributed.is_available(),
    reason="this torch is built without torch.distributed",
)

RANKS = 4


class Ranks:
    """Four ranks on a mesh of 2 x 2, with the whole of a DTensor."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh

    def place(self, tensor: Tensor, *places: int | str) -> Any:
        """A DTensor of a tensor: along each dimension of the mesh a dimension of it, or "whole"."""
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        placements = [Shard(place) if isinstance(place, int) else Replicate() for place in places]
        return distribute_tensor(tensor, self.mesh, placements)

    def whole(self, tensor: Any) -> Tensor:
        """The value that all ranks agree on."""
        value = tensor.full_tensor()
        one: Tensor = value.reconcile() if hasattr(value, "reconcile") else value
        return one


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    local = pytest.importorskip("torch.distributed._local_tensor", reason="torch 2.13 has LocalTensorMode")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    try:
        with local.LocalTensorMode(RANKS):
            mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2))
            yield Ranks(mesh)
    finally:
        torch.distributed.destroy_process_group()


def test_a_result_stays_split_and_what_is_added_up_stays_to_be_reduced(ranks: Ranks) -> None:
    a, b = torch.randn(10, 6), torch.randn(6, 8)
    split = matmul(ranks.place(a, 1, 0), ranks.place(b, 0, "whole"))
    assert [str(place) for place in split.placements] == ["P(sum)", "S(0)"]
    torch.testing.assert_close(ranks.whole(split), a @ b)


def test_arguments_that_decide_are_no_shapes_and_are_looked_at_in_each_call(ranks: Ranks) -> None:
    x = torch.randn(8, 8)
    along = [dotcu.gallery.softmax(ranks.place(x, 0, "whole"), dim) for dim in (1, 0, 1)]
    assert [str(each.placements[0]) for each in along] == ["S(0)", "R", "S(0)"]
    torch.testing.assert_close(ranks.whole(along[1]), x.softmax(0))


def test_what_is_written_stays_where_it_is_and_the_rest_comes_to_it(ranks: Ranks) -> None:
    a, b = torch.randn(10, 6), torch.randn(10, 6)
    out = ranks.place(torch.zeros(10, 6), 1, "whole")
    assert add(ranks.place(a, 0, "whole"), ranks.place(b, "whole", 1), out=out) is out
    assert [str(place) for place in out.placements] == ["S(1)", "R"]
    torch.testing.assert_close(ranks.whole(out), a + b)


def test_an_output_that_no_rule_gives_is_refused_with_what_to_type(ranks: Ranks) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate

    out = DTensor.from_local(torch.zeros(10, 6), ranks.mesh, [Partial(), Replicate()])
    x = ranks.place(torch.randn(10, 6), 0, "whole")
    with pytest.raises(ArgumentError, match=r"fits none of its shardings(.|\n)*out\.redistribute"):
        add(x, x, out=out)


def test_a_gradient_goes_through_the_backward_operators_sharding(ranks: Ranks) -> None:
    x, weight = torch.randn(6, 8), torch.randn(8)
    split = ranks.place(x, 0, 0).requires_grad_()
    scale = ranks.place(weight, "whole", "whole").requires_grad_()
    rms_norm(split, scale).sum().backward()
    whole, of_scale = x.clone().requires_grad_(), weight.clone().requires_grad_()
    rms_norm(whole, of_scale).sum().backward()
    assert [str(place) for place in split.grad.placements] == ["S(0)", "S(0)"]
    torch.testing.assert_close(ranks.whole(split.grad), whole.grad)
    torch.testing.assert_close(ranks.whole(scale.grad), of_scale.grad)


def test_uneven_and_empty_parts_are_computed_where_they_are(ranks: Ranks) -> None:
    gate, up = torch.randn(3, 5), torch.randn(3, 5)
    split = swiglu(ranks.place(gate, 0, 0), ranks.place(up, 0, 0))
    assert [str(place) for place in split.placements] == ["S(0)", "S(0)"]
    torch.testing.assert_close(ranks.whole(split), swiglu(gate, up))


def test_inference_mode_has_the_same_shardings(ranks: Ranks) -> None:
    with torch.inference_mode():
        x = torch.randn(8, 6)
        assert [str(p) for p in add(ranks.place(x, 0, 1), 2).placements] == ["S(0)", "S(1)"]


def test_an_overload_that_is_added_after_dtensor_is_imported_leaves_the_first_its_sharding(
    ranks: Ranks,
) -> None:
    @dotcu.op("dtensors::negated", sharding="elementwise")
    def negated(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    negated.reference(lambda x: -x)

    @negated.overload("out", mutates_args=("out",))
    def negated_out(x: Tensor, *, out: Tensor) -> None: ...

    x = torch.randn(8, 8)
    torch.testing.assert_close(ranks.whole(negated(ranks.place(x, 0, 1))), -x)


def overloads() -> list[Overload]:
    """Return those that do not communicate themselves."""
    ops = (getattr(dotcu.gallery, name) for name in dotcu.gallery.__all__)
    every = [overload for op in ops for overload in op.overloads.values()]
    return [overload for overload in every if "group_name" not in overload.signature.arguments]


def twice(sharding: Any) -> Any:
    @dotcu.op("tests_of_dtensor::twice", sharding=sharding)
    def twice(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    twice.reference(lambda x: 2 * x)
    return twice


def test_another_sharding_takes_the_place_of_the_first(ranks: Ranks) -> None:
    x = ranks.place(torch.randn(8, 4), 0, "whole")

    def placed(operator: Any) -> list[str]:
        return [str(place) for place in operator(x).placements]

    operator = twice("elementwise")
    assert placed(operator) == ["S(0)", "R"]
    operator.sharding("replicated")
    assert placed(operator) == ["R", "R"]
    assert placed(twice("elementwise")) == ["S(0)", "R"], "defined again, as in a notebook"
    with pytest.raises(NotImplementedError):
        placed(twice(None))


BEFORE_DTENSOR = """
import os, sys, importlib.util, torch, dotcu
from torch import Tensor

@dotcu.op("early::twice", sharding="elementwise")
def twice(x: Tensor) -> Tensor: return x + x

@dotcu.op("early::double_", mutates_args=("x",), sharding="elementwise")
def double_(x: Tensor) -> None: x.mul_(2)
@double_.reference
def _(x: Tensor) -> None: x.mul_(2)

assert "torch.distributed.tensor" not in sys.modules
assert importlib.util.find_spec("torch.distributed.tensor")
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
mesh = init_device_mesh("cpu", (1,))
place = lambda: DTensor.from_local(torch.ones(4), mesh, [Shard(0)])
x = place()
{call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "print(torch.ops.early.twice(x).placements)",
        "with torch.inference_mode(): print(torch.ops.early.twice(place()).placements)",
        "torch.ops.early.double_(x); print(x.placements); assert x.to_local().tolist() == [2.0] * 4",
        "double_(x); print(x.placements); assert x.to_local().tolist() == [2.0] * 4",
    ],
    ids=["by torch.ops", "in inference mode", "one that writes", "one that writes, by its object"],
)
def test_a_sharding_that_was_declared_before_dtensor_came_holds(call: str) -> None:
    done = forked_scripts.run(BEFORE_DTENSOR.replace("{call}", call))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(Shard(dim=0),)"


@pytest.mark.slow
@pytest.mark.parametrize("overload", overloads(), ids=lambda overload: overload.qualified_name)
def test_a_gallery_operator_gives_on_dtensors_what_it_gives_on_tensors(
    overload: Overload, ranks: Ranks
) -> None:
    subject = Subject(overload=overload, device=torch.device("cpu"))
    with _disable_current_modes():  # samples and what they give are one tensor, not one for each rank
        case = subject.smallest(dtype_of(subject))
        assert case is not None
        expected, oracle = subject.call(case.make()), subject.oracle(case.make(), case.dtype)
    for dim in (0, 1):
        with _disable_current_modes():
            sample = case.make()
        written = {id(tensor) for tensor in subject.written(sample)}

        def placed(tensor: Tensor, dim: int = dim, written: set[int] = written) -> Any:
            splits = tensor.ndim > dim and id(tensor) not in written
            return ranks.place(tensor, "whole", dim if splits else "whole")

        split = sample.map_tensors(placed)
        with torch.no_grad():
            results = subject.gives(split, overload(*split.args, **split.kwargs))
        wholes = tuple(map(ranks.whole, results))
        with _disable_current_modes():
            judged = judge(wholes, oracle)
        assert judged.passed, str(judged)
        for result, got, want in zip(results, wholes, expected, strict=True):
            # Each rank rounds its part of a sum to the dtype of the result. Where parts cancel, that is more
            # than units of the result, and the bounds of the operator hold, which know what cancels.
            if not any(place.is_partial() for place in result.placements):
                torch.testing.assert_close(got, want, equal_nan=True)
