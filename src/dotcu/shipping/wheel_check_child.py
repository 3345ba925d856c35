"""Calls of an installed package: every sample of its operators, by the code that its wheel holds.

On a GPU where there is one, else in the simulator, against the references.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dotcu.checking.cases.samples import samples_of
from dotcu.checking.memory import fresh
from dotcu.checking.target import resolve
from dotcu.errors import DotcuError
from dotcu.kernel import simulate
from dotcu.operator import Operator, Overload, Sample
from dotcu.operator.operator import defined


def rows(modules: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Run every sample; yield a row for each overload and dtype."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    named = [operator for module in modules for _, operator in resolve(module)]
    packages = {module.partition(".")[0] for module in modules if ":" not in module}
    registered = defined(lambda origin: origin.module.partition(".")[0] in packages)
    operators: list[Operator] = list(dict.fromkeys([*named, *registered]))
    for overload in (overload for operator in operators for overload in operator.overloads.values()):
        here = "simulator" if overload.body is not None else "cpu"
        for dtype in overload.dtypes:
            count, fault = 0, ""
            try:
                for sample in samples_of(overload, device, dtype):
                    fault = fault or _fault(overload, sample, device)
                    count += 1
            except (Exception, SystemExit) as error:  # what a package's body, reference or samples raise
                fault = str(error) if isinstance(error, DotcuError) else f"{type(error).__name__}: {error}"
            yield {
                "operator": overload.qualified_name,
                "dtype": str(dtype).removeprefix("torch."),
                "samples": count,
                "where": here if device.type == "cpu" else torch.cuda.get_device_name(device),
                "fault": fault,
            }


def _fault(overload: Overload, sample: Sample, device: torch.device) -> str:
    """Describe how a call by the prebuilt code differs from the reference; "" where it does not."""
    inputs = fresh(sample)  # where a tensor begins may choose the kernel
    wanted = fresh(sample).map_tensors(torch.Tensor.cpu)  # on the CPU the reference computes
    judge = overload.reference_function if overload.body is None else overload
    if judge is None:
        return "a library computes it, and there is no reference to compare with"
    expected = _values(judge(*wanted.args, **wanted.kwargs), wanted)
    with simulate() if device.type == "cpu" else nullcontext():
        got = _values(overload(*inputs.args, **inputs.kwargs), inputs)
        if overload.has_backward:
            _differentiate(overload, fresh(sample))
    return next((f"{sample}: {text}" for text in map(_difference, got, expected) if text), "")


def _differentiate(overload: Overload, sample: Sample) -> None:
    """Compute the gradients of a call, by the kernels that the backward reaches."""
    call = sample.map_tensors(lambda tensor: tensor.requires_grad_(tensor.is_floating_point()))
    results = tree_leaves(overload(*call.args, **call.kwargs))
    ends = [value for value in results if isinstance(value, torch.Tensor) and value.requires_grad]
    leaves = [tensor for tensor in call.tensors if tensor.requires_grad]
    if ends and leaves:
        torch.autograd.grad(ends, leaves, list(map(torch.ones_like, ends)), allow_unused=True)


def _values(result: Any, sample: Sample) -> list[torch.Tensor]:
    given = [*sample.args, *sample.kwargs.values()]
    return [value.cpu() for value in tree_leaves((result, given)) if isinstance(value, torch.Tensor)]


def _difference(got: torch.Tensor, expected: torch.Tensor) -> str:
    if not got.numel():
        return ""
    if not got.dtype.is_floating_point:
        return "" if torch.equal(got, expected) else "other values than the reference's"
    largest = max(1.0, expected.double().nan_to_num(0, 0, 0).abs().max().item())
    bound = math.sqrt(torch.finfo(got.dtype).eps) * largest
    close = torch.isclose(got.double(), expected.double(), rtol=0, atol=bound, equal_nan=True)
    return "" if bool(close.all()) else f"values differ from the reference's by more than {bound:.2g}"
