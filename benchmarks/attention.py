"""How fast is the gallery's attention? Beside cuDNN's and FlashAttention of torch, on one Hopper GPU.

Packed sequences beside torch's `varlen_attn`; decode beside SDPA of keys and values that lie in a row
already, and beside reading the cache alone (a sum).

    python benchmarks/attention.py [--budget SECONDS] [--save FILE] [--only WORD ...]
    python benchmarks/attention.py --write FILE

Measured as by benchmarks/tile.py: alternately, on a cold L2, random normal data, by CUDA events; a
ratio is the median of the rounds' ratios, the rival's time over dotcu's. A result is compared with
the rival's before it is timed.

Exit codes: 0 every goal held, 1 one did not, 2 wrong usage, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import tile
from dotcu.gallery import attention, attention_decode, attention_varlen
from rivals import pages


def result_first(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention under the name that benchmarks/tile.py calls."""
    out, lse = attention(q, k, v, causal)
    return out, lse


OPERATORS = SimpleNamespace(attention_tile=result_first)

FORWARD = (
    (2, 16, 8192, 128, True, 0.95), (1, 16, 16384, 128, False, 0.95), (2, 32, 8192, 64, True, 0.95),
    (1, 32, 16384, 64, False, 0.95), (2, 8, 8192, 256, True, 0.95), (1, 8, 16384, 256, False, 0.95),
    (2, 16, 8192, 96, True, None), (2, 10, 8192, 192, True, None), (8, 16, 2048, 128, True, None),
    (32, 16, 512, 128, True, None), (1, 16, 1024, 128, False, None), (32, 16, 512, 64, True, None),
)  # fmt: skip
"""B, H, positions, head dimension, causal, and the least ratio."""

BACKWARD = (
    (2, 16, 8192, 128, True, 0.92), (1, 16, 16384, 128, False, 0.92), (2, 32, 8192, 64, True, None),
    (1, 32, 16384, 64, False, None), (2, 16, 8192, 96, True, None), (8, 16, 2048, 128, True, None),
)  # fmt: skip


MIXED = (1613, 1280, 2911, 1344, 92, 3708, 3255, 2010, 557, 3190, 1, 3041, 888, 0, 2400, 3906)

PACKED: tuple[tuple[str, tuple[int, ...], int, int, bool], ...] = (
    ("0 to 3906", MIXED, 16, 128, True), ("4 of 8192", (8192,) * 4, 16, 128, True),
    ("8192, 63 of 128", (8192, *(128,) * 63), 16, 128, True), ("0 to 3906", MIXED, 16, 64, False),
)  # fmt: skip
"""A name, the lengths of the sequences, heads, head dimension, causal."""

DECODE = (
    (64, 8192, 1, 32, 8, 128, 16, 0.90), (64, 8192, 1, 8, 8, 128, 16, None),
    (64, 8192, 4, 64, 8, 128, 16, None), (64, 8192, 1, 32, 8, 64, 16, None),
    (32, 8192, 1, 16, 8, 256, 16, None), (64, 8192, 1, 32, 8, 128, 256, None),
    (8, 2048, 1, 32, 8, 128, 16, None), (1, 8192, 1, 32, 8, 128, 16, None),
    (1, 131072, 1, 32, 8, 128, 16, None),
)  # fmt: skip
"""B, keys, queries of a sequence, heads of q and of k, head dimension, page size, least share of reading."""


def packed(name: str, lengths: tuple[int, ...], h: int, d: int, causal: bool, backward: bool) -> tile.Case:
    """Packed sequences, beside torch's."""

    def make(ops: Any) -> tuple[tile.Call, dict[str, tile.Call]]:
        from torch.nn.attention.varlen import varlen_attn

        cu = torch.tensor((0, *accumulate(lengths)), dtype=torch.int32, device="cuda")
        q, k, v = (tile.normal(sum(lengths), h, d).requires_grad_(backward) for _ in range(3))
        most, grad = max(lengths), tile.normal(sum(lengths), h, d)
        side = (-1, 0) if causal else (-1, -1)

        def ours() -> Any:
            return attention_varlen(q, k, v, cu, cu, most, most, causal)[0]

        def theirs() -> Any:
            return varlen_attn(q, k, v, cu, cu, most, most, window_size=side)

        if not backward:
            return ours, {"torch varlen": theirs}
        results: tuple[Tensor, Tensor] = ours(), theirs()
        ways = [
            lambda out=out: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)[1] for out in results
        ]
        return ways[0], {"torch varlen": ways[1]}

    flops = (10.0 if backward else 4.0) * h * d * sum(s * s for s in lengths) / (2 if causal else 1)
    words = "backward " if backward else ""
    label = (
        f"attention_varlen {words}{len(lengths)} sequences: {name}, {h}x{d} {'causal' if causal else 'full'}"
    )
    return tile.Case(name=label, make=make, flops=flops)


def decode(b: int, keys: int, tokens: int, h: int, of_k: int, d: int, page: int) -> tile.Case:
    """Queries with a paged cache, beside SDPA of contiguous keys and values, and reading the cache."""

    def make(ops: Any) -> tuple[tile.Call, dict[str, tile.Call]]:
        pages = keys // page
        cache, q = tile.normal(2, b * pages, page, of_k, d), tile.normal(b, tokens, h, d)
        table = torch.randperm(b * pages, device="cuda").int().view(b, pages)
        lengths = torch.full((b,), keys, dtype=torch.int32, device="cuda")
        k, v = (x[table.long()].flatten(1, 2).transpose(1, 2).contiguous() for x in cache)
        queries = q.transpose(1, 2).contiguous()
        mask = None if tokens == 1 else torch.ones(tokens, keys, device="cuda").bool().tril(keys - tokens)

        def sdpa(backend: SDPBackend) -> Tensor:
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(queries, k, v, mask, enable_gqa=h != of_k)
            return out.transpose(1, 2)

        rivals: dict[str, tile.Call] = {"reading": lambda: cache.view(torch.float32).sum()}
        rivals["cuDNN"] = lambda: sdpa(SDPBackend.CUDNN_ATTENTION)
        if tokens == 1:  # it takes no mask
            rivals["FlashAttention"] = lambda: sdpa(SDPBackend.FLASH_ATTENTION)
        return lambda: attention_decode(q, cache[0], cache[1], table, lengths)[0], rivals

    name = f"attention_decode {b}x{tokens} queries, {keys} keys, {h}/{of_k}x{d}, pages of {page}"
    return tile.Case(name=name, make=make)


def cases() -> list[tuple[tile.Case, float | None]]:
    """Every row of the table, and its goal: the least ratio of the first rival."""
    rows = [(tile.attention(b, h, s, d, causal), goal) for b, h, s, d, causal, goal in FORWARD]
    for b, h, s, d, causal, goal in BACKWARD:
        rows.append((tile.attention_backward(b, h, s, d, causal), goal))
    rows += [(packed(*case, backward), None) for backward in (False, True) for case in PACKED]
    return rows + [(decode(*case), goal) for *case, goal in DECODE]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS", help="stop after as many")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with one of these words")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put a run's tables into the README instead"
    )
    options = parser.parse_args()
    if options.write:
        figures = json.loads(options.write.read_text(encoding="utf-8"))
        page = pages.FOLDERS / "attention" / "README.md"
        tables = pages.filled(page.read_text(encoding="utf-8"), pages.of_rows(figures), "attention")
        page.write_text(tables, encoding="utf-8")
        return 0
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        print("no Hopper GPU: the figures are of one")
        return 3
    clock, rows, missed = tile.Clock(deadline=time.monotonic() + options.budget), [], 0
    for case, goal in cases():
        if options.only and not any(word in case.name for word in options.only):
            continue
        if time.monotonic() > clock.deadline:
            print(f"{case.name:44} not measured: the budget of {options.budget:.0f} s is spent")
            missed += goal is not None
            continue
        row: dict[str, Any] = tile.measure(case, OPERATORS, clock) | {"goal": goal}
        rows.append(row)
        held = goal is None or next(iter(row.get("ratio", {}).values()), 0.0) >= goal
        missed += not held
        print(
            tile.line_of(row),
            "" if goal is None else f"goal {goal}: {'held' if held else 'MISSED'}",
            flush=True,
        )
        torch.cuda.empty_cache()
        tile.save(rows, options.save)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
