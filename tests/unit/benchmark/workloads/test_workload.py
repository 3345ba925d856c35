"""What an operator is timed on: its samples, or calls of other shapes that are like them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark import workloads as module
from dotcu.benchmark.workloads import UntimedCase, Workload, parse_shapes, workloads
from dotcu.checking.memory import same_bits
from dotcu.checking.subject import Subject
from dotcu.errors import OperatorError
from dotcu.operator import Operator, Sample
from helpers.derivable_operators import operator, subject

f32, bf16 = torch.float32, torch.bfloat16


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def picked(table: Tensor, index: Tensor, scale: float = 1.0) -> Tensor:
    return table[index] * scale


def random_samples(made: Operator, *shapes: tuple[int, ...]) -> Operator:
    @made.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for shape in shapes:
            yield dotcu.Sample(torch.randn(shape, device=device).to(dtype))

    return made


def fitting(of: Subject, *shapes: str, dtypes: tuple[torch.dtype, ...] = ()) -> list[Workload]:
    found = workloads(of, shapes=parse_shapes(",".join(shapes)) if shapes else (), dtypes=dtypes)
    assert all(isinstance(one, Workload) for one in found), found
    return [one for one in found if isinstance(one, Workload)]


@pytest.fixture(scope="module")
def matmul() -> Subject:
    sample = Sample(torch.rand(6, 4), torch.rand(4, 5) + 1)
    return subject(operator(product, sample, reference=product, dtypes=(f32, bf16)))


def test_every_dtype_has_the_samples_that_are_not_empty_and_equal_shapes_once() -> None:
    made = operator(_plain, dtypes=(f32, bf16), reference=_plain)
    of = subject(random_samples(made, (8,), (0, 3), (2, 4), (8,)))
    assert [one.name for one in fitting(of)] == ["float32-8", "float32-2x4", "bfloat16-8", "bfloat16-2x4"]
    assert [one.name for one in fitting(of, dtypes=(bf16,))] == ["bfloat16-8", "bfloat16-2x4"]


def _plain(x: Tensor) -> Tensor:
    return x + 1


def test_a_case_knows_its_size_with_its_results(matmul: Subject) -> None:
    (one,) = fitting(matmul, dtypes=(f32,))
    assert (one.name, one.shapes, one.elements) == ("float32-6x4:4x5", ((6, 4), (4, 5)), 30)
    assert (one.input_bytes, one.result_bytes, one.bytes) == (4 * 44, 4 * 30, 4 * 74)


def masked(x: Tensor, causal: bool = False, scale: float = 1.0) -> Tensor:
    return (x.tril() if causal else x) * scale


def test_samples_of_equal_shapes_that_differ_in_scalars_are_all_cases_and_named_by_these() -> None:
    x, y = torch.randn(6, 6), torch.randn(4, 4)
    samples = (Sample(x), Sample(x, True, 1.0), Sample(x, causal=False), Sample(y, causal=True))
    cases = fitting(subject(operator(masked, *samples)))
    assert [one.name for one in cases] == [
        "float32-6x6-causal=False",
        "float32-6x6-causal=True",
        "float32-4x4",
    ]
    assert cases[1].make(1).args[1:] == (True, 1.0)


def test_another_seed_gives_other_values_in_other_memory_and_the_same_seed_the_same() -> None:
    of = subject(random_samples(operator(_plain), (50,)))
    (one,) = fitting(of)
    a, b, again = one.make(3), one.make(4), one.make(3)
    assert same_bits(a.tensors, again.tensors)
    assert not same_bits(a.tensors, b.tensors)
    assert len({sample.tensors[0].data_ptr() for sample in (a, b, again)}) == 3


def test_layout_and_misalignment_of_an_authors_sample_are_preserved() -> None:
    x = torch.randn(33)[1:]
    of = subject(operator(_plain, Sample(torch.randn(5, 3).T), Sample(x)))
    transposed, shifted = (one.make(1).tensors[0] for one in fitting(of))
    assert transposed.stride() == (1, 3)
    assert shifted.data_ptr() % 16 == x.data_ptr() % 16 == 4


def test_random_shapes_fall_back_on_those_of_the_first_seed() -> None:
    made = operator(_plain)

    @made.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        yield dotcu.Sample(torch.randn(int(torch.randint(1, 10**6, ()))))

    (one,) = fitting(subject(made))
    assert one.make(5).tensors[0].shape == one.make(6).tensors[0].shape == one.shapes[0]


class TestShapes:
    def test_the_other_tensors_follow_the_first(self, matmul: Subject) -> None:
        names = [one.name for one in fitting(matmul, "64x32", "8x16:16x4", dtypes=(bf16,))]
        assert names == ["bfloat16-64x32:32x5", "bfloat16-8x16:16x4"]

    def test_values_are_of_the_authors_kind_and_of_each_seed(self, matmul: Subject) -> None:
        (one,) = fitting(matmul, "64x32", dtypes=(f32,))
        a, b = one.make(0).tensors
        assert bool((a >= 0).all())
        assert bool((b >= 1).all())
        assert not torch.equal(one.make(1).tensors[0], a)
        assert torch.equal(one.make(0).tensors[0], a)

    def test_an_index_stays_within_what_it_points_into(self) -> None:
        # 7 is the size of the indices, too
        sample = Sample(torch.randn(10, 4), torch.tensor([0, 7, 2, 3, 1, 6, 5]), scale=2.0)
        of = subject(operator(picked, sample, reference=picked))
        for shapes in ("2000x4:300", "5x4:300"):
            (one,) = fitting(of, shapes)
            made = one.make(1)
            assert made.kwargs == {"scale": 2.0}
            assert int(made.tensors[1].max()) < made.tensors[0].shape[0]

    def test_the_first_sample_that_can_take_a_shape_is_followed(self) -> None:
        of = subject(operator(product, Sample(torch.rand(4), torch.rand(4, 2)),
                              Sample(torch.rand(6, 4), torch.rand(4, 5))))  # fmt: skip
        (one,) = fitting(of, "9x7")
        assert one.shapes == ((9, 7), (7, 5))

    def test_a_row_that_fits_none_is_reported_and_the_others_remain(self, matmul: Subject) -> None:
        found = workloads(matmul, shapes=parse_shapes("3x3x3,8x4"), dtypes=(f32,))
        assert isinstance(found[0], UntimedCase)
        assert (found[0].name, found[0].status) == ("float32-3x3x3", "failed")
        assert "Give a shape for each" in found[0].reason
        assert isinstance(found[1], Workload)

    def test_what_a_call_writes_has_the_references_shape(self) -> None:
        made = operator(product, Sample(torch.rand(6, 4), torch.rand(4, 5)), reference=product)

        @made.overload("out", mutates_args=("out",))
        def _(a: Tensor, b: Tensor, *, out: Tensor) -> None:
            torch.mm(a, b, out=out)

        (one,) = fitting(subject(made.overloads["out"]), "8x3:3x2")
        assert one.shapes == ((8, 3), (3, 2))
        assert tuple(one.make(0).kwargs["out"].shape) == (8, 2)
        assert one.result_bytes == 4 * 16


def test_calls_of_the_caller_replace_the_authors(matmul: Subject) -> None:
    given = [
        Sample(torch.rand(3, 2), torch.rand(2, 2)),
        Sample(torch.rand(3, 9).bfloat16(), torch.rand(9, 1).bfloat16()),
    ]
    found = workloads(matmul, samples=given)
    assert [one.name for one in found] == ["float32-3x2:2x2", "bfloat16-3x9:9x1"]
    assert isinstance(found[0], Workload)
    made = found[0].make(2)
    assert same_bits(made.tensors, given[0].tensors)
    assert made.tensors[0] is not given[0].tensors[0]


def test_what_does_not_fit_is_skipped_before_it_is_allocated(
    matmul: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda device: 2**30)
    found = workloads(matmul, shapes=parse_shapes("2^20x2^20,8x4"), dtypes=(f32,))
    assert isinstance(found[0], UntimedCase)
    assert found[0].status == "skipped"
    assert found[0].reason.endswith("GiB of memory on the GPU, which has 1.0 GiB free")
    assert isinstance(found[1], Workload)


def test_sets_are_as_many_as_memory_reaches(matmul: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = fitting(matmul, dtypes=(f32,))
    free = module._needed_bytes(one.input_bytes, one.result_bytes, 3)
    monkeypatch.setattr(module, "free_bytes", lambda device: free)
    sets = one.sets(4, 0, matmul.device)
    assert len(sets) == 3
    assert len(one.sets(2, 0, matmul.device)) == 2
    assert len({tensor.data_ptr() for sample in sets for tensor in sample.tensors}) == 6
    monkeypatch.setattr(module, "free_bytes", lambda device: 0)
    assert len(one.sets(4, 0, matmul.device)) == 1


def test_an_operator_without_samples_learns_how_to_have_one() -> None:
    with pytest.raises(OperatorError, match=r"no sample without empty tensors[\s\S]*yield dotcu.Sample"):
        workloads(subject(operator(_plain)))
