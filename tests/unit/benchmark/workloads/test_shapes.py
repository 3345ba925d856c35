"""Shapes from a command line: what they say, and what the other tensors of a call become."""

from __future__ import annotations

import pytest

from dotcu.benchmark.workloads import fitted, parse_shapes, shape_rows, shapes_name
from dotcu.errors import UsageError


def test_rows_are_shapes_of_the_first_tensor_or_of_each() -> None:
    assert parse_shapes("4096x4096,2^28") == [((4096, 4096),), ((2**28,),)]
    assert parse_shapes("64x48:48x32, 3") == [((64, 48), (48, 32)), ((3,),)]
    assert parse_shapes("1024:0d") == [((1024,), ())]


def test_python_gives_text_tuples_or_a_tuple_for_each_tensor() -> None:
    assert shape_rows("2^4") == shape_rows([(16,)]) == [((16,),)]
    assert shape_rows(["8x8,4", (3, 5), [(2, 3), (3, 4)]]) == [
        ((8, 8),),
        ((4,),),
        ((3, 5),),
        ((2, 3), (3, 4)),
    ]
    with pytest.raises(UsageError, match="shapes holds 5"):
        shape_rows([5])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text", ["", "4096x", "x3", "0", "-1", "2^64", "9^9999999", "3.5", "a", "4,,5", "2^^3"]
)
def test_what_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a shape[\s\S]*--shapes 4096x4096"):
        parse_shapes(text)


def test_a_name_shows_shapes_once_where_all_are_the_same() -> None:
    assert shapes_name([(4096, 4096), (4096, 4096)]) == "4096x4096"
    assert shapes_name([(64, 48), (48, 32)]) == "64x48:48x32"
    assert shapes_name([()]) == "0d"


class TestFollowing:
    def test_tensors_of_the_first_ones_shape_follow_it_whatever_its_rank(self) -> None:
        assert fitted([(10,), (10,)], ((2, 3, 4),)) == ((2, 3, 4), (2, 3, 4))

    def test_a_size_that_is_shared_changes_everywhere(self) -> None:
        assert fitted([(64, 48), (48, 32)], ((100, 200),)) == ((100, 200), (200, 32))
        assert fitted([(8, 16), (16,), (16,)], ((4096, 512),)) == ((4096, 512), (512,), (512,))

    def test_sizes_of_one_stay(self) -> None:
        assert fitted([(1, 16), (1, 1)], ((9, 32),)) == ((9, 32), (1, 1))

    def test_a_shape_for_each_is_taken_as_it_is(self) -> None:
        assert fitted([(64, 48), (48, 32)], ((5, 6), (6, 7))) == ((5, 6), (6, 7))

    def test_equal_sizes_that_become_different_are_ambiguous_only_where_another_tensor_has_them(self) -> None:
        assert fitted([(8, 8), (3,)], ((4, 5),)) == ((4, 5), (3,))
        assert fitted([(8, 8), (8, 2)], ((4, 4),)) == ((4, 4), (4, 2))
        with pytest.raises(UsageError, match=r"could follow either[\s\S]*--shapes 8x8:8x2"):
            fitted([(8, 8), (8, 2)], ((4, 5),))

    def test_another_rank_or_number_is_refused_where_others_cannot_follow(self) -> None:
        with pytest.raises(UsageError, match=r"has 1 dimensions[\s\S]*--shapes 64x48:48x32") as caught:
            fitted([(64, 48), (48, 32)], ((100,),))
        assert "the shapes of the others of 64x48, 48x32 do not follow" in str(caught.value)
        with pytest.raises(UsageError, match="has 3 shapes, and a call has 2 tensors"):
            fitted([(64, 48), (48, 32)], ((1,), (2,), (3,)))
