"""A case: a public function of a library, called on small tensors, and the same by plain torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dotcu.sanitizing.session import collecting
from dotcu.simulator import CHECKS, Finding

SEED = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of a library, forward and backward, and what gives the same.

    Attributes:
        name: Its name in the report.
        inputs: Returns the arguments of both functions. Those tensors that require a gradient get one.
        library: Calls the library; returns a tensor, or several, with None for what is not compared. It
            imports the library itself: in the simulator, so that the library finds the GPU that it looks for.
        plain: Returns the same by torch alone.
        tolerance: The largest difference that is right, as a share of the largest value of the tensor, or of
            1 where that is larger.
        cuda: The library takes tensors on "cuda" only.
        arch: The architecture that Triton compiles for.
        faults: The findings that are faults of the library, as "kind file:line", and why.
    """

    name: str
    inputs: Callable[[], Sequence[Any]]
    library: Callable[..., Any]
    plain: Callable[..., Any]
    tolerance: float = 1e-4
    cuda: bool = False
    arch: str = "sm_90"
    faults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a case.

    Attributes:
        case: Its name.
        kernels: The `@triton.jit` functions that were launched.
        ran: It returned, and launched a kernel.
        right: All its results and gradients are those of plain torch.
        error: What ended it, or which result differs and by how much; empty if nothing.
        findings: Those that are not known as faults of the library: "kind file:line".
        faults: Those that are.
        seconds: The time of the library's part, Triton's compiler included.
    """

    case: str
    kernels: Sequence[str] = ()
    ran: bool = False
    right: bool = False
    error: str = ""
    findings: Sequence[str] = ()
    faults: Sequence[str] = ()
    seconds: float = 0.0


def attempt(case: Case, show: Callable[[str], object]) -> Outcome:
    """Run a case.

    Args:
        case: The case.
        show: Is called with the text of each finding that is not a known fault.
    """
    torch.manual_seed(SEED)
    inputs = case.inputs()
    start, error, got = time.perf_counter(), "", list[Tensor | None]()
    with collecting(case.arch, None, CHECKS, case.cuda) as run:
        try:
            got = results(case.library, inputs, "cuda" if case.cuda else "cpu")
        except Exception as raised:  # of a library, of any kind
            lines = [line.strip() for line in str(raised).splitlines() if line.strip()]
            error = ": ".join([type(raised).__name__, *lines[:2]])
    seconds = time.perf_counter() - start
    ran = not error and bool(run.launches)
    if not error:
        error = "no kernel was launched" if not ran else difference(
            got, results(case.plain, inputs, "cpu"), case.tolerance
        )  # fmt: skip
    found = {place(finding): finding for finding in run.findings}
    for name, finding in found.items():
        if name not in case.faults:
            show(str(finding))
    return Outcome(
        case=case.name,
        kernels=sorted(run.launches),
        ran=ran,
        right=ran and not error,
        error=error,
        findings=sorted(name for name in found if name not in case.faults),
        faults=sorted(name for name in found if name in case.faults),
        seconds=round(seconds, 1),
    )


def place(finding: Finding) -> str:
    """Return the kind of a finding, its file and its line."""
    return f"{finding.kind} {Path(finding.file).name}:{finding.line}"


def results(function: Callable[..., Any], inputs: Sequence[Any], device: str) -> list[Tensor | None]:
    """Return what a function gives for copies of inputs, and the gradients of those that require one."""
    leaves = [
        value.detach().clone().to(device).requires_grad_(value.requires_grad)
        if isinstance(value, Tensor)
        else value
        for value in inputs
    ]
    wanted = [value for value in leaves if isinstance(value, Tensor) and value.requires_grad]
    # Functions of a library may write into their arguments: those that are no leaves.
    returned = function(
        *(value.clone() if any(value is leaf for leaf in wanted) else value for value in leaves)
    )
    outputs: list[Tensor] = (
        [returned] if isinstance(returned, Tensor) else [o for o in returned if o is not None]
    )
    values: list[Tensor | None] = [output.detach().clone() for output in outputs]
    outputs = [output for output in outputs if output.requires_grad]
    if wanted and outputs:
        generator = torch.Generator().manual_seed(SEED)
        upstream = [
            torch.randn(each.shape, generator=generator).to(each.dtype).to(device) for each in outputs
        ]
        values += torch.autograd.grad(outputs, wanted, upstream, allow_unused=True)
    return values


def difference(got: Sequence[Tensor | None], wanted: Sequence[Tensor | None], tolerance: float) -> str:
    """Return which result differs and by how much; nothing if none does."""
    if len(got) != len(wanted):
        return f"{len(got)} results and gradients, plain torch gives {len(wanted)}"
    for number, (ours, theirs) in enumerate(zip(got, wanted, strict=True), 1):
        if ours is None or theirs is None:
            if ours is not theirs:
                return f"result {number} of {len(got)} is None on one side"
            continue
        if ours.shape != theirs.shape:
            return f"result {number} has the shape {tuple(ours.shape)}, plain torch's {tuple(theirs.shape)}"
        if not ours.numel():
            continue
        ours, theirs = ours.double(), theirs.double()
        scale = max(1.0, float(torch.where(theirs.isfinite(), theirs, 0.0).abs().max()))
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        error = float(torch.where(same, 0.0, (ours - theirs).abs()).max())
        if not error <= tolerance * scale:
            return f"result {number} of {len(got)} differs by {error:.3g}, of values up to {scale:.3g}"
    return ""
