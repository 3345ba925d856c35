"""`dotcu.op.existing`: what is said of an operator that a library registered, and what is refused."""

from __future__ import annotations

import inspect
import pydoc
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.errors import SchemaError, UsageError
from dotcu.operator import ExistingOperator, Operator, register
from helpers.foreign_operators import SCALE, foreign, scaled


def test_it_calls_the_library() -> None:
    scale = dotcu.op.existing(foreign(CPU=scaled))
    assert isinstance(scale, Operator)
    assert scale.signature.text == "(Tensor x, float by) -> Tensor"
    assert torch.equal(scale(torch.ones(3), by=2.5), torch.full((3,), 2.5))
    with dotcu.simulate():
        assert torch.equal(scale(torch.ones(3), 2.0), torch.full((3,), 2.0))
    assert repr(scale) == f"<dotcu.op.existing {scale.signature}; a library computes it>"


def test_it_survives_torch_compile_and_opcheck_with_a_fake() -> None:
    scale = dotcu.op.existing(foreign(CPU=scaled))
    assert scale.lacks_fake
    scale.fake(lambda x, by: torch.empty_like(x))
    assert not scale.lacks_fake
    compiled = torch.compile(lambda x: scale(x, 2.0) + 1, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    torch.library.opcheck(scale.torch_op, (torch.ones(3), 2.0))


def test_a_backward_gives_its_gradient_and_is_recorded_under_torch_compile() -> None:
    scale = dotcu.op.existing(foreign(CPU=scaled))
    scale.fake(lambda x, by: torch.empty_like(x))
    assert not scale.has_backward

    @scale.setup_context
    def _(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.by = inputs[1]

    @scale.backward
    def _(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.by, None

    assert scale.has_backward
    for call in (scale, torch.compile(scale.__call__, backend="aot_eager", fullgraph=True)):
        x = torch.ones(3, requires_grad=True)
        call(x, 2.5).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2.5)) if x.grad is not None else False


def test_a_backward_that_could_not_be_registered_is_registered_by_a_second_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: register.Registration, key: str, kernel: Any) -> None:
        raise RuntimeError("not now")

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return 2.5 * grad, None

    scale = dotcu.op.existing(foreign(CPU=scaled))
    with monkeypatch.context() as patched:
        patched.setattr(register.Registration, "implement", fails)
        with pytest.raises(RuntimeError, match="not now"):
            scale.backward(backward)
    scale.backward(backward)
    x = torch.ones(3, requires_grad=True)
    scale(x, 2.5).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((3,), 2.5))


def test_a_batching_rule_and_autocast_are_torchs_from_then_on() -> None:
    scale = dotcu.op.existing(foreign(CPU=scaled))
    scale.vmap(lambda info, in_dims, x, by: (scale(x, by), in_dims[0]))
    scale.autocast(torch.bfloat16)
    assert scale.has_vmap
    x = torch.randn(3, 4)
    assert torch.equal(torch.func.vmap(lambda row: scale(row, 2.0))(x), 2 * x)
    with torch.autocast("cpu", torch.bfloat16):
        assert scale(x, 2.0).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("fake", "Meta"),
        ("backward", "Autograd"),
        ("backward", "AutogradCPU"),
        ("vmap", "FuncTorchBatched"),
        ("fake", "CompositeImplicitAutograd"),
        ("backward", "CompositeImplicitAutograd"),
    ],
)
def test_what_the_library_has_of_its_own_is_not_replaced(method: str, key: str) -> None:
    scale = dotcu.op.existing(foreign(**{key: scaled}))
    with pytest.raises(UsageError, match=rf"has a [\w ]+ already: .*\n.*@scale\.{method} decorates"):
        getattr(scale, method)(lambda *args: None)


def test_a_rule_for_autocast_of_the_library_is_not_replaced() -> None:
    scale = dotcu.op.existing(foreign(CPU=scaled, AutocastCPU=scaled))
    with pytest.raises(UsageError, match="rule for autocast already"):
        scale.autocast(torch.bfloat16)


def test_its_module_may_describe_it_again() -> None:
    name = foreign(CPU=scaled)
    for shape in ((3,), (4,)):
        scale = dotcu.op.existing(name)
        scale.fake(lambda x, by, shape=shape: x.new_empty(shape))
        assert scale(torch.empty(9, device="meta"), 2.0).shape == shape


def test_another_module_cannot_give_a_second_fake() -> None:
    name = foreign(CPU=scaled)
    dotcu.op.existing(name).fake(lambda x, by: torch.empty_like(x))
    other = ModuleType("another_module")
    exec(f"import dotcu; scale = dotcu.op.existing({name!r})", vars(other))
    with pytest.raises(UsageError, match="or another module, registered it"):
        other.scale.fake(lambda x, by: torch.empty_like(x))
    register.withdraw_of([__name__])  # as `dotcu watch` does before it loads a file again
    other.scale.fake(lambda x, by: torch.empty_like(x))
    register.withdraw_of(["another_module"])
    assert other.scale.lacks_fake


def test_an_overload_is_named_as_torch_names_it() -> None:
    def write(x: Tensor, *, out: Tensor) -> Tensor:
        return out.copy_(x * 2)

    out = dotcu.op.existing(foreign("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", CPU=write))
    assert (out.signature.overload, out.signature.outs, out.signature.returns) == ("out", ("out",), 0)
    into = torch.empty(3)
    assert out(torch.ones(3), out=into) is not None
    assert torch.equal(into, torch.full((3,), 2.0))


def test_the_tags_are_the_librarys_and_those_that_were_given() -> None:
    scale = dotcu.op.existing(foreign(CPU=scaled), tags=(torch.Tag.nondeterministic_bitwise,))
    assert torch.Tag.nondeterministic_bitwise in scale.tags
    assert torch.Tag.nondeterministic_bitwise not in scale.torch_op.tags


# ------------------------------------------------------------------ what is refused


def test_a_library_that_is_not_loaded() -> None:
    with pytest.raises(UsageError, match=r"nor anything else of 'nowhere'\.\nLoad the library first: dotcu"):
        dotcu.op.existing("nowhere::scale")


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    name = foreign(CPU=scaled)
    with pytest.raises(UsageError, match=rf'there is {name}\.\nType: dotcu.op.existing\("{name}"\)'):
        dotcu.op.existing(name.replace("scale", "sclae"))


def test_an_operator_of_dotcu_op() -> None:
    @dotcu.op("existing::own")
    def own(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    with pytest.raises(
        UsageError, match=r"defined by @dotcu.op, at .*test_existing.py:\d+\.\nUse the object"
    ):
        dotcu.op.existing(own.qualified_name)


def test_an_overload_that_is_not_there() -> None:
    name = foreign("add.Scalar(Tensor x, float y) -> Tensor", CPU=scaled)
    with pytest.raises(UsageError, match=r"no overload 'Tensor'; it has (\w+::add\.Scalar)\.\nType: .*\1"):
        dotcu.op.existing(f"{name.partition('.')[0]}.Tensor")
    with pytest.raises(UsageError, match=r"no overload without a name; it has \w+::add\.Scalar\."):
        dotcu.op.existing(name.partition(".")[0])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("count(Tensor x) -> int", "only tensors can be compared"),
        ("view(Tensor(a) x) -> Tensor(a)", "a view of an argument"),
        ("make(int n) -> Tensor", "takes no tensor"),
        ("nothing(Tensor x) -> ()", "returns nothing and writes nothing"),
        ("both(Tensor(a!) x) -> (Tensor(a!), Tensor)", "both written arguments and new tensors"),
    ],
)
def test_a_schema_whose_calls_cannot_be_compared(schema: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        dotcu.op.existing(foreign(schema))


@pytest.mark.parametrize("name", ["scale", "a::b::c", "mylib::", "mylib::scale.", 3, len])
def test_a_name_of_another_form(name: Any) -> None:
    with pytest.raises(
        UsageError, match=r'dotcu\.op\.existing\(.*\nType: dotcu.op.existing\("mylib::scale"\)'
    ):
        dotcu.op.existing(name)


def test_dtypes_and_tolerance_of_another_form() -> None:
    name = foreign(CPU=scaled)
    with pytest.raises(UsageError, match=r"dotcu\.op\.existing\(.*dtypes takes several"):
        dotcu.op.existing(name, dtypes=torch.float32)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"dotcu\.op\.existing\(.*tolerance takes"):
        dotcu.op.existing(name, tolerance=2.0)


def test_a_backward_of_what_writes_its_arguments() -> None:
    double = dotcu.op.existing(foreign("double_(Tensor(a!) x) -> ()", CPU=lambda x: None))
    with pytest.raises(SchemaError, match="writes its arguments, so it cannot have a backward"):
        double.backward(lambda ctx: None)


# ------------------------------------------------------------------ dotcu.op itself


def test_help_reports_both_uses() -> None:
    text = pydoc.render_doc(dotcu.op, renderer=pydoc.plaintext)
    assert "Make a torch operator of a function" in text
    assert " existing(" in text
    assert "Describe an operator that a library has registered" in text
    assert next(iter(inspect.signature(dotcu.op).parameters)) == "name"


def test_it_is_known_where_it_was_described() -> None:
    scale = dotcu.op.existing(foreign(SCALE, CPU=scaled))
    assert isinstance(scale, ExistingOperator)
    assert sys.modules[scale.__module__] is sys.modules[__name__]
    assert scale.__name__ == "scale"
    assert scale.library is None
