"""An operator that a library has registered, and what is said of it: `dotcu.op.existing`.

The library computes it. What dotcu is told stays with dotcu, save what torch has to know: a fake, a
backward, a batching rule, a rule for autocast. These are registered where the library has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.compiler import is_dynamo_compiling

from dotcu.errors import UsageError
from dotcu.extension.library import library_of
from dotcu.operator import autograd, register
from dotcu.operator.operator import Operator
from dotcu.operator.overload import Tolerance

Registered = TypeVar("Registered")


class ExistingOperator(Operator):
    """One overload of an operator that a library computes.

    Calling it calls the library: its CPU kernel for CPU tensors, its CUDA kernel for CUDA tensors.
    """

    def __init__(
        self,
        registration: register.Registration,
        *,
        dtypes: Sequence[torch.dtype],
        tags: Sequence[torch.Tag] = (),
        tolerance: Tolerance = None,
    ) -> None:
        super().__init__(registration, dtypes=dtypes, tolerance=tolerance)
        self.overloads = {self.signature.overload: self}
        self._tags = frozenset(tags)
        self._recorded = False
        self.__module__ = registration.origin.module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        overload: Any = self._call  # whose own Python only a trace must see
        return (overload if is_dynamo_compiling() else overload._op)(*args, **kwargs)

    # What was said of it.

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the shapes, for torch.compile: of the library's results, without values.

        Raises:
            UsageError: The library has a fake or Meta kernel of its own, or a kernel that serves as one.
        """
        if self._fake is None:
            self._refuse_second("fake", "fake kernel", has=self._registration.has_own_fake)
            self._registration.implement_fake(self._faked)
        return super().fake(function)

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the gradient, with torch.library.register_autograd's meaning. A launch in it is refused.

        Raises:
            SchemaError: The operator writes its arguments, or takes a tensor by keyword only.
            UsageError: The library has a kernel for autograd.
        """
        if not self._recorded:
            self._refuse_second("backward", "gradient", has=self._registration.differentiates)
        given = super().backward(function)
        if not self._recorded:
            recorder = autograd.recorder(self.signature, lambda: self._derivative)
            made = autograd.kernel(self.signature, self._registration.operator, recorder)
            self._registration.implement("Autograd", made)
            self._recorded = True
        return given

    def vmap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a batching rule for torch.func.vmap, with torch.library.register_vmap's meaning.

        Raises:
            SchemaError: The operator takes a tensor by keyword only.
            UsageError: The library has a batching rule.
        """
        if self._vmap is None:
            self._refuse_second("vmap", "batching rule", has=self._registration.batches)
        return super().vmap(function)

    def autocast(self, dtype: torch.dtype) -> Callable[[Registered], Registered]:
        """Let `torch.autocast` cast floating inputs, float64 apart, to `dtype`.

        Raises:
            UsageError: The library has a rule for autocast; or autocast knows no such dtype.
        """
        self._refuse_second("autocast", "rule for autocast", has=self._registration.autocasts)
        return super().autocast(dtype)

    def _refuse_second(self, method: str, what: str, *, has: bool) -> None:
        if has:
            raise UsageError(
                f"{self.qualified_name} has a {what} already: its library, or another module, registered it, "
                f"and torch takes one.\nRemove what @{self.__name__}.{method} decorates here: `dotcu check` "
                "looks at the one that is there."
            )

    def _faked(self, *args: Any, **kwargs: Any) -> Any:
        assert self._fake is not None
        return self._fake(*args, **kwargs)

    # What others ask.

    @property
    def library(self) -> Path | None:
        """The file of the library, where `dotcu.load_native` loaded it."""
        return library_of(self.qualified_name)

    @property
    def tags(self) -> frozenset[torch.Tag]:
        """The tags that the library gave it, and those that it was described with."""
        return super().tags | self._tags

    @property
    def has_backward(self) -> bool:
        """Whether it has a gradient: one that was given, or the library's."""
        return super().has_backward or (self._registration.differentiates and not self.signature.mutates)

    @property
    def has_vmap(self) -> bool:
        """Whether it has a batching rule: one that was given, or the library's."""
        return super().has_vmap or self._registration.batches

    def __repr__(self) -> str:
        return f"<dotcu.op.existing {self.signature}; a library computes it>"
