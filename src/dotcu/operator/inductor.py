"""Inductor's choice among configurations: `torch.compile` times them in its graph.

Every operator with configurations has a second one in the dispatcher, `mylib::scale_configured`, that takes
a configuration as text. Inductor puts it in the place of the first. It is there from the declaration on: a
graph of Inductor's cache may call it in a process that hands nothing over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from importlib import import_module
from itertools import dropwhile
from typing import Any

import torch

from dotcu.errors import EnvironmentFault, UsageError
from dotcu.operator import execution, register
from dotcu.operator.configurations import Configurations, gpu_at_hand, relatives, values_of, values_text
from dotcu.operator.overload import Overload
from dotcu.operator.schema import OperatorBody, Signature

_MODULE = "torch._inductor.kernel.custom_op"


def define_configured(overload: Overload, body: OperatorBody, tunable: Configurations) -> None:
    """Define the operator that takes a configuration as text; none for what Inductor does not choose for."""
    if _unfit(overload.signature):
        return
    registration = register.define(_configured(overload.signature), register.Definition.of(body), tags=())

    def on_cuda(*args: Any, configuration: str, **kwargs: Any) -> Any:
        def configured(*args: Any, **kwargs: Any) -> Any:
            with tunable.using(_of_text(tunable, configuration)):
                return body(*args, **kwargs)

        return execution.compute(overload.signature, configured, execution.plain(args), kwargs)

    def on_cpu(*args: Any, configuration: str, **kwargs: Any) -> Any:
        with tunable.trying(_of_text(tunable, configuration)):
            return overload.torch_op(*args, **kwargs)

    def on_fake(*args: Any, configuration: str, **kwargs: Any) -> Any:
        return overload.torch_op(*args, **kwargs)

    registration.implement("CUDA", on_cuda)
    registration.implement("CPU", on_cpu)
    registration.implement_fake(on_fake)


def hand_over(overload: Overload, tunable: Configurations | None, among: Iterable[Any] | None) -> None:
    """Register configurations with Inductor; see `LaunchingOverload.autotune_in_inductor`."""
    name = overload.qualified_name
    if tunable is None:
        raise UsageError(
            f"{name} declares no configurations, so Inductor has nothing to choose.\n"
            f"Declare them below its body: @{overload.__name__}.configurations"
        )
    if unfit := _unfit(overload.signature):
        raise UsageError(
            f"{name} {unfit}, and Inductor chooses only for operators that return one tensor.\n"
            f"Tune it on a GPU instead: dotcu tune FILE:{overload.__name__}"
        )
    chosen = _checked(tunable) if among is None else list(among)
    for each in chosen:
        if each not in tunable.space:
            raise UsageError(
                f"{name}: {each!r} is none of its configurations.\nPass some of: {tunable.space[:3]} ..."
            )
    try:
        of_torch: Any = import_module(_MODULE)
        hand, config = of_torch.register_custom_op_autotuning, of_torch.CustomOpConfig
    except (ImportError, AttributeError) as error:
        raise EnvironmentFault(
            f"torch {torch.__version__} has no {_MODULE}.register_custom_op_autotuning, by which Inductor "
            f"chooses among configurations.\n"
            'Type: pip install --upgrade "torch>=2.11", or leave the choice to dotcu tune.'
        ) from error
    operator = register.packet(_configured(overload.signature)).default
    calls = [_call(operator, _text(each)) for each in chosen]
    try:
        hand(overload.torch_op, configs=[config(call) for call in calls])
    except TypeError:  # torch 2.11 takes no operator of the dispatcher alone
        lowerings = import_module("torch._inductor.lowering").lowerings
        lowerings[overload.torch_op] = _choosing(of_torch, name, [*calls, _call(operator, "")])
    else:
        lowerings = import_module("torch._inductor.lowering").user_lowerings
        lowerings[overload.torch_op] = _of_leading_tensors(lowerings[overload.torch_op])


def _of_leading_tensors(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Make a lowering that chooses where a call's tensors come first, and leaves other calls as they are.

    Inductor passes tensors by position and the rest by name: of `f(x, None, y)`, y where None has been.
    Source: torch 2.12 and 2.13, torch/_inductor/kernel/custom_op.py, _extract_tensor_inputs; graph.py lowers
    as ever what a lowering of a user returns None for.
    """

    def lower(*args: Any, **kwargs: Any) -> Any:
        others = [*dropwhile(_is_tensor, args), *kwargs.values()]
        return None if any(map(_is_tensor, others)) else choose(*args, **kwargs)

    return lower


def _choosing(of_torch: Any, name: str, calls: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return what Inductor of torch 2.11 puts in an operator's place: the fastest call.

    Its own, for a torch.library.custom_op, names each call by the arguments that are no tensors, which does
    not compile for -1.0, and compares with the operator as it is, which it then calls without them.
    """

    def choose(*args: Any, **kwargs: Any) -> Any:
        def of_tensors(call: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(call)
            def with_the_rest(*tensors: Any) -> Any:
                rest = iter(tensors)
                values = [next(rest) if _is_tensor(each) else each for each in (*args, *kwargs.values())]
                return call(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

            return with_the_rest

        inputs = list(filter(_is_tensor, (*args, *kwargs.values())))
        choices = list(map(of_tensors, calls))
        return of_torch.autotune_custom_op(f"{name}_autotuned", choices, inputs, [{} for _ in calls], None)

    return choose


def _is_tensor(value: Any) -> bool:
    """Return whether an argument of a lowering is a tensor."""
    ir: Any = import_module("torch._inductor.ir")
    return isinstance(value, (ir.TensorBox, ir.Buffer))


def _checked(tunable: Configurations) -> list[Any]:
    """Return the default and those that the file has for the GPU at hand; all if it has none."""
    gpu = gpu_at_hand(torch.cuda.current_device() if torch.cuda.is_available() else None)
    tables = tunable.tables()
    of_file = [each for near in relatives(gpu, tables)[:1] for each in tables[near].values()]
    return list(dict.fromkeys((tunable.space[0], *of_file))) if of_file else list(tunable.space)


def _unfit(signature: Signature) -> str:
    """Return why Inductor cannot choose for an operator; empty if it can."""
    if signature.mutates:
        return "writes its arguments"
    return f"returns {signature.returns} values" if signature.returns != 1 or any(signature.lists) else ""


def _configured(signature: Signature) -> Signature:
    """Return the signature with a configuration as text."""
    arguments, _, returns = signature.text.rpartition(") -> ")
    star = "" if signature.keyword_only else "*, "
    name = "_".join(filter(None, (signature.name, signature.overload, "configured")))
    return replace(
        signature, name=name, overload="", text=f"{arguments}, {star}str configuration) -> {returns}",
        arguments=(*signature.arguments, "configuration"),
        keyword_only=(*signature.keyword_only, "configuration"),
    )  # fmt: skip


def _text(configuration: Any) -> str:
    return values_text(values_of(configuration))


def _of_text(tunable: Configurations, text: str) -> Any:
    """Return the configuration of a text; None, for the look-up, if it is no longer declared."""
    return next((each for each in tunable.space if _text(each) == text), None)


def _call(operator: Any, configuration: str) -> Callable[..., Any]:
    """Return a function that calls an operator with a configuration, and is named so for Inductor."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs, configuration=configuration)

    call.__name__ = call.__qualname__ = re.sub(r"\W+", "_", f"{operator} {configuration}")
    return call
