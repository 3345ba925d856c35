"""What is checked: how it is called, with what, and against what."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors
from dotcu.checking.numerics import outputs
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.operator import Overload

CPU = torch.device("cpu")


def subject(overload: Overload, **options: Any) -> Subject:
    return Subject(overload=overload, device=CPU, **options)


@dotcu.op("subject_test::pair")
def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, x + 2


@dotcu.op("subject_test::double", tolerance={torch.float16: 0.1})
def double(x: Tensor) -> Tensor:
    return 2 * x


@double.overload("out", mutates_args=("out",))
def double_out(x: Tensor, *, out: Tensor) -> None:
    torch.mul(x, 2, out=out)


@dotcu.op("subject_test::swap", mutates_args=("a", "b"))
def swap(x: Tensor, a: Tensor, b: list[Tensor]) -> None:
    a.copy_(x)
    b[0].zero_()


pair.reference(lambda x: (x + 1, x + 2))
double.reference(lambda x: 2 * x)
swap.reference(swap.body)


class TestACall:
    def test_gives_every_tensor_that_is_returned(self) -> None:
        first, second = subject(pair).call(dotcu.Sample(torch.zeros(2)))
        assert (first.tolist(), second.tolist()) == ([1, 1], [2, 2])

    def test_of_an_overload_that_writes_out_gives_that(self) -> None:
        out = torch.empty(2)
        (got,) = subject(double.overloads["out"]).call(dotcu.Sample(torch.ones(2), out=out))
        assert got is out
        assert out.tolist() == [2, 2]

    def test_gives_what_is_mutated_in_order(self) -> None:
        a, b = torch.empty(2), torch.ones(2)
        written = subject(swap).call(dotcu.Sample(torch.ones(2), a, [b]))
        assert [id(tensor) for tensor in written] == [id(a), id(b)]

    def test_gives_the_same_of_whoever_made_it(self) -> None:
        a, b = torch.empty(2), torch.ones(2)
        assert [id(t) for t in subject(swap).gives(dotcu.Sample(torch.ones(2), a, [b]), None)] == [
            id(a),
            id(b),
        ]
        out, x = subject(double.overloads["out"]), torch.ones(2)
        assert out.gives(dotcu.Sample(x), x) == (x,)
        assert subject(double).gives(dotcu.Sample(x), (x, [x])) == (x, x)

    def test_records_no_gradient(self) -> None:
        (got,) = subject(double).call(dotcu.Sample(torch.ones(2, requires_grad=True)))
        assert not got.requires_grad

    def test_is_simulated_in_its_place(self) -> None:
        ran = []

        @dotcu.op("subject_test::bodily")
        def bodily(x: Tensor) -> Tensor:
            ran.append(type(x) is Tensor)
            return x.clone()

        bodily.reference(lambda x: x - 1)
        with subject(bodily).place():
            (got,) = subject(bodily).call(dotcu.Sample(torch.ones(1)))
        assert (got.tolist(), ran) == ([1.0], [True])


class TestTheReference:
    def test_gives_what_the_operator_gives(self) -> None:
        reference = subject(swap).reference
        assert reference is not None
        a, b = torch.empty(2), torch.ones(2)
        written = outputs(reference(torch.ones(2), a, [b]))
        assert [id(tensor) for tensor in written] == [id(a), id(b)]

    def test_of_an_overload_that_writes_out_is_that_of_the_other(self) -> None:
        out = subject(double.overloads["out"])
        assert out.reference is not None
        sample = out.for_reference(dotcu.Sample(torch.ones(2), out=torch.empty(2)))
        assert dict(sample.kwargs) == {}
        assert out.reference(*sample.args).tolist() == [2, 2]

    def test_gets_copies(self) -> None:
        x = torch.ones(2)
        subject(swap).for_reference(dotcu.Sample(x, x, [x])).args[0].zero_()
        assert x.tolist() == [1, 1]

    def test_has_no_operator_compute_for_it(self) -> None:
        @dotcu.op("subject_test::judged")
        def judged(x: Tensor) -> Tensor:
            return 2 * x

        @judged.reference
        def _(x: Tensor) -> Tensor:
            with dotcu.simulate():
                return double(x)

        reference = subject(judged).reference
        assert reference is not None
        told = "the reference of subject_test::judged calls the operator subject_test::double"
        with pytest.raises(ReferenceCalls, match=told):
            reference(torch.ones(2))
        with dotcu.simulate():
            assert double(torch.ones(2)).tolist() == [2, 2]

    def test_may_hang_on_the_reference_of_another(self) -> None:
        @dotcu.op("subject_test::composite")
        def composite(x: Tensor) -> Tensor:
            return 4 * x

        composite.reference(lambda x: double(double(x)))
        reference = subject(composite).reference
        assert reference is not None
        assert reference(torch.ones(1)).tolist() == [4]

    def test_may_be_missing(self) -> None:
        @dotcu.op("subject_test::alone")
        def alone(x: Tensor) -> Tensor:
            return x.clone()

        assert subject(alone).reference is None


class TestItsSamples:
    @pytest.fixture
    def random(self) -> Overload:
        @dotcu.op("subject_test::random", dtypes=(torch.float32, torch.float64))
        def random(x: Tensor) -> Tensor:
            return x.clone()

        @random.samples
        def _(device: torch.device, dtype: torch.dtype) -> Any:
            for n in (5, 0, 3):
                yield dotcu.Sample(torch.randn(n, dtype=dtype, device=device))

        return random

    def test_are_named_by_dtype_and_place(self, random: Overload) -> None:
        names = [case.name for case in subject(random).given(torch.float64)]
        assert names == ["float64-s0", "float64-s1", "float64-s2"]
        assert not any(case.derived for case in subject(random).given(torch.float64))

    def test_are_the_same_in_each_run_whatever_ran_before(self, random: Overload) -> None:
        drawn = []
        for _ in range(2):
            torch.rand(1)
            drawn.append(subject(random).given(torch.float32)[2].sample.args[0])
        assert torch.equal(*drawn)

    def test_are_others_from_another_seed(self, random: Overload) -> None:
        one, other = (subject(random, seed=s).given(torch.float32)[0].sample.args[0] for s in (0, 1))
        assert not torch.equal(one, other)

    def test_leave_torchs_random_numbers_as_they_were(self, random: Overload) -> None:
        before = torch.get_rng_state()
        subject(random).given(torch.float32)
        assert torch.equal(torch.get_rng_state(), before)

    def test_the_smallest_has_elements(self, random: Overload) -> None:
        smallest = subject(random).smallest(torch.float32)
        assert smallest is not None
        assert smallest.name == "float32-s2"

    def test_there_is_no_smallest_where_all_are_empty(self, random: Overload) -> None:
        random.samples(lambda device, dtype: [dotcu.Sample(torch.ones(0))])
        assert subject(random).smallest(torch.float32) is None

    def test_of_another_dtype_of_the_kind_are_refused_with_their_line(self, random: Overload) -> None:
        @random.samples
        def _(device: torch.device, dtype: torch.dtype) -> Any:
            yield dotcu.Sample(torch.ones(3), torch.ones(3, dtype=torch.int64))

        assert len(subject(random).given(torch.float32)) == 1
        told = r"test_subject\.py:\d+: the samples of .* for torch\.float64 have only float32 tensors"
        with pytest.raises(errors.OperatorError, match=told):
            subject(random).given(torch.float64)

    @pytest.mark.parametrize(
        ("dtype", "arguments"),
        [
            (torch.float16, [torch.ones(2, dtype=torch.float16), torch.ones(2)]),
            (torch.float16, [torch.ones(2, dtype=torch.int8), 2.0]),
            (torch.float16, [torch.ones(2), torch.float16]),
            (torch.int32, [torch.ones(2)]),
            (torch.bool, [torch.ones(2), torch.ones(2, dtype=torch.int32)]),
            (torch.float16, []),
        ],
        ids=["beside another", "none of the kind", "by name", "of another kind", "bool", "no tensor"],
    )
    def test_may_have_tensors_of_other_dtypes(
        self, random: Overload, dtype: torch.dtype, arguments: list[Any]
    ) -> None:
        random.samples(lambda device, dtype: [dotcu.Sample(*arguments)])
        assert len(subject(random).given(dtype)) == 1

    def test_that_fail_are_named(self, random: Overload) -> None:
        random.samples(lambda device, dtype: 1 / 0)
        with pytest.raises(errors.OperatorError, match=r"subject_test::random failed for torch\.float32"):
            subject(random).given(torch.float32)


BITWISE, SEEDED = torch.Tag.nondeterministic_bitwise, torch.Tag.nondeterministic_seeded


@pytest.mark.parametrize(
    ("tags", "deterministic"),
    [((), True), ((BITWISE,), False), ((SEEDED,), False), ((BITWISE, SEEDED), False)],
)
def test_what_is_declared_is_known(tags: tuple[torch.Tag, ...], deterministic: bool) -> None:
    @dotcu.op("subject_test::tagged", tags=tags)
    def tagged(x: Tensor) -> Tensor:
        return x.clone()

    assert subject(tagged).is_deterministic is deterministic
    assert {tag for tag in (BITWISE, SEEDED) if subject(tagged).declares(tag)} == set(tags)


def test_a_tolerance_is_of_a_dtype_or_of_all() -> None:
    assert subject(double).tolerance(torch.float16) == 0.1
    assert subject(double).tolerance(torch.float32) is None

    @dotcu.op("subject_test::tolerant", tolerance=0.5)
    def tolerant(x: Tensor) -> Tensor:
        return x.clone()

    assert subject(tolerant).tolerance(torch.float32) == 0.5


def test_random_numbers_start_from_the_name_and_are_left_as_they_were() -> None:
    one = subject(double)
    before = torch.get_rng_state()
    drawn = []
    for name in ("a", "a", "b"):
        with one.seeded(name):
            drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), before)
