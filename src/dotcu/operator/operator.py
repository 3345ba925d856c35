"""`dotcu.op`: a function that launches kernels becomes a torch operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any
from weakref import WeakSet

import torch
from torch.compiler import is_dynamo_compiling

from dotcu import phases, settings
from dotcu.errors import UsageError
from dotcu.kernel import ranges
from dotcu.operator import register, replaying, warming
from dotcu.operator.overload import Overload, Tolerance
from dotcu.operator.schema import Body, split_name


class Operator(Overload):
    """A torch operator made of a Python function that launches kernels.

    Calling it picks among its overloads by the arguments, as `torch.ops` does. A call that names
    `out=` returns `out`.
    """

    def __init__(
        self,
        body: Body,
        *,
        name: str,
        dtypes: Any,
        mutates_args: Any,
        tags: Any,
        replay: bool,
        tolerance: Tolerance,
    ) -> None:
        self.taken = False
        self._wanted = replay
        self._natively = settings.current().native
        super().__init__(
            body,
            name=name,
            dtypes=dtypes,
            mutates_args=mutates_args,
            tags=tags,
            replay=replay,
            tolerance=tolerance,
        )
        self.overloads: dict[str, Overload] = {"": self}
        self._call: Any = register.packet(self.signature)
        _follow(self)

    def overload(
        self, name: str, *, mutates_args: Sequence[str] = (), tags: Sequence[torch.Tag] = ()
    ) -> Callable[[Body], Overload]:
        """Add another signature under the same name: `@scale_add.overload("Scalar")`.

        Args:
            name: The overload's name; `out` for one that writes its keyword-only arguments `mutates_args`.
            mutates_args: The arguments that it writes.
            tags: torch's tags for it.
        """

        def decorate(body: Body) -> Overload:
            made = Overload(
                body,
                name=self.signature.packet_name,
                overload=name,
                dtypes=self.dtypes,
                mutates_args=mutates_args,
                tags=tags,
                replay=self._wanted,
                tolerance=self.tolerance,
                base=self,
            )
            self.overloads[name] = made
            self.retake_calls()
            register.refresh(self.signature)
            for each in self.overloads.values():
                each.resolve()
            self._call = register.packet(self.signature)
            _follow(self)
            return made

        return decorate

    def retake_calls(self) -> None:
        """Put entries anew at the next call on GPU tensors."""
        self.taken = False

    def take_calls(self, device: torch.device) -> None:
        """Let calls on tensors of a GPU be replayed, from the first one on."""
        if self.taken or not replaying.wanted(settings.current()) or ranges.attached():
            return
        self.taken = True
        with phases.during("replay"):
            provider = replaying.provider(device, natively=self._natively)
            if not isinstance(provider, str):
                self._take(provider)

    def _take(self, provider: ModuleType) -> None:
        """Put entries before every overload, and before the packet that chooses among them."""
        replaying.hold_with(provider)
        overloads = list(self.overloads.values())
        for overload in overloads:
            plans = overload._replays.open(provider)
            entry = partial(provider.entry, [plans], autocasts=overload.autocasts)
            register.take_calls(overload.torch_op, entry)
        every = [overload._replays.open(provider) for overload in overloads]
        autocasts = any(overload.autocasts for overload in overloads)
        packet = register.packet(self.signature)
        register.take_calls(packet, partial(provider.entry, every, autocasts=autocasts))

    def warm(self) -> None:
        """Compile and load every kernel that the samples of the operator and of its overloads reach.

        An overload that writes what another returns, and has no samples, is called on those of that one.
        Otherwise as `Overload.warm`.

        Raises:
            UsageError: An overload has no samples; the others are warm.
            CaptureError: A CUDA graph is being captured.
        """
        warming.warm(list(self.overloads.values()), self.signature.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        packet = self._call  # whose own Python only a trace must see
        result = (packet if is_dynamo_compiling() else packet._op)(*args, **kwargs)
        return self._written_by(kwargs) if result is None else result

    def _written_by(self, kwargs: dict[str, Any]) -> Any:
        for overload in self.overloads.values():
            if overload.signature.outs and all(name in kwargs for name in overload.signature.outs):
                return overload._written(kwargs)
        return None


_operators: dict[str, WeakSet[Operator]] = {}


def _follow(operator: Operator) -> None:
    """Let objects of earlier definitions of the same name call the one that is in force."""
    family = _operators.setdefault(operator.signature.packet_name, WeakSet())
    family.add(operator)
    for earlier in family:  # calls of a stale object reach the definition in force
        earlier._call = operator._call


def _require_tolerance(name: str, tolerance: Tolerance) -> None:
    given = tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,)
    for value in given:
        if value is not None and not 0 <= value <= 1:  # NaN is neither
            raise UsageError(
                f"dotcu.op({name!r}): tolerance takes a relative error from 0 to 1 (got {value!r}).\n"
                "Type: tolerance=1e-3, or {torch.float16: 1e-3} for one dtype."
            )


def op(
    name: str,
    *,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    mutates_args: Sequence[str] = (),
    tags: Sequence[torch.Tag] = (),
    replay: bool = True,
    tolerance: Tolerance = None,
) -> Callable[[Body], Operator]:
    """Make a torch operator of a function that allocates its result and launches kernels.

    The schema comes from the annotations. The body runs on CUDA tensors, in the simulator for CPU
    tensors, and without its launches where torch asks for shapes. It is a function of shapes, strides,
    dtypes and devices: it keeps no tensor and reads no pointer and no value. Defining the same name
    again from the same module and function replaces it.

    Args:
        name: `"namespace::name"`, as `torch.ops` will know it.
        dtypes: The dtypes that `check` and `bench` try.
        mutates_args: Arguments that the body writes, as torch.library has it; such a body returns nothing.
        tags: torch's tags for the operator.
        replay: Whether a body that only allocates and launches is followed once for each combination
            of types and branches, and from then on replayed without being run.
        tolerance: The relative error that `check` allows instead of what it finds out by itself, for all
            dtypes or by dtype. Reports show it.

    Raises:
        SchemaError: torch cannot turn the annotations into a schema.
        DuplicateOperator: Another module or function has defined the name.
        UsageError: The name, `dtypes` or `tolerance` has the wrong form.
    """
    split_name(name)  # also where dotcu.op decorates without being called
    if isinstance(dtypes, torch.dtype) or not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        raise UsageError(
            f"dotcu.op({name!r}): dtypes takes several torch dtypes (got {dtypes!r}).\n"
            "Type: dtypes=(torch.float32,)"
        )
    _require_tolerance(name, tolerance)

    def decorate(body: Body) -> Operator:
        return Operator(
            body,
            name=name,
            dtypes=dtypes,
            mutates_args=mutates_args,
            tags=tags,
            replay=replay,
            tolerance=tolerance,
        )

    return decorate
