"""Tensors as memory: which of them have elements that a kernel may get a pointer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dotcu import torch_compat
from dotcu.kernel.arguments.values import Mismatch, describe

_MEMORY_TYPES = (Tensor, torch.nn.Parameter)
_plain: set[int] = set()
"""The sets of dispatch keys that plain memory was seen to have: bits, layouts and wrappers are keys."""


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is memory of its own dtype and shape, which nothing but autograd observes."""
    if type(tensor) not in _MEMORY_TYPES:
        return False
    keys = torch_compat.dispatch_keys(tensor)
    if keys in _plain:
        return True
    if torch_compat.trace_wrapper(tensor) is not None or _kind_fault(tensor) is not None:
        return False
    if keys is not None:
        _plain.add(keys)
    return True


_FAULTS: tuple[tuple[Callable[[Tensor], bool], str, str], ...] = (
    (
        lambda t: type(t) not in _MEMORY_TYPES,
        "of type {type}, a subclass",
        "Pass the plain tensor inside it, or t.as_subclass(torch.Tensor) if the subclass adds no meaning.",
    ),
    (
        lambda t: t.is_meta,
        "without memory",
        'Make it on a device: torch.empty_like(t, device="cuda"), or "cpu" to simulate.',
    ),
    (lambda t: t.is_quantized, "quantized", "Pass t.int_repr()."),
    (lambda t: t.layout is not torch.strided, "of layout {layout}", "Pass t.to_dense()."),
    (lambda t: t.is_nested, "nested", "Pass t.to_padded_tensor(0.0), or its values and offsets."),
    (lambda t: t.is_conj(), "with a conj bit: its memory is not yet conjugated", "Pass t.resolve_conj()."),
    (lambda t: t.is_neg(), "with a neg bit: its memory is not yet negated", "Pass t.resolve_neg()."),
    (torch_compat.is_zero_tensor, "that is a ZeroTensor, without memory", "Pass t.clone()."),
    (
        lambda t: t.device.type not in ("cpu", "cuda"),
        "on {device}",
        'Make it on device="cuda", or on "cpu" to simulate.',
    ),
)


def memory_fault(tensor: Tensor) -> Mismatch | None:
    """Return why no pointer to this tensor's elements can be passed, None if it can."""
    return _storage_fault(tensor) if is_plain(tensor) else _kind_fault(tensor)


def _storage_fault(tensor: Tensor) -> Mismatch | None:
    """Return a fault if the storage ends before the last element: it can be freed under its tensors."""
    needed = (tensor.storage_offset() + extent(tensor)) * tensor.itemsize
    held = tensor.untyped_storage().nbytes()
    if held >= needed or tensor.numel() == 0:
        return None
    return Mismatch(
        f"{describe(tensor)} whose storage has {held} of the {needed} bytes that it needs",
        "The storage was freed or made smaller, as FSDP does with parameters after their use. Before the "
        f"launch: t.untyped_storage().resize_({needed}), then write its values.",
    )


def extent(tensor: Tensor) -> int:
    """Return how many elements lie from a tensor's first to its last, both included."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _kind_fault(tensor: Tensor) -> Mismatch | None:
    for holds, what, remedy in _FAULTS:
        if holds(tensor):
            text = what.format(type=type(tensor).__name__, layout=tensor.layout, device=tensor.device)
            return Mismatch(f"{describe(tensor)}, {text}", remedy)
    return None


def count_writes(written: Sequence[Tensor]) -> None:
    """Bump the version counter of each tensor; those of inference mode have none."""
    counted = [tensor for tensor in written if not tensor.is_inference()]
    if counted:
        torch.autograd.graph.increment_version(counted)
