"""What is measured: every operator of the gallery, on the shapes that it is judged by.

A forward case calls the operator as `dotcu bench` does, on inputs that change from call to call. A backward
case differentiates one call again and again, so that every contender keeps for it what it likes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu import gallery
from rivals import peers

EAGER = ("torch eager",)
BF16, F32 = torch.bfloat16, torch.float32
SIZES = (10, 14, 18, 22, 28)
ROWS = ((32768, 256), (8192, 4096), (4096, 16384))
LONG_ROWS = ((32768, 256), (32768, 1024), (32768, 4096), (8192, 32768), (4096, 131072), (2048, 262144))
VOCABULARIES = ((8192, 32768), (4096, 131072), (2048, 262144))

Peers = dict[str, Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """An operator on one shape.

    Attributes:
        make: Gives the call's arguments, on the GPU.
        moved: How many bytes differentiating moves, of a backward case; a forward one is counted by dotcu.
        percent: Of the limit: the goal, if there is one for this shape.
        plain: torch's own function where the reference gives more than that: a log-sum-exp beside the loss,
            say. Its results are not compared, and bytes are the operator's.
        ahead: Whom it is to be no slower than, if that is not everybody.
        least: The others' time over its own, at least.
        peers: Who else computes the same from the same arguments, beside torch eager and torch.compile.
    """

    op: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], dotcu.Sample]
    backward: bool = False
    moved: int = 0
    percent: float | None = None
    note: str = ""
    plain: Callable[..., Any] | None = None
    ahead: tuple[str, ...] = ()
    least: float = 1.0
    peers: Peers = field(default_factory=dict)

    @property
    def operator(self) -> Any:
        """The operator itself."""
        return getattr(gallery, self.op)

    @property
    def name(self) -> str:
        """As tables have it: `bfloat16 8192x4096 backward`."""
        size = _log2(self.shape[0]) if len(self.shape) == 1 else _by(self.shape)
        words = [str(self.dtype).removeprefix("torch."), size, self.note, "backward" if self.backward else ""]
        return " ".join(word for word in words if word)


def cases() -> Iterator[Case]:
    """All of them, operator by operator."""
    yield from _elementwise()
    yield from _swiglu()
    yield from _sum()
    yield from _softmax()
    yield from _norms()
    yield from _cross_entropy()
    yield from _cumsum()
    yield from _moves()
    yield from _gemv()


def random(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    """Normal numbers: constants draw less power, and so run faster, than these."""
    return torch.randn(shape, dtype=dtype, device="cuda")


def _log2(size: int) -> str:
    """A size beside the nearest power of two: 2^27, 2^27+1."""
    log2 = round(math.log2(size))
    return f"2^{log2}" + (f"{size - 2**log2:+d}" if size != 2**log2 else "")


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)


def _sized(op: str, shape: tuple[int, ...], dtype: torch.dtype, tensors: int = 1, **given: Any) -> Case:
    """A call with some tensors of one shape, and other arguments by keyword."""
    arguments = given.pop("arguments", {})

    def make() -> dotcu.Sample:
        return dotcu.Sample(*(random(*shape, dtype=dtype) for _ in range(tensors)), **arguments)

    return Case(op=op, shape=shape, dtype=dtype, make=make, **given)


def _elementwise() -> Iterator[Case]:
    for op, tensors in (("add", 2), ("fast_add", 2), ("square", 1)):
        for log2 in SIZES:
            yield _sized(op, (2**log2,), F32, tensors, percent=98 if log2 == 28 else None, ahead=EAGER)
        yield _sized(op, (2**28,), BF16, tensors, percent=98, ahead=EAGER)


def _swiglu() -> Iterator[Case]:
    for shape in ((4096, 4096), (16384, 8192)):
        large = shape[0] == 16384
        yield _sized("swiglu", shape, BF16, 2, percent=97 if large else None)
        moved = 5 * 2 * shape[0] * shape[1]
        yield _sized("swiglu", shape, BF16, 2, backward=True, moved=moved, percent=97 if large else None)


def _sum() -> Iterator[Case]:
    for log2 in SIZES:
        yield _sized("sum", (2**log2,), F32, percent=97 if log2 == 28 else None, ahead=EAGER)
    yield _sized("sum", (2**28,), BF16, percent=97, ahead=EAGER)
    for shape, dim in (((32768, 256), -1), ((8192, 32768), -1), ((8192, 32768), 0)):
        given: dict[str, Any] = {"arguments": {"dim": dim}, "note": f"dim={dim}", "ahead": EAGER}
        yield _sized("sum", shape, F32, percent=97 if shape[1] > 256 else None, **given)


def _softmax() -> Iterator[Case]:
    for shape in LONG_ROWS:
        goal = 95.0 if shape[1] >= 2048 else 75.0 if shape[1] == 256 else None
        liger = peers.liger("softmax") if shape[1] <= peers.LIGER_COLUMNS else {}
        yield _sized("softmax", shape, BF16, percent=goal, peers=liger)
        moved = 3 * 2 * shape[0] * shape[1]
        yield _sized("softmax", shape, BF16, backward=True, moved=moved, percent=goal, peers=liger)


def _norms() -> Iterator[Case]:
    for op in ("rms_norm", "layer_norm"):
        for shape in ROWS:
            made = _normed(op, shape)
            liger = peers.liger(op)
            elements = shape[0] * shape[1]
            common: dict[str, Any] = {"op": op, "shape": shape, "dtype": BF16, "make": made, "peers": liger}
            yield Case(percent=95 if shape[1] >= 2048 else None, **common)
            yield Case(backward=True, moved=3 * 2 * elements, percent=80, **common)
    for shape in ROWS:
        yield Case(op="add_rms_norm", shape=shape, dtype=BF16, make=_normed("add_rms_norm", shape),
                   percent=95 if shape[1] >= 2048 else None)  # fmt: skip


def _normed(op: str, shape: tuple[int, int]) -> Callable[[], dotcu.Sample]:
    rows = 2 if op == "add_rms_norm" else 1
    weights = 2 if op == "layer_norm" else 1

    def make() -> dotcu.Sample:
        tensors = [random(*shape, dtype=BF16) for _ in range(rows)]
        return dotcu.Sample(*tensors, *(random(shape[1], dtype=BF16) for _ in range(weights)))

    return make


def _cross_entropy() -> Iterator[Case]:
    for shape in VOCABULARIES:

        def make(shape: tuple[int, int] = shape) -> dotcu.Sample:
            target = torch.randint(shape[1], (shape[0],), device="cuda")
            return dotcu.Sample(random(*shape, dtype=BF16), target)

        common: dict[str, Any] = {"op": "cross_entropy", "shape": shape, "dtype": BF16, "make": make}
        common["plain"] = torch.nn.functional.cross_entropy
        yield Case(percent=95, **common)
        yield Case(backward=True, moved=2 * 2 * shape[0] * shape[1], percent=90, **common)


def _cumsum() -> Iterator[Case]:
    for log2 in SIZES:
        yield _sized("cumsum", (2**log2,), F32, percent=88 if log2 == 28 else None, ahead=EAGER)
    yield _sized("cumsum", (2**28,), BF16, ahead=EAGER)
    for shape, dim in (((8192, 4096), -1), ((4096, 4096), 0)):
        yield _sized("cumsum", shape, F32, arguments={"dim": dim}, note=f"dim={dim}", ahead=EAGER)


def _moves() -> Iterator[Case]:
    for shape, dtype in (((1024, 1024), BF16), ((16384, 16384), BF16), ((16384, 16384), F32)):
        yield _sized("transpose", shape, dtype, percent=95 if shape[0] > 1024 else None)
    for dims in ((0, 2, 1, 3), (2, 0, 3, 1)):
        given: dict[str, Any] = {"arguments": {"dims": list(dims)}, "note": f"dims={_by(dims)}"}
        yield _sized("permute_copy", (64, 1024, 32, 64), BF16, percent=95, **given)
    for shape in ((32768, 256), (16384, 8192), (4096, 65536)):
        yield _sized("quantize_fp8", shape, BF16, percent=95 if shape[1] > 256 else None)


def _gemv() -> Iterator[Case]:
    for n, k in ((4096, 8192), (8192, 28672)):
        for m in (1, 8, 64):
            yield _multiplied(m, n, k, "", percent=95 if m <= 8 else None)
    for kind in ("e4m3", "int8", "int4"):
        yield _multiplied(8, 16384, 16384, kind, percent=95)
    for n in (64, 256, 512):
        yield _multiplied(8, n, 7168, "router")


def _multiplied(m: int, n: int, k: int, kind: str, **given: Any) -> Case:
    """Few rows times weights: of the same dtype, a router's; or e4m3, int8, int4 by groups of 128."""

    def make() -> dotcu.Sample:
        x, weight = random(m, k, dtype=BF16), random(n, k)
        if kind == "e4m3":
            return dotcu.Sample(x, weight.to(torch.float8_e4m3fn), random(n).abs())
        if kind == "int8":
            return dotcu.Sample(x, weight.mul(40).to(torch.int8), random(n).abs())
        if kind == "int4":
            packed = torch.randint(256, (n, k // 2), dtype=torch.uint8, device="cuda")
            return dotcu.Sample(x, packed, random(n, k // 128).abs())
        return dotcu.Sample(x, weight.to(BF16))

    plain = torch.nn.functional.linear if kind in ("", "router") else None
    return Case(op="gemv", shape=(m, n, k), dtype=BF16, make=make, note=kind, plain=plain, **given)
