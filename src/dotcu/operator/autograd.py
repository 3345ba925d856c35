"""Derivatives of an operator: its backward where it has one, an error if it has none.

Every overload gets a kernel for the Autograd key. It never lets a gradient vanish:

- with a backward, the call is recorded; the backward may call operators, never kernels, so
  that a second derivative sees it;
- without one, the call is recorded as well, and differentiating it raises;
- an overload that writes its arguments refuses arguments that require a gradient, as
  torch's own `out=` functions do, and counts the write in their version;
- forward mode, which no operator has, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dotcu import torch_compat
from dotcu.errors import GradientError
from dotcu.kernel.arguments.memory import count_writes
from dotcu.kernel.launch_policy import LaunchPolicy, Scope, scope_variable
from dotcu.operator.schema import Signature

Backward = Callable[..., Any]
SetupContext = Callable[..., None]

_OF_NOTHING_SAVED = (IndexError, ValueError, AttributeError)
"""What Python raises for ctx.saved_tensors[0], for `x, y = ctx.saved_tensors`, and for ctx.alpha."""


class _Call:
    """One recorded call: the operator, and the nesting of its flat inputs and outputs.

    The inputs are all arguments, also those by keyword: autograd must see every tensor.
    """

    def __init__(self, operator: Any, inputs: TreeSpec) -> None:
        self.operator = operator
        self.inputs = inputs
        self.outputs: TreeSpec | None = None

    def run(self, flat: Sequence[Any]) -> Any:
        """Call below autograd."""
        args, keywords = tree_unflatten(flat, self.inputs)
        with torch_compat.below_autograd():
            return self.operator(*args, **keywords)

    def arguments(self, flat: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return every argument of the schema: the positional ones, and the keyword-only ones by name."""
        args, keywords = tree_unflatten(flat, self.inputs)
        schema = self.operator._schema.arguments  # the dispatcher leaves out what equals its default
        by_position = [argument for argument in schema if not argument.kwarg_only]
        positions = (*args, *(argument.default_value for argument in by_position[len(args) :]))
        return positions, {a.name: keywords.get(a.name, a.default_value) for a in schema if a.kwarg_only}


def kernel(operator: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Make the Autograd kernel of one overload."""
    signature = recorder.signature

    def autograd(*args: Any, **keywords: Any) -> Any:
        tensors = [*_tensors(args), *_tensors(tuple(keywords.values()))]
        if torch_compat.dual_level():
            _refuse_forward_mode(signature, tensors)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            if not signature.mutates:
                return recorder.record(operator, args, keywords)
            raise GradientError(
                f"{signature} writes {', '.join(signature.mutates)}, which has no gradient, but an argument "
                "requires one.\nCall it under `with torch.no_grad():`, or use the overload that returns a "
                "result."
            )
        with torch_compat.below_autograd():
            result = operator(*args, **keywords)
        if signature.mutates:
            count_writes(_tensors(signature.written(args, keywords)))
        return result

    return autograd


class Recorder:
    """The autograd functions of one overload: outside torch.func's transforms, and for one level of them.

    Under torch.func, a kernel for the Autograd key sees one transform at a time and records for that one.

    Args:
        derivative: Returns the backward in force and the function that saves for it, as
            torch.library.register_autograd takes them. Asked at each recorded call, since they may be set
            after the operator was defined.
    """

    def __init__(
        self, signature: Signature, derivative: Callable[[], tuple[Backward | None, SetupContext | None]]
    ) -> None:
        self.signature, self.derivative = signature, derivative
        self._name = f"{signature.namespace}_{signature.name}_{signature.overload}"
        positional = len(signature.arguments) - len(signature.keyword_only)
        self._in_setup, self._in_backward = (
            Scope(policy=LaunchPolicy.REFUSE, operator=signature.qualified_name, reason=reason)
            for reason in (f"the setup_context of {signature.name}", f"the backward of {signature.name}")
        )

        def forward(call: _Call, *flat: Any) -> Any:
            outputs, call.outputs = tree_flatten(call.run(flat))
            return tuple(outputs)

        def forward_one_level(call: _Call, *flat: Any) -> Any:
            # The transforms under this one record as well; autograd.Function switched that off.
            with torch.enable_grad(), torch_compat.forward_mode(True):
                return forward(call, *flat)

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            call, *flat = inputs
            ctx.dotcu_call = call
            keep = derivative()[1]
            if keep is None:
                return
            given, keywords = call.arguments(flat)
            extra = {"keyword_only_inputs": keywords} if signature.keyword_only else {}
            token = scope_variable.set(self._in_setup)
            try:
                keep(ctx=ctx, inputs=given, output=tree_unflatten(output, call.outputs), **extra)
            finally:
                scope_variable.reset(token)

        def backward(ctx: Any, *grads: Any) -> Any:
            call, needs = ctx.dotcu_call, ctx.needs_input_grad
            given, _ = tree_unflatten(needs[1:], call.inputs)
            ctx.needs_input_grad = (*given, *(False,) * (positional - len(given)))
            try:
                result = self._gradients(ctx, tree_unflatten(grads, call.outputs))
            finally:
                ctx.needs_input_grad = needs
            return (None, *_flat_grads(signature, result, call.inputs))

        rest = {"setup_context": setup_context, "backward": backward}
        self._plain = _function(self._name, torch.autograd.Function, forward=forward, **rest)
        self._one_level = _function(
            self._name, torch_compat.one_level_function(), forward=forward_one_level, **rest
        )

    def record(self, operator: Callable[..., Any], args: Any, keywords: dict[str, Any]) -> Any:
        """Call an operator, and record the call; `keywords` are the keyword-only arguments."""
        flat, spec = tree_flatten((args, keywords))
        call = _Call(operator, spec)
        if torch_compat.transforms():
            with torch_compat.recording_one_level():
                outputs = self._one_level.apply(call, *flat)
        else:
            outputs = self._plain.apply(call, *flat)
        assert call.outputs is not None
        return tree_unflatten(outputs, call.outputs)

    def record_call(self, operator: Callable[..., Any], /, *args: Any, **keywords: Any) -> Any:
        """Record a call that is written as one."""
        return self.record(operator, args, keywords)

    def of_plain_tensors(
        self, compute: Callable[..., Any], defaults: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """Make the function that records a call outside of transforms, without lists among its values.

        This leaves out what `record` does for nested values. `compute` computes a call below autograd.
        """
        signature, derivative = self.signature, self.derivative
        names = signature.keyword_only
        count = len(signature.arguments) - len(names)
        by_position = signature.arguments[:count]
        spec = tree_flatten(((0,) * count, dict.fromkeys(names, 0)))[1]
        rest = (None,) * len(names)
        enter, leave = scope_variable.set, scope_variable.reset
        in_setup, in_backward = self._in_setup, self._in_backward

        def forward(ctx: Any, *flat: Any) -> Any:
            by_keyword = dict(zip(names, flat[count:], strict=True)) if names else {}
            given = flat[:count]
            result = compute(*given, **by_keyword)
            keep = derivative()[1]
            if keep is None:
                return result
            extra = {"keyword_only_inputs": by_keyword} if names else {}
            token = enter(in_setup)
            try:
                keep(ctx=ctx, inputs=given, output=result, **extra)
            finally:
                leave(token)
            return result

        def backward(ctx: Any, *grads: Any) -> Any:
            if names:
                ctx.needs_input_grad = ctx.needs_input_grad[:count]
            differentiate = derivative()[0] or self._refuse
            token = enter(in_backward)
            try:
                result = differentiate(ctx, *grads)
            except _OF_NOTHING_SAVED as error:
                self._explain(error)
                raise
            finally:
                leave(token)
            if type(result) is not tuple:
                result = (result,)
            if len(result) != count or not all(
                grad is None or isinstance(grad, torch.Tensor) for grad in result
            ):
                return tuple(_flat_grads(signature, result, spec))
            return result + rest

        apply = _function(self._name, torch.autograd.Function, forward=forward, backward=backward).apply

        def record(*args: Any, **keywords: Any) -> Any:
            if len(args) == count and not names:
                return apply(*args)
            left = (*by_position[len(args) :], *names)
            return apply(*args, *(keywords[name] if name in keywords else defaults[name] for name in left))

        return record

    def _gradients(self, ctx: Any, grads: Any) -> tuple[Any, ...]:
        """Call the overload's own backward. It must not launch: no second derivative would see that."""
        token = scope_variable.set(self._in_backward)
        try:
            differentiate = self.derivative()[0] or self._refuse
            result = differentiate(ctx, *(grads if isinstance(grads, tuple) else (grads,)))
        except _OF_NOTHING_SAVED as error:
            self._explain(error)
            raise
        finally:
            scope_variable.reset(token)
        return result if isinstance(result, tuple) else (result,)

    def _explain(self, error: Exception) -> None:
        """Raise an error that says why a backward failed, if that is because nothing is saved for it."""
        if self.derivative()[1] is None:
            name = self.signature.name
            raise GradientError(
                f"the backward of {self.signature.qualified_name} failed: {type(error).__name__}: {error}.\n"
                f"Nothing is saved for it: {name} has no setup_context. Save what it reads:\n"
                f"@{name}.setup_context\ndef _(ctx, inputs, output): ctx.save_for_backward(*inputs)"
            ) from error

    def _refuse(self, ctx: Any, *grads: Any) -> NoReturn:
        raise GradientError(
            f"{self.signature.qualified_name} has no backward, so it has no gradient.\n"
            f"Give it one with @{self.signature.name}.backward, or call it on tensors that do not require "
            "a gradient (.detach())."
        )


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += _tensors(value)
    return tensors


def _refuse_forward_mode(signature: Signature, tensors: Sequence[torch.Tensor]) -> None:
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise GradientError(
            f"{signature.qualified_name} has no forward-mode derivative (torch.func.jvp, "
            "torch.autograd.forward_ad).\nUse reverse mode: torch.func.vjp, torch.func.grad or .backward()."
        )


def _function(name: str, base: Any, **members: Callable[..., Any]) -> Any:
    return type(name, (base,), {key: staticmethod(member) for key, member in members.items()})


def _flat_grads(signature: Signature, grads: Sequence[Any], inputs: TreeSpec) -> list[Any]:
    """Return one gradient for each flat input, from one for each positional argument.

    None stands for a whole list. The dispatcher leaves out arguments that equal their default, so a
    None for such a one may be left over.

    Raises:
        GradientError: The gradients do not fit the arguments in number or nesting.
    """
    args, keywords = inputs.children()
    positions = args.children()
    fits = len(grads) in (len(positions), len(signature.arguments) - len(signature.keyword_only))
    fits = fits and all(grad is None for grad in grads[len(positions) :])
    if not fits or not all(_fits(grad, spec) for grad, spec in zip(grads, positions, strict=False)):
        returned = (
            f"a list of {len(g)}" if isinstance(g, (list, tuple)) else type(g).__name__ for g in grads
        )
        raise GradientError(
            f"the backward of {signature} returned {', '.join(returned) or 'nothing'}.\n"
            "It returns one gradient for each positional argument: a tensor or None, and for a list of "
            "tensors None or a list of that length."
        )
    flat: list[Any] = []
    for grad, spec in zip(grads, positions, strict=False):
        flat += [grad] if spec.is_leaf() else [None] * spec.num_leaves if grad is None else list(grad)
    return flat + [None] * keywords.num_leaves


def _fits(grad: Any, spec: TreeSpec) -> bool:
    if spec.is_leaf():
        return grad is None or isinstance(grad, torch.Tensor)
    return grad is None or (isinstance(grad, (list, tuple)) and len(grad) == spec.num_leaves)
