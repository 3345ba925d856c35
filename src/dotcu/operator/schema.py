"""The schema of an operator, from the annotations of its body."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dotcu import torch_compat
from dotcu.errors import SchemaError, UsageError

OperatorBody = Callable[..., Any]

_NAME = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)", re.ASCII)
_QUALIFIED_NAME = re.compile(rf"{_NAME.pattern}(?:\.(\w+))?", re.ASCII)
_OVERLOAD = re.compile(r"[A-Za-z]\w*", re.ASCII)
_RESERVED = {"aten", "prim", "prims"}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The arguments and results of one overload.

    Attributes:
        namespace: `mylib` of `mylib::scale_add.out`.
        name: `scale_add` of `mylib::scale_add.out`.
        overload: `out` of `mylib::scale_add.out`; empty for the default overload.
        text: The schema without the name: `(Tensor a, Tensor b) -> Tensor`.
        arguments: The names of all arguments, in order.
        tensors: The names of those that are tensors or lists of them, in order.
        mutates: The names of the arguments that a call writes, in the schema's order.
        keyword_only: The names of the arguments that are given by keyword only, in order.
        returns: The number of values that a call returns, besides written arguments.
        lists: For each of them, True if it is a list of tensors.
    """

    namespace: str
    name: str
    overload: str
    text: str
    arguments: tuple[str, ...]
    tensors: tuple[str, ...]
    mutates: tuple[str, ...]
    keyword_only: tuple[str, ...]
    returns: int
    lists: tuple[bool, ...]

    @property
    def outs(self) -> tuple[str, ...]:
        """The arguments that a call writes and that are given by keyword only, as torch's `out` is."""
        return tuple(name for name in self.mutates if name in self.keyword_only)

    def written(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of a call that it writes."""
        values = {**dict(zip(self.arguments, args, strict=False)), **keywords}
        return tuple(values[name] for name in self.mutates if name in values)

    @property
    def packet_name(self) -> str:
        """`mylib::scale_add`, whichever the overload."""
        return f"{self.namespace}::{self.name}"

    @property
    def qualified_name(self) -> str:
        """`mylib::scale_add.out`, or `mylib::scale_add` for the default overload."""
        return f"{self.packet_name}.{self.overload}" if self.overload else self.packet_name

    def __str__(self) -> str:
        return self.qualified_name + self.text


MAX_ARGUMENTS = 64
"""The most that an operator of torch takes, as native code does. Source: torch 2.13, its dispatcher."""

_KINDS = {
    "Tensor": 1, "int": 4, "SymInt": 4, "float": 8, "number": 12, "bool": 16, "str": 32, "ScalarType": 64,
    "Device": 128,
}  # fmt: skip
_NONE = 2
"""The kinds of value that the dispatcher hands over unchanged. Native code has the same numbers."""


def kinds_of(parsed: Any) -> tuple[tuple[int, bool], ...]:
    """Return for each argument of a `FunctionSchema` the kinds of its values, and whether it may be left out.

    The kinds are a set of bits; 0 for an argument whose values the dispatcher may convert.
    """
    found = []
    for argument in parsed.arguments:
        text = str(argument.real_type)
        optional = text.startswith("Optional[")
        kind = _KINDS.get(text.removeprefix("Optional[").removesuffix("]") if optional else text, 0)
        found.append((kind | _NONE if optional and kind else kind, argument.has_default_value()))
    return tuple(found)


def defaults_of(body: OperatorBody) -> dict[str, Any]:
    """Return the defaults of a body: the schema has a dtype's as a number, which Python does not take."""
    parameters = inspect.signature(body).parameters
    return {name: one.default for name, one in parameters.items() if one.default is not one.empty}


def split_name(name: Any) -> tuple[str, str]:
    """Split `mylib::scale_add` into its namespace and name.

    Raises:
        UsageError: The name has another form.
    """
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        word = name if isinstance(name, str) else getattr(name, "__name__", "")
        raise UsageError(
            f'dotcu.op({name!r}): an operator\'s name is "namespace::name", both ASCII identifiers.\n'
            f'Type: @dotcu.op("mylib::{re.sub(r"[^A-Za-z0-9_]", "_", word) or "my_op"}")'
        )
    if match[1] in _RESERVED:
        raise UsageError(
            f"dotcu.op({name!r}): the namespace {match[1]} is torch's own.\n"
            f'Type: @dotcu.op("mylib::{match[2]}")'
        )
    return match[1], match[2]


def infer(body: OperatorBody, *, name: str, overload: str, mutates_args: Sequence[str]) -> Signature:
    """Return the signature of a body, from its annotations.

    Raises:
        SchemaError: An annotation is missing or has no schema type in torch, or a body that writes
            its arguments also returns something, or it takes too many.
    """
    namespace, short = split_name(name)
    if isinstance(mutates_args, str):
        raise SchemaError(
            f"{name}: mutates_args={mutates_args!r} is text; it takes the names of arguments.\n"
            f"Type: mutates_args=({mutates_args!r},)"
        )
    unknown = [arg for arg in mutates_args if arg not in inspect.signature(body).parameters]
    if unknown:
        raise SchemaError(
            f"{name}: mutates_args names {unknown[0]!r}, which is not an argument of "
            f"{body.__name__}{inspect.signature(body)}."
        )
    try:
        text = torch.library.infer_schema(body, mutates_args=tuple(mutates_args))
        parsed = torch_compat.parse_schema(short + text)
    except (ValueError, NameError, TypeError, RuntimeError, IndexError) as error:
        raise SchemaError(_explain(body, name, mutates_args, str(error))) from error
    _require_few(name, parsed)
    _require_overload(name, overload)
    _require_tensors(f"{name}{text}", text, parsed, body)
    _require_defaults(f"{name}{text}", parsed)
    _require_names(f"{name}{text}", parsed)
    if mutates_args and parsed.returns:
        raise SchemaError(
            f"{name}: the body writes {', '.join(mutates_args)} and also returns a value "
            f"(its schema would be {text}).\n"
            "An operator that writes its arguments returns nothing: annotate the body `-> None`."
        )
    _require_use(f"{name}{text}", parsed)
    return _signature((namespace, short, overload), text, parsed)


def _require_few(name: str, parsed: Any) -> None:
    if len(parsed.arguments) > MAX_ARGUMENTS:
        raise SchemaError(
            f"{name} takes {len(parsed.arguments)} arguments, and torch registers operators of at most "
            f"{MAX_ARGUMENTS}.\nPass several as one: xs: Sequence[Tensor], or numbers: Sequence[int]."
        )


_RESERVED_OVERLOADS = frozenset({"default", *dir(type(torch.ops.aten.add))})
"""Attributes of what `torch.ops` gives for a name, and torch's own name for an overload without one."""


def _is_overload(name: str) -> bool:
    named = _OVERLOAD.fullmatch(name) and not keyword.iskeyword(name)
    return bool(named) and name not in _RESERVED_OVERLOADS


def _require_overload(name: str, overload: str) -> None:
    if overload and not _is_overload(overload):
        raise SchemaError(
            f"{name}: {overload!r} cannot name an overload.\n"
            "A name has ASCII letters, digits and underscores, begins with a letter, is no word of Python, "
            'and is no attribute of torch.ops.mylib.op, such as `default` or `op`: @op.overload("Scalar")'
        )


def _require_tensors(schema: str, text: str, parsed: Any, body: OperatorBody) -> None:
    """Raise for results that torch could pass on, and that no kernel writes."""
    others = [str(value.type) for value in parsed.returns if "Tensor" not in str(value.type)]
    if others:
        raise SchemaError(
            f"{schema} returns {', '.join(others)}, and an operator of dotcu returns tensors.\n"
            f"Return a tensor, which no one has to wait for: def {body.__name__}(...) -> Tensor. "
            "The caller may ask for its .item()."
        )
    if text.endswith("-> ((Tensor))"):
        raise SchemaError(
            f"{schema} returns a tuple of one tensor.\n"
            f"Return the tensor itself: def {body.__name__}(...) -> Tensor"
        )


_TAKEN = frozenset({"cls", "kernel"})
"""Names of the parameters of TorchInductor's `FallbackKernel.create`, which takes defaults by name.

Source: torch 2.11 and 2.13, torch/_inductor/ir.py."""


def _require_names(schema: str, parsed: Any) -> None:
    for argument in parsed.arguments:
        if argument.name in _TAKEN and (argument.kwarg_only or argument.has_default_value()):
            raise SchemaError(
                f"{schema}: torch.compile cannot pass an argument called {argument.name} by name, since "
                "TorchInductor has a parameter of that name.\n"
                f"Call it otherwise: {argument.name}_name"
            )


def _signature(names: tuple[str, str, str], text: str, parsed: Any) -> Signature:
    namespace, name, overload = names
    returned = [value for value in parsed.returns if not _is_written(value)]
    return Signature(
        namespace=namespace,
        name=name,
        overload=overload,
        text=text,
        arguments=tuple(a.name for a in parsed.arguments),
        tensors=tuple(a.name for a in parsed.arguments if "Tensor" in str(a.type)),
        mutates=tuple(a.name for a in parsed.arguments if _is_written(a)),
        keyword_only=tuple(a.name for a in parsed.arguments if a.kwarg_only),
        returns=len(returned),
        lists=tuple(str(value.type).startswith("List") or "[" in str(value.type) for value in returned),
    )


def _is_written(value: Any) -> bool:
    return value.alias_info is not None and bool(value.alias_info.is_write)


_TAKES = {"int": (int,), "float": (float, int), "bool": (bool,), "str": (str,)}


def _require_defaults(schema: str, parsed: Any) -> None:
    """Raise for a default of another type than the argument's, which torch would accept."""
    for argument in parsed.arguments:
        kind, default = str(argument.type), argument.default_value
        if not argument.has_default_value() or kind not in _TAKES:
            continue
        if not isinstance(default, _TAKES[kind]) or (isinstance(default, bool) and kind != "bool"):
            raise SchemaError(
                f"{schema}: the default of {argument.name} is {default!r}, and it is annotated {kind}.\n"
                f"Give it a default of that type: {argument.name}: {kind} = {_TAKES[kind][0]()!r}"
            )


def _require_use(schema: str, parsed: Any) -> None:
    if not any("Tensor" in str(argument.type) for argument in parsed.arguments):
        raise SchemaError(
            f"{schema} takes no tensor, so its device is unknown.\n"
            "Add one, if only for its device: like: Tensor."
        )
    if not parsed.returns and not any(map(_is_written, parsed.arguments)):
        raise SchemaError(
            f"{schema} returns nothing and writes nothing.\n"
            'Annotate what it returns (-> Tensor), or name what it writes: mutates_args=("out",).'
        )


# Operators of other libraries.


def split_qualified_name(name: Any) -> tuple[str, str, str]:
    """Split `mylib::scale_add.out` into its namespace, name and overload, which may be empty.

    Raises:
        UsageError: The name has another form.
    """
    match = _QUALIFIED_NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(
            f'dotcu.op.existing({name!r}): an operator\'s name is "namespace::name" or '
            '"namespace::name.overload", as the library registered it.\n'
            'Type: dotcu.op.existing("mylib::scale")'
        )
    overload = match[3] or ""
    return match[1], match[2], "" if overload == "default" else overload


def read(schema: Any) -> Signature:
    """Return the signature of another library's operator, from its `torch.FunctionSchema`.

    Raises:
        SchemaError: A result cannot be checked: it is a view of an argument, or not a tensor.
    """
    text = str(schema)
    _require_use(text, schema)
    _require_comparable(text, schema.returns)
    namespace, _, name = str(schema.name).partition("::")
    return _signature((namespace, name, str(schema.overload_name)), text[text.index("(") :], schema)


def _require_comparable(schema: str, returns: Sequence[Any]) -> None:
    for value in returns:
        if "Tensor" not in str(value.type):
            raise SchemaError(
                f"{schema} returns {value.type}, and only tensors can be compared with a reference.\n"
                "Describe an operator that returns tensors, or writes them."
            )
        if value.alias_info is not None and not value.alias_info.is_write:
            raise SchemaError(
                f"{schema} returns a view of an argument, which computes nothing.\n"
                "Describe an operator that returns new tensors, or writes its arguments."
            )
    if len({_is_written(value) for value in returns}) > 1:
        raise SchemaError(
            f"{schema} returns both written arguments and new tensors, which dotcu cannot distinguish.\n"
            'Return only the new ones: m.def("name(Tensor(a!) x) -> Tensor")'
        )


def _explain(body: OperatorBody, name: str, mutates_args: Sequence[str], reason: str) -> str:
    returns = "None" if mutates_args else "Tensor"
    reason = re.split(
        r"\s+Got func|\s+The valid types|\s+Please file", reason.split("infer_schema(func): ")[-1]
    )[0]
    happened = (
        f"{name}: torch cannot turn the annotations of {body.__name__}{inspect.signature(body)} "
        f"into a schema: {reason.strip()}\n"
    )
    for each in inspect.signature(body).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            return f"{happened}Name each argument; several tensors are one: {each.name}: Sequence[Tensor]"
        if isinstance(each.default, (list, dict, set, torch.Tensor)):
            return (
                f"{happened}A default is a number, text or None: {each.name}: Optional[...] = None, and "
                f"`if {each.name} is None` in the body."
            )
    return happened + (
        "Annotate every argument with Tensor, Optional[Tensor], Sequence[Tensor], int, float, bool, "
        "str, torch.dtype, torch.device or a Sequence of numbers, and the result with Tensor, a tuple "
        f"of Tensors, or None: def {body.__name__}(a: Tensor, alpha: float = 1.0) -> {returns}: ..."
    )
