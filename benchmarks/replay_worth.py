"""Measure what replay is worth: each operator of the gallery, replayed and with its body run each time.

    python benchmarks/replay_worth.py [--save FILE] [--rounds N] [--calls N] [--only NAME ...]

Two operators are made of every body, alike but for `cache_calls=False`; so both live in one process. They are
called on 64 x 256 elements without gradients, alternating, and compared bit for bit before. A time is of the
host alone, in microseconds per call; a ratio is the median of the rounds' ratios. The geometric mean is over
the operators that have a plan; for the others the table has the reason.

Exit codes: 0 measured, 1 an operator could not be measured, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch.utils._pytree import tree_leaves

import dotcu
from calls.host import machine
from calls.report import console
from calls.stats import Spread, ratios, spread
from calls.timing import Skipped, Timed, first_line, measure
from dotcu import gallery

ROWS, COLUMNS = 64, 256
ELSEWHERE = {
    *("attention", "attention_backward", "attention_decode", "attention_varlen", "attention_varlen_backward"),
    *("gemv", "grouped_matmul", "matmul_fp8", "matmul_swiglu"),
    *("all_reduce", "all_reduce_", "all_reduce_add_rms_norm", "reduce_scatter"),
}
"""What attention.py, matmul.py, gallery.py and several_gpus.py measure: operators of half types and of eight
bits, and over several GPUs."""

BODY, REPLAYED = "body each time", "replayed"


@dataclass(frozen=True, kw_only=True)
class Worth:
    """One operator's figures.

    Attributes:
        ratio: Of the body's time to that of the replayed call; None where no call was replayed.
        reason: Why not.
    """

    name: str
    body_us: Spread
    replayed_us: Spread
    ratio: Spread | None
    reason: str


def samples(device: torch.device) -> dict[str, dotcu.Sample]:
    """Make a call of each operator and overload, by name."""
    sample = dotcu.Sample
    x, y, z, out = (torch.randn(ROWS, COLUMNS, device=device) for _ in range(4))
    weight, bias = torch.randn(2, COLUMNS, device=device)
    target = torch.randint(COLUMNS, (ROWS,), device=device)
    one, zeros = torch.ones((), device=device), torch.zeros(ROWS, device=device)
    other, product = y.view(COLUMNS, ROWS), torch.empty(ROWS, ROWS, device=device)
    return {
        "dotcu::add": sample(x, y),
        "dotcu::add.out": sample(x, y, out=out),
        "dotcu::add.Scalar": sample(x, 2.5),
        "dotcu::add.Scalar_out": sample(x, 2.5, out=out),
        "dotcu::add_rms_norm": sample(x, y, weight),
        "dotcu::cross_entropy": sample(x, target),
        "dotcu::cross_entropy_backward": sample(one, zeros, x, target, x.logsumexp(-1)),
        "dotcu::cumsum": sample(x),
        "dotcu::fast_add": sample(x, y),
        "dotcu::fast_add.out": sample(x, y, out=out),
        "dotcu::layer_norm": sample(x, weight, bias),
        "dotcu::layer_norm_backward": sample(y, x, weight),
        "dotcu::matmul": sample(x, other),
        "dotcu::matmul.out": sample(x, other, out=product),
        "dotcu::permute_copy": sample(x.view(ROWS, 16, 16), [0, 2, 1]),
        "dotcu::quantize_fp8": sample(x),
        "dotcu::reverse_cumsum": sample(x),
        "dotcu::rms_norm": sample(x, weight),
        "dotcu::rms_norm_backward": sample(y, x, weight),
        "dotcu::softmax": sample(x),
        "dotcu::softmax_backward": sample(y, x.softmax(-1)),
        "dotcu::square": sample(x),
        "dotcu::square.out": sample(x, out=out),
        "dotcu::sum": sample(x),
        "dotcu::sum.out": sample(x, out=torch.empty((), device=device)),
        "dotcu::swiglu": sample(x, y),
        "dotcu::swiglu_backward": sample(z, x, y),
        "dotcu::transpose": sample(x),
    }


def overloads() -> dict[str, Any]:
    """Return every operator and overload of the gallery, by name, but those with a benchmark of their own."""
    operators = [
        getattr(gallery, name) for name in gallery.__all__ if "_tile" not in name and name not in ELSEWHERE
    ]
    return {each.qualified_name: each for operator in operators for each in operator.overloads.values()}


def twin(overload: Any, *, cache_calls: bool) -> Any:
    """Make an operator of the same body."""
    name = overload.qualified_name.partition("::")[2].replace(".", "_")
    way = "replayed" if cache_calls else "body"
    qualified, mutates = f"replay_worth::{name}_{way}", overload.signature.mutates
    return dotcu.op(qualified, mutates_args=mutates, cache_calls=cache_calls)(overload.body)


def compute(operator: Any, sample: dotcu.Sample) -> list[Tensor]:
    """Return copies of what a call gives, as bytes; the third call, which is replayed where one is."""
    for _ in range(3):
        for name in operator.signature.outs:
            sample.kwargs[name].fill_(torch.nan)
        result = operator(*sample.args, **sample.kwargs)
    return [tensor.clone().reshape(-1).view(torch.uint8) for tensor in tree_leaves(result)]


def measure_worth(overload: Any, sample: dotcu.Sample, *, rounds: int, calls: int) -> Worth | Skipped:
    """Compare and time both ways of one operator."""
    name = overload.qualified_name
    try:
        body, replayed = twin(overload, cache_calls=False), twin(overload, cache_calls=True)
        pairs = zip(compute(body, sample), compute(replayed, sample), strict=True)
        if not all(torch.equal(a, b) for a, b in pairs):
            return Skipped(name=name, reason="the results differ")
    except Exception as error:  # the other operators are still worth having
        return Skipped(name=name, reason=first_line(error))
    args, kwargs = sample.args, dict(sample.kwargs)
    times = measure(
        [
            Timed(name=BODY, call=lambda: body(*args, **kwargs)),
            Timed(name=REPLAYED, call=lambda: replayed(*args, **kwargs)),
        ],
        rounds=rounds,
        calls=calls,
    )
    plans = replayed.call_cache.recorded
    return Worth(
        name=name,
        body_us=spread(times[BODY]),
        replayed_us=spread(times[REPLAYED]),
        ratio=spread(ratios(times, BODY, REPLAYED)) if plans else None,
        reason="" if plans else "; ".join(map(str, replayed.call_cache.reasons)),
    )


def geometric_mean(results: Sequence[Worth | Skipped]) -> float | None:
    """Return the mean of the ratios that there are."""
    found = [each.ratio.median for each in results if isinstance(each, Worth) and each.ratio]
    return statistics.geometric_mean(found) if found else None


def show(results: Sequence[Worth | Skipped]) -> None:
    """Print a table and the mean."""
    table = Table("operator", title=f"one call, {ROWS} x {COLUMNS} elements: microseconds of the host")
    for heading in (BODY, REPLAYED, "ratio", "quartiles"):
        table.add_column(heading, justify="right")
    table.add_column("reason")
    for each in results:
        if isinstance(each, Skipped):
            table.add_row(each.name, "skipped", "", "", "", each.reason)
            continue
        figures = [f"{each.body_us.median:.2f}", f"{each.replayed_us.median:.2f}", "", ""]
        if each.ratio is not None:
            figures[2:] = f"{each.ratio.median:.3f}", f"{each.ratio.p25:.3f} to {each.ratio.p75:.3f}"
        table.add_row(each.name, *figures, each.reason)
    console.print(table)
    mean = geometric_mean(results)
    if mean is not None:
        console.print(f"geometric mean of the ratios: {mean:.3f}")


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--rounds", type=int, default=20, help="rounds over both ways of an operator (20)")
    parser.add_argument("--calls", type=int, default=100, help="calls of each in a round, at most 200 (100)")
    parser.add_argument("--only", nargs="+", help="operators whose names contain one of these words")
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.calls <= 200:  # 1024 launches are queued; a body has up to four
        parser.error("--rounds takes 1 or more, --calls 1 to 200")
    options.names = [
        name for name in overloads() if not options.only or any(word in name for word in options.only)
    ]
    if not options.names:
        parser.error("--only takes a part of a name that there is")
    return options


def main() -> int:
    """Measure every operator, print, save."""
    options = read_options()
    if not torch.cuda.is_available():
        print("replay_worth.py times launches on a GPU, and torch sees none here.", file=sys.stderr)
        return 3
    called, found = samples(torch.device("cuda")), overloads()
    results = [
        measure_worth(found[name], called[name], rounds=options.rounds, calls=options.calls)
        for name in options.names
    ]
    show(results)
    if options.save:
        document = {
            "version": 1,
            "command": " ".join(["python", *sys.argv]),
            "machine": machine(),
            "shape": [ROWS, COLUMNS],
            "rounds": options.rounds,
            "calls": options.calls,
            "geometric_mean": geometric_mean(results),
            "results": [asdict(each) for each in results],
        }
        options.save.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if any(isinstance(each, Skipped) for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
