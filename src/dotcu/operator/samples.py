"""Samples: the arguments that `check` and `bench` call an operator with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


class Sample:
    """One call's arguments, as an operator's `samples` function yields them.

    Args:
        *args: Positional arguments of the operator.
        **kwargs: Keyword arguments of the operator.
    """

    __slots__ = ("args", "kwargs")

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "kwargs", MappingProxyType(kwargs))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Sample is not changed after it is made (got {name}={value!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.args, dict(self.kwargs))

    def map_tensors(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        """Return the call with `change` applied to each tensor, also to those in lists."""
        return Sample(
            *[_map(change, value) for value in self.args],  # a list: positional arguments come first
            **{name: _map(change, value) for name, value in self.kwargs.items()},
        )

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Every tensor among the arguments, in order."""
        leaves = tree_leaves((self.args, dict(self.kwargs)))
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))

    def __repr__(self) -> str:
        words = [describe(value) for value in self.args]
        words += [f"{name}={describe(value)}" for name, value in self.kwargs.items()]
        return f"Sample({', '.join(words)})"


def _restored(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sample:
    """Return a sample that was copied or pickled."""
    return Sample(*args, **kwargs)


SampleFunction = Callable[[torch.device, torch.dtype], Iterable[Sample]]


def _map(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(change, item) for item in value)
    return value


def describe(value: Any) -> str:
    """Return a short text of a value: a tensor as `float32[3, 4]`, with strides if not contiguous."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    if value.storage_offset():
        text += f" offset {value.storage_offset()}"
    return text
