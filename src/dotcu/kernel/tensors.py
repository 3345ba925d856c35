"""What may stand behind a torch.Tensor: plain memory, or something a pointer cannot be taken of.

A tensor's dispatch keys tell: conj and neg bits, zero tensors, sparse and quantized layouts,
functorch's wrappers and functional tensors each have a key of their own. So one look-up in a
set of key sets found good before clears the usual tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dotcu.kernel.packers import Mismatch, describe

_MEMORY_TYPES = (Tensor, torch.nn.Parameter)
_plain: set[int] = set()

_Key = torch._C.DispatchKey
_WRAPPED = (
    (_Key.FuncTorchBatched, "a tensor that torch.vmap batches"),
    (_Key.FuncTorchGradWrapper, "a tensor that torch.func differentiates"),
    (_Key.Functionalize, "a functional tensor"),
)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is memory of its own dtype and shape, and nothing watches it but autograd."""
    if type(tensor) not in _MEMORY_TYPES:
        return False
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    if keys in _plain:
        return True
    if wrapping(tensor) is not None or fault(tensor) is not None:
        return False
    _plain.add(keys)
    return True


def wrapping(tensor: Tensor) -> str | None:
    """What traces or transforms this tensor, so that a launch on it would be lost."""
    name = type(tensor).__name__
    if name in ("FakeTensor", "FunctionalTensor"):
        return f"a {name}"
    keys = torch._C._dispatch_keys(tensor)
    return next((what for key, what in _WRAPPED if keys.has(key)), None)


_Fault = tuple[Callable[[Tensor], bool], str, str]
_FAULTS: tuple[_Fault, ...] = (
    (
        lambda t: type(t) not in _MEMORY_TYPES,
        "of type {type}, a subclass",
        "Pass the plain tensor inside it, or t.as_subclass(torch.Tensor) where it adds no meaning.",
    ),
    (lambda t: t.is_meta, "without memory", 'Make it on a device: torch.empty_like(t, device="cuda").'),
    (lambda t: t.is_quantized, "quantized", "Pass t.int_repr() or t.dequantize()."),
    (lambda t: t.layout is not torch.strided, "of layout {layout}", "Pass t.to_dense()."),
    (lambda t: t.is_nested, "nested", "Pass t.to_padded_tensor(0.0), or its values and offsets."),
    (lambda t: t.is_conj(), "with a conj bit: its memory is not yet conjugated", "Pass t.resolve_conj()."),
    (lambda t: t.is_neg(), "with a neg bit: its memory is not yet negated", "Pass t.resolve_neg()."),
    (lambda t: t._is_zerotensor(), "that is a ZeroTensor, without memory", "Pass t.clone()."),
    (
        lambda t: t.device.type not in ("cpu", "cuda"),
        "on {device}",
        'Move it: t.to("cuda"), or t.cpu() to simulate.',
    ),
)


def fault(tensor: Tensor) -> Mismatch | None:
    """Why no pointer to this tensor's elements can be passed, None where it can."""
    for holds, what, remedy in _FAULTS:
        if holds(tensor):
            text = what.format(type=type(tensor).__name__, layout=tensor.layout, device=tensor.device)
            return Mismatch(f"{describe(tensor)}, {text}", remedy)
    return None


def count_writes(written: Sequence[Tensor]) -> None:
    """Count a write in the version of each tensor; those of inference mode have none."""
    counted = [tensor for tensor in written if not tensor.is_inference()]
    if counted:
        torch.autograd.graph.increment_version(counted)
