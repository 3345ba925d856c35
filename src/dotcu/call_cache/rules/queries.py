"""What a body asks of a tensor, or of torch, without any tensor being made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.symbols import sym_max, sym_min
from dotcu.call_cache.tracer import Answer, Tracer, Untold
from dotcu.call_cache.values import pinned

Rule = Callable[..., Any]


def getter(name: str) -> Any:
    """What torch hands a function mode when a body reads an attribute of a tensor."""
    return getattr(Tensor, name).__get__


def _shape(tracer: Tracer, t: Tensor) -> Answer:
    return Answer(torch.Size(tracer.known(t).layout.sizes))


def _size(tracer: Tracer, t: Tensor, dim: Any = None) -> Answer:
    return _shape(tracer, t) if dim is None else Answer(tracer.known(t).layout.sizes[dimension(t, dim)])


def _stride(tracer: Tracer, t: Tensor, dim: Any = None) -> Answer:
    strides = tracer.known(t).layout.strides
    return Answer(tuple(strides) if dim is None else strides[dimension(t, dim)])


def dimension(t: Tensor, dim: Any, extra: int = 0) -> int:
    """A dimension, counted from the first; pinned.

    Raises:
        Untold: There is none, for torch to say.
    """
    rank, found = t.dim() + extra, pinned(dim)
    if type(found) is not int or not -rank <= found < rank:
        raise Untold(f"it asks for dimension {found!r} of {rank}")
    return found % rank


def _length(tracer: Tracer, t: Tensor) -> Answer:
    return _size(tracer, t, 0)


def _numel(tracer: Tracer, t: Tensor) -> Answer:
    return Answer(tracer.numel(tracer.known(t).layout.sizes))


def _nbytes(tracer: Tracer, t: Tensor) -> Answer:
    return Answer(tracer.numel(tracer.known(t).layout.sizes) * t.itemsize)


def _storage_offset(tracer: Tracer, t: Tensor) -> Answer:
    return Answer(tracer.offset(tracer.known(t)))


def _is_contiguous(tracer: Tracer, t: Tensor, memory_format: Any = torch.contiguous_format) -> Answer:
    if memory_format is not torch.contiguous_format:
        raise Untold(f"it asks for {memory_format}")
    return Answer(tracer.is_contiguous(tracer.known(t)))


def _by_kind(function: Callable[[Tensor], Any]) -> Rule:
    """An answer that hangs only on dtype, device and number of dimensions, which a plan is made for."""

    def rule(tracer: Tracer, t: Tensor) -> Answer:
        tracer.known(t)
        return Answer(function(t))

    return rule


def _pure(function: Callable[..., Any]) -> Rule:
    """An answer that hangs only on what is passed."""
    return lambda tracer, *args, **kwargs: Answer(function(*pinned(args), **pinned(kwargs)))


def _result_type(tracer: Tracer, a: Any, b: Any) -> Answer:
    given = [value.dtype for value in (a, b) if isinstance(value, Tensor)]
    found = torch.result_type(pinned(a), pinned(b))
    if (found.is_floating_point or found.is_complex) and not any(
        dtype.is_floating_point or dtype.is_complex for dtype in given
    ):
        raise Untold("torch.result_type gives torch's default dtype here, which can change")
    return Answer(found)


def _device(tracer: Tracer, *args: Any, **kwargs: Any) -> Answer:
    return Answer(torch.device(*pinned(args), **pinned(kwargs)))


_BY_KIND = (
    "dtype", "device", "layout", "ndim", "itemsize", "is_cuda", "is_cpu", "is_meta", "is_sparse",
    "is_quantized", "is_nested",
)  # fmt: skip
_BY_KIND_CALLED = (
    "dim",
    "ndimension",
    "element_size",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "get_device",
)

QUERIES: Mapping[Any, Rule] = {
    **{getter(name): _by_kind(getattr(Tensor, name).__get__) for name in _BY_KIND},
    **{getattr(Tensor, name): _by_kind(getattr(Tensor, name)) for name in _BY_KIND_CALLED},
    torch.is_floating_point: _by_kind(torch.is_floating_point),
    torch.is_complex: _by_kind(torch.is_complex),
    torch.is_signed: _by_kind(torch.is_signed),
    torch.get_device: _by_kind(torch.get_device),
    getter("shape"): _shape,
    Tensor.size: _size,
    Tensor.stride: _stride,
    Tensor.__len__: _length,
    Tensor.numel: _numel,
    Tensor.nelement: _numel,
    torch.numel: _numel,
    getter("nbytes"): _nbytes,
    Tensor.storage_offset: _storage_offset,
    Tensor.is_contiguous: _is_contiguous,
    torch.sym_min: lambda tracer, a, b: Answer(sym_min(a, b)),
    torch.sym_max: lambda tracer, a, b: Answer(sym_max(a, b)),
    torch.promote_types: _pure(torch.promote_types),
    torch.can_cast: _pure(torch.can_cast),
    torch.result_type: _result_type,
    torch.device: _device,
}
