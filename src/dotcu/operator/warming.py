"""Calling operators beforehand, so that nothing has to be loaded when it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from dotcu.errors import UsageError
from dotcu.kernel import captures, cuda, simulate
from dotcu.kernel.forked import require_own_cuda
from dotcu.operator.samples import Sample

if TYPE_CHECKING:
    from dotcu.operator.overload import Overload


def warm(overloads: Iterable[Overload], name: str) -> None:
    """Call each overload with all of its samples on every device, and its backward where it has one.

    torch's random numbers, the current device and whether gradients are recorded stay as they were.

    Args:
        overloads: An overload that writes what another returns is called on the samples of that one.
        name: What the user calls the operator, for messages.

    Raises:
        UsageError: An overload has no samples; the others have been warmed.
    """
    require_own_cuda(f"{name}.warm()")
    if cuda.capturing():
        captures.refuse_warming(name)
    count = torch.cuda.device_count() if cuda.available() else 0
    places = [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]
    silent: dict[str, None] = {}
    with torch.random.fork_rng(range(count), device_type="cuda"):
        for place in places:
            with simulate() if place.type == "cpu" else torch.cuda.device(place):
                silent |= {o.qualified_name: None for o in overloads if not _warm_on(o, place)}
    if silent:
        raise _without_samples(list(silent), name)


def _warm_on(overload: Overload, place: torch.device) -> int:
    """Warm an overload on one device; how many calls that took."""
    calls = 0
    for dtype in overload.dtypes:
        for sample in _samples(overload, place, dtype):
            calls += 1
            _call(overload, sample)
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return calls


def _samples(overload: Overload, place: torch.device, dtype: torch.dtype) -> Iterator[Sample]:
    own = list(overload.make_samples(place, dtype))
    twin = overload.functional
    if own or twin is None:
        yield from own
        return
    for sample in twin.make_samples(place, dtype):
        with torch.no_grad():
            result = twin(*sample.args, **sample.kwargs)
        results = result if isinstance(result, tuple) else (result,)
        outs = dict(zip(overload.signature.outs, map(torch.empty_like, results), strict=False))
        yield Sample(*sample.args, **{**sample.kwargs, **outs})


def _call(overload: Overload, sample: Sample) -> None:
    if not overload.has_backward:
        with torch.no_grad():
            overload(*sample.args, **sample.kwargs)
        return
    inputs = sample.map_tensors(_requiring_grad)
    with torch.enable_grad():
        results = _differentiable(overload(*inputs.args, **inputs.kwargs))
        leaves = _differentiable(inputs.tensors)
        if results and leaves:
            ones = [torch.ones_like(result) for result in results]
            torch.autograd.grad(results, leaves, ones, allow_unused=True)


def _requiring_grad(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def _differentiable(values: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.requires_grad]


def _without_samples(silent: list[str], name: str) -> UsageError:
    return UsageError(
        f"{name}.warm() calls operators with their samples, and there are none of {', '.join(silent)}.\n"
        f"Give it some with @{name}.samples, or warm kernels instead of operators: kernels.warm().\n"
        "Or call it once, before a capture, with the dtypes that it will get."
    )
