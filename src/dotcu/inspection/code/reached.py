"""The kernels that operators reach: which instantiations their samples launch, and how.

A body runs with its launches skipped, so that nothing is computed; what it would launch is heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dotcu.checking.cases.given import samples_of
from dotcu.compile import Target
from dotcu.errors import DotcuError, SimulationError, SourceError
from dotcu.inspection.code.units import Shape
from dotcu.kernel import simulate
from dotcu.kernel.context import Intended, Place, entering, listening
from dotcu.kernel.units import Unit
from dotcu.operator import Operator, Overload, Sample
from dotcu.operator.execution import around_bodies

_CPU = torch.device("cpu")
_IS_CUDA, _IS_CPU = torch.Tensor.is_cuda.__get__, torch.Tensor.is_cpu.__get__  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """A call of an overload, as one of its samples makes it, and what it launches.

    Attributes:
        dtype: That the samples were asked for.
        number: Of the sample, from 0.
        kernels: The names of what it launches, each once.
    """

    overload: Overload
    dtype: torch.dtype
    number: int
    sample: Sample
    kernels: tuple[str, ...]

    @property
    def name(self) -> str:
        """What to call it: `mylib::scale, float32, sample 2`."""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.overload.qualified_name}, {dtype}, sample {self.number}"

    @property
    def elements(self) -> int:
        """Of all tensors among its arguments."""
        return sum(tensor.numel() for tensor in self.sample.tensors)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What operators launch for one architecture.

    Attributes:
        kernels: By unit and name, the shapes of their launches.
        asked: The units of kernels whose attributes or occupancy a body asks for.
        calls: The calls that were followed to their end.
        refused: What the compiler said where it refused a kernel that a body asked after.
        notes: What else could not be followed, and why.
    """

    kernels: dict[Unit, dict[str, list[Shape]]] = field(default_factory=dict)
    asked: dict[Unit, None] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    refused: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, launch: Intended) -> None:
        """Take in a launch, or what was asked."""
        if launch.config is None:
            self.asked[launch.unit] = None
            return
        shape = Shape(
            block=launch.config.block, smem_bytes=launch.config.smem_bytes, cluster=launch.config.cluster
        )
        shapes = self.kernels.setdefault(launch.unit, {}).setdefault(launch.kernel, [])
        if shape not in shapes:
            shapes.append(shape)


def reached(operators: Sequence[Operator], target: Target) -> Reached:
    """Follow every sample of some operators, in each of their dtypes.

    Args:
        target: What `kernel.occupancy` and `dotcu.sm_count` answer for meanwhile; where it is a GPU's,
            tensors say that they are on one.

    Raises:
        OperatorError: The `samples` function of one failed.
    """
    found = Reached()
    for operator in operators:
        for overload in operator.overloads.values():
            if overload.body is None:
                found.notes.append(_without_body(overload))
                continue
            calls = 0
            for call in _calls(overload):
                calls += 1
                _follow(call, target, found)
            if not calls:
                found.notes.append(
                    f"{overload.qualified_name} has no samples, so what it launches is not known: "
                    f"give it some with @{overload.signature.name}.samples"
                )
    return found


def _without_body(overload: Overload) -> str:
    told = f"{overload.qualified_name} is computed by a library: there is no source, PTX or line to show"
    if overload.library is not None:
        return f"{told}, but what its file holds"
    return f"{told}, and its file is not known, since dotcu.load_native did not load it: dotcu inspect lib.so"


def _calls(overload: Overload) -> Iterator[Call]:
    with torch.random.fork_rng(devices=[]):
        for dtype in overload.dtypes:
            torch.default_generator.manual_seed(0)
            for number, sample in enumerate(samples_of(overload, _CPU, dtype)):
                yield Call(overload=overload, dtype=dtype, number=number, sample=sample, kernels=())


class _OnGpu(TorchFunctionMode):
    """Tensors say that they are on a GPU, so that a body takes the way that it takes there."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (_IS_CUDA, _IS_CPU):
            return bool(func == _IS_CUDA)
        return func(*args, **(kwargs or {}))


def _follow(call: Call, target: Target, found: Reached) -> None:
    """Run a body, and hear what it would launch."""
    arch = str(target).replace("compute_", "sm_")
    try:
        heard = (
            _heard_as_on_gpu(call, arch, found) if target.kind == "sm" else _heard(call, arch, nullcontext)
        )
    except SourceError as error:
        found.refused[str(error)] = None
        return
    except DotcuError as error:
        found.notes.append(f"{call.name} could not be followed: {error}")
        return
    for launch in heard:
        found.note(launch)
    names = tuple(dict.fromkeys(launch.kernel for launch in heard if launch.config is not None))
    found.calls.append(
        Call(overload=call.overload, dtype=call.dtype, number=call.number, sample=call.sample, kernels=names)
    )


def _heard_as_on_gpu(call: Call, arch: str, found: Reached) -> list[Intended]:
    """What a body launches on a GPU; as on the CPU, where it asks torch for what only a GPU has."""
    try:
        return _heard(call, arch, _OnGpu)
    except DotcuError:
        raise
    except Exception as error:
        told = str(error).partition("\n")[0]
        found.notes.append(f"{call.name} was followed as on the CPU, since as on a GPU it failed: {told}")
        return _heard(call, arch, nullcontext)


def _heard(call: Call, arch: str, seen: Callable[[], AbstractContextManager[object]]) -> list[Intended]:
    """What a body launches; one that cannot be its own fake runs in the simulator."""
    heard: list[Intended] = []
    around = around_bodies(seen, skipped=True)
    with listening(heard.append), simulate(arch=arch), torch.no_grad(), around:
        if not call.overload.has_fake:
            with entering(Place.SKIP, operator=call.overload.qualified_name):
                run(call)
        elif not _is_simulated(call):
            with suppress(Exception), entering(Place.SKIP, operator=call.overload.qualified_name), seen():
                assert call.overload.body is not None  # it may read what the skipped launches would write
                call.overload.body(*call.sample.args, **call.sample.kwargs)
    return heard


def _is_simulated(call: Call) -> bool:
    """Run a body in the simulator; not to its end where it launches what that has not, clusters, say."""
    try:
        run(call)
    except SimulationError:
        return False
    return True


def run(call: Call) -> None:
    """Call the overload with the sample."""
    call.overload(*call.sample.args, **call.sample.kwargs)
