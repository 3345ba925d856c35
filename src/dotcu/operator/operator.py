"""Operators: what is checked and measured, and what those of a body do with their overloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch.compiler import is_dynamo_compiling

from dotcu import stopwatch
from dotcu.call_cache.native import entry
from dotcu.kernel import native
from dotcu.operator import register, warming
from dotcu.operator.launching import LaunchingOverload
from dotcu.operator.overload import Overload, Tolerance
from dotcu.operator.schema import Body


class Operator(Overload):
    """A torch operator that dotcu checks, measures and looks into, whatever computes it.

    Attributes:
        overloads: Its signatures by their names, itself among them.
    """

    overloads: dict[str, Overload]


class LaunchingOperator(LaunchingOverload, Operator):
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
        self._launching: dict[str, LaunchingOverload] = {"": self}
        self._wanted = replay
        super().__init__(
            body,
            name=name,
            dtypes=dtypes,
            mutates_args=mutates_args,
            tags=tags,
            replay=replay,
            tolerance=tolerance,
        )
        self.overloads = {"": self}
        self._call: Any = register.packet(self.signature)
        _follow(self)

    def overload(
        self, name: str, *, mutates_args: Sequence[str] = (), tags: Sequence[torch.Tag] = ()
    ) -> Callable[[Body], LaunchingOverload]:
        """Add another signature under the same name: `@scale_add.overload("Scalar")`.

        Args:
            name: The overload's name; `out` for one that writes its keyword-only arguments `mutates_args`.
            mutates_args: The arguments that it writes.
            tags: torch's tags for it.
        """

        def decorate(body: Body) -> LaunchingOverload:
            made = LaunchingOverload(
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
            self.overloads[name] = self._launching[name] = made
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
        """Let native code take calls on tensors of a GPU, from the first one on."""
        if self.taken:
            return
        self.taken = True
        with stopwatch.during("replay"):
            reason = native.prepare(device)
            if reason:
                for overload in self._launching.values():
                    overload._replays.refuse(reason)
            else:
                self._take()

    def _take(self) -> None:
        """Put entries before every overload, and before the packet that chooses among them."""
        overloads = list(self._launching.values())
        for overload in overloads:
            plans = overload._replays.open()
            register.take_calls(overload.torch_op, partial(entry, [plans], autocasts=overload.autocasts))
        every = [overload._replays.open() for overload in overloads]
        autocasts = any(overload.autocasts for overload in overloads)
        packet = register.packet(self.signature)
        register.take_calls(packet, partial(entry, every, autocasts=autocasts))

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
        call = self._call if is_dynamo_compiling() else self._call._op  # the packet's Python is for traces
        result = call(*args, **kwargs)
        return result if result is not None else self._written_by(kwargs)

    def _written_by(self, kwargs: dict[str, Any]) -> Any:
        for overload in self.overloads.values():
            if overload.signature.outs and all(name in kwargs for name in overload.signature.outs):
                return overload._written(kwargs)
        return None


_operators: dict[str, WeakSet[LaunchingOperator]] = {}


def _follow(operator: LaunchingOperator) -> None:
    """Let objects of earlier definitions of the same name call the one that is in force."""
    family = _operators.setdefault(operator.signature.packet_name, WeakSet())
    family.add(operator)
    for earlier in family:  # calls of a stale object reach the definition in force
        earlier._call = operator._call
