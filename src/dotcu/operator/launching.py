"""An overload made of a body: a Python function that allocates its result and launches kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch

from dotcu import settings
from dotcu.operator import autograd, execution, register
from dotcu.operator.overload import Overload, Tolerance
from dotcu.operator.replaying import Replay, Replays
from dotcu.operator.schema import Body, infer

Registered = TypeVar("Registered")


class Family(Protocol):
    """The operator that an overload belongs to, as the overload needs it."""

    overloads: dict[str, Overload]
    taken: bool

    def take_calls(self, device: torch.device) -> None:
        """Let calls on tensors of a GPU be replayed, from the first one on."""

    def retake_calls(self) -> None:
        """Do so anew at the next call: an overload is not what it was."""


class LaunchingOverload(Overload):
    """One signature whose body launches kernels: on CUDA tensors, and in the simulator for CPU tensors."""

    body: Body

    def __init__(
        self,
        body: Body,
        *,
        name: str,
        overload: str = "",
        dtypes: Sequence[torch.dtype],
        mutates_args: Sequence[str] = (),
        tags: Sequence[torch.Tag] = (),
        replay: bool = True,
        tolerance: Tolerance = None,
        base: Family | None = None,
    ) -> None:
        signature = infer(body, name=name, overload=overload, mutates_args=mutates_args)
        registration = register.define(signature, register.Origin.of(body), tags)
        super().__init__(
            registration, dtypes=dtypes, tolerance=tolerance, family=None if base is None else base.overloads
        )
        self.body = body
        self._base = base
        self._family: Family = base if base is not None else self  # type: ignore[assignment]
        self._recorder = autograd.recorder(signature, lambda: self._derivative)
        self._replays = Replays(signature, body, lambda: registration.operator, self._recorder, wanted=replay)
        self._implement()
        self.__name__ = body.__name__
        self.__module__ = body.__module__
        self.__doc__ = body.__doc__
        self.__wrapped__ = body

    def resolve(self) -> None:
        """Call what `torch.ops` has of this overload now."""
        self._call = self._registration.operator

    def _implement(self) -> None:
        entry = self._registration
        entry.implement("CUDA", self._on_cuda)
        entry.implement("CPU", self._on_cpu)
        entry.implement_fake(self._on_fake)
        entry.implement("Autograd", autograd.kernel(self.signature, entry.operator, self._recorder))

    # What a call runs.

    def _on_cuda(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = execution.plain(args), {name: execution.plain(value) for name, value in kwargs.items()}
        if execution.skipping():
            return self._on_fake(*args, **kwargs)
        if not self._family.taken:
            self._family.take_calls(execution.device_of(args, kwargs))
        return execution.compute(self.signature, self._computing, args, kwargs)

    @property
    def _computing(self) -> Body:
        """The body; in the debug mode one that compares what it does with its plans."""
        return self._replays.compare if settings.current().check_replay else self.body

    def _on_cpu(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = execution.plain(args), {name: execution.plain(value) for name, value in kwargs.items()}
        if execution.skipping():
            return self._on_fake(*args, **kwargs)
        reference = self.reference_function
        if reference is None or execution.simulating():
            return execution.simulate(self.signature, self._computing, args, kwargs)
        if self.functional is not None:
            return execution.refer_out(self.signature, self.body, reference, args, kwargs)
        if self.signature.mutates:
            return reference(*args, **kwargs)
        return execution.refer(self.signature, self._fake or self.body, reference, args, kwargs)

    def _on_fake(self, *args: Any, **kwargs: Any) -> Any:
        execution.require_one_place(self.signature, args, kwargs)
        if self._fake is not None:
            return self._fake(*args, **kwargs)
        return execution.allocate(self.signature, self.body, args, kwargs)

    # What others ask.

    def autocast(self, dtype: torch.dtype) -> Callable[[Registered], Registered]:
        given = super().autocast(dtype)
        self._family.retake_calls()
        return given

    @property
    def replay(self) -> Replay:
        return self._replays.report()

    @property
    def unreplayed(self) -> str:
        return "" if self._replays.wanted else "declared replay=False"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.__name__ if self._base is None else (_overload_of, (self._base, self.signature.overload))

    def __repr__(self) -> str:
        if execution.simulating() or self.reference_function is None:
            runs = "the body, in the simulator"
        else:
            runs = "the reference"
        return f"<dotcu.op {self.signature}; on CPU tensors it runs {runs}>"


def _overload_of(base: Family, name: str) -> Overload:
    return base.overloads[name]
