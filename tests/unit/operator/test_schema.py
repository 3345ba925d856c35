"""A schema comes from a body's annotations, or an error says what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

import dotcu
from dotcu import errors
from dotcu.operator.schema import infer, split_name


def test_annotations_become_a_schema() -> None:
    def body(a: Tensor, n: int, alpha: float = 1.0) -> tuple[Tensor, Tensor]: ...

    signature = infer(body, name="lib::body", overload="", mutates_args=())
    assert str(signature) == "lib::body(Tensor a, SymInt n, float alpha=1.0) -> (Tensor, Tensor)"
    assert signature.returns == 2


def test_an_argument_that_is_written_is_marked() -> None:
    def body(a: Tensor, *, out: Tensor) -> None: ...

    signature = infer(body, name="lib::body", overload="out", mutates_args=("out",))
    assert signature.qualified_name == "lib::body.out"
    assert (signature.mutates, signature.keyword_only, signature.returns) == (("out",), ("out",), 0)


def test_a_missing_annotation_is_named() -> None:
    with pytest.raises(errors.SchemaError, match="Parameter a must have a type annotation"):
        infer(lambda a: a, name="lib::body", overload="", mutates_args=())


def test_a_type_that_torch_does_not_know_is_named() -> None:
    def body(a: dict) -> Tensor: ...  # type: ignore[type-arg]

    with pytest.raises(errors.SchemaError, match=r"Parameter a has unsupported type dict") as caught:
        infer(body, name="lib::body", overload="", mutates_args=())
    assert "def body(a: Tensor, alpha: float = 1.0) -> Tensor" in str(caught.value)


def test_a_body_that_writes_and_returns_is_refused() -> None:
    def body(a: Tensor) -> Tensor: ...

    with pytest.raises(errors.SchemaError, match="annotate the body `-> None`"):
        infer(body, name="lib::body", overload="", mutates_args=("a",))


def test_mutates_args_must_name_arguments() -> None:
    def body(a: Tensor) -> None: ...

    with pytest.raises(errors.SchemaError, match="'b', which is not an argument of body"):
        infer(body, name="lib::body", overload="", mutates_args=("b",))


def test_a_name_that_inductor_has_taken_is_refused() -> None:
    def body(a: Tensor, *, kernel: str = "fast") -> Tensor: ...

    def positional(a: Tensor, kernel: int) -> Tensor: ...

    with pytest.raises(errors.SchemaError, match="called kernel by name"):
        infer(body, name="lib::body", overload="", mutates_args=())
    assert infer(positional, name="lib::body", overload="", mutates_args=()).arguments == ("a", "kernel")


def test_an_operator_without_tensors_is_refused() -> None:
    def body(n: int) -> Tensor: ...

    with pytest.raises(errors.SchemaError, match="takes no tensor"):
        infer(body, name="lib::body", overload="", mutates_args=())


def test_an_operator_that_does_nothing_is_refused() -> None:
    def body(a: Tensor) -> None: ...

    with pytest.raises(errors.SchemaError, match="returns nothing and writes nothing"):
        infer(body, name="lib::body", overload="", mutates_args=())


def test_mutates_args_takes_names_and_not_text() -> None:
    def body(a: Tensor) -> None: ...

    with pytest.raises(errors.SchemaError, match=r"Type: mutates_args=\('a',\)"):
        infer(body, name="lib::body", overload="", mutates_args="a")


@pytest.mark.parametrize("name", ["add", "lib.add", "lib::", "lib::a::b", "lib::1a"])
def test_a_name_needs_a_namespace(name: str) -> None:
    with pytest.raises(errors.UsageError, match="namespace::name"):
        split_name(name)


def test_a_default_of_another_type_is_refused() -> None:
    def body(a: Tensor, n: int = "many") -> Tensor: ...  # type: ignore[assignment]

    with pytest.raises(errors.SchemaError, match=r"default of n is 'many', and it is annotated int"):
        infer(body, name="lib::body", overload="", mutates_args=())


def test_a_default_that_torch_cannot_spell_is_refused() -> None:
    def body(a: Tensor, n: int = 2**70) -> Tensor: ...

    with pytest.raises(errors.SchemaError, match="into a schema"):
        infer(body, name="lib::body", overload="", mutates_args=())


@pytest.mark.parametrize("name", ["aten::add", "prims::add"])
def test_torchs_own_namespaces_are_refused(name: str) -> None:
    with pytest.raises(errors.UsageError, match="is torch's own"):
        split_name(name)


def test_a_decorator_that_is_not_called_is_refused() -> None:
    with pytest.raises(errors.UsageError, match=r'Type: @dotcu\.op\("mylib::forgot"\)'):

        @dotcu.op
        def forgot(a: Tensor) -> Tensor: ...


def test_more_arguments_than_torch_takes_are_counted() -> None:
    def body(count: int) -> Callable[..., Tensor]:
        space: dict[str, Any] = {"Tensor": Tensor}
        exec(
            f"def f(x: Tensor, {', '.join(f'a{i}: int = 0' for i in range(count - 1))}) -> Tensor: ...", space
        )
        return space["f"]

    infer(body(64), name="schemas::many", overload="", mutates_args=())
    with pytest.raises(errors.SchemaError, match=r"takes 65 arguments, .* at most 64\.\n.*Sequence"):
        infer(body(65), name="schemas::many", overload="", mutates_args=())


@pytest.mark.parametrize(
    ("returns", "told"),
    [
        (int, "returns int"),
        (bool, "returns bool"),
        (float, "returns float"),
        (tuple[Tensor, int], "returns int"),
    ],
)
def test_a_result_that_is_no_tensor_is_refused_where_it_is_defined(returns: type, told: str) -> None:
    def body(a: Tensor) -> Tensor: ...

    body.__annotations__["return"] = returns
    with pytest.raises(errors.SchemaError, match=told):
        infer(body, name="lib::body", overload="", mutates_args=())


def test_a_tuple_of_one_is_refused_where_it_is_defined() -> None:
    def body(a: Tensor) -> tuple[Tensor]: ...

    with pytest.raises(errors.SchemaError, match="returns a tuple of one tensor"):
        infer(body, name="lib::body", overload="", mutates_args=())


@pytest.mark.parametrize(
    "name", ["default", "1x", "a b", "a.b", "out!", "__init__", "op", "overloads", "class"]
)
def test_an_odd_name_of_an_overload_is_refused(name: str) -> None:
    def body(a: Tensor) -> Tensor: ...

    with pytest.raises(errors.SchemaError, match="cannot name an overload"):
        infer(body, name="lib::body", overload=name, mutates_args=())
    assert infer(body, name="lib::body", overload="Scalar_out", mutates_args=()).overload == "Scalar_out"
