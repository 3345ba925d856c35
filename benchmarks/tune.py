"""What `dotcu tune` takes and finds: a template of plain CUDA with some 200 configurations.

    python benchmarks/tune.py seconds              # the product, eight shapes
    python benchmarks/tune.py exhaustive           # its choices against a search of everything
    python benchmarks/tune.py equal --runs 20      # twenty choices from the start, five over a file
    python benchmarks/tune.py look_up              # what a look-up costs in a body
    python benchmarks/tune.py faults               # configurations that hang, fault, are wrong
    python benchmarks/tune.py gallery              # writes the gallery's files for this GPU

Several may be named, and then share what was tuned. `--save FILE` writes the figures as JSON, joined to those
that the file has of this machine: `--shapes` and `--operators` replace the rows of these, and runs of `equal`
add up. After Ctrl-C, `equal` and `gallery` keep what is done. Needs a GPU. All but those of the gallery are
operators in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from calls.host import machine
from dotcu.benchmark.device import BenchDevice
from dotcu.benchmark.results import Protocol
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.kernel.launch_policy import in_body, observing_every_call, scope_variable
from dotcu.operator import tuned
from dotcu.operator.configurations import values_of, values_text
from dotcu.tuning import session, tune
from dotcu.tuning.report import TuneReport, TuneRow
from dotcu.tuning.session import Session, TuneRequest
from dotcu.tuning.tuner import TuneCase, prepare

SHAPES = (
    "1024x1024:1024x1024", "2048x2048:2048x2048", "512x4096:4096x1024", "256x256:256x256",
    "4096x512:512x4096", "128x2048:2048x2048", "4096x256:256x256", "512x512:512x512",
)  # fmt: skip

EQUAL = {
    "memory": ("scale_ops.py", "scale", "2^24"),
    "product": ("small_ops.py", "matmul", SHAPES[2]),
}
"""Operators whose choices are compared from run to run: file, name and shapes. Memory bounds one of them."""

PRODUCTS = tuple(
    f"{m}x{k}:{k}x{n}"
    for m, k, n in (
        (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (5120, 5120, 5120), (512, 4096, 4096),
        (8192, 4096, 14336),
    )
)  # fmt: skip
HEADS = tuple(
    ":".join([shape] * 3)
    for shape in (
        "4x16x1024x64", "1x16x2048x64", "8x16x2048x64", "1x16x4096x64", "4x16x2048x128", "1x16x4096x128",
        "1x8x8192x128",
    )
)  # fmt: skip

FEW_ROWS = "16x2048", "528x4096", "1056x8192"
"""On both sides of what the rules call few on a GPU of 132 multiprocessors."""

GALLERY = {
    "rms_norm:rms_norm": (
        "65536x128", "32768x768", "16384x1024", "16384x2048", "16384x3072", "8192x4096", "8192x5120",
        "8192x8192", "4096x16384", "64x4096", *FEW_ROWS,
    ),
    "softmax:softmax": (
        "8192x4096", "32768x1024", "4096x16384", "65536x128", "64x4096", "16384x2048", "32768x512",
        "4096x8192", "4096x32768", *FEW_ROWS,
    ),
    "layer_norm:layer_norm": (
        "65536x128", "32768x768", "16384x1024", "16384x1280", "16384x2048", "8192x4096", "8192x8192",
        "64x4096", *FEW_ROWS,
    ),
    "rms_norm:add_rms_norm": (
        "32768x768", "16384x2048", "16384x3072", "8192x4096", "8192x5120", "8192x8192", "64x4096",
    ),
    "softmax:softmax_backward": ("65536x128", "32768x512", "16384x2048", "8192x4096", "4096x16384"),
    "matmul:matmul": PRODUCTS,
    "attention:attention": HEADS,
    "matmul_tile:matmul_tile": PRODUCTS,  # tile kernels need NVRTC of CUDA 13.3
    "attention_tile:attention_tile": HEADS,
}  # fmt: skip
"""Operators of the gallery with configurations, and the shapes that their files are for."""

BUDGET = 10
"""The time of an exhaustive search over that of a search by halves, both without compiling and checking."""

CLOSE = 1.03
"""The share of the best time up to which times are kept beside those of equal choices."""

FINALISTS = 5
"""The fastest of an exhaustive search that are timed again, beside the choice of the other."""

BEGAN = time.monotonic()

MATMUL = r'''
"""A product of float32 matrices, tiled: what a thread, a block and a step compute are configurations."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("matmul.cu")


class Tile(NamedTuple):
    bm: int
    bn: int
    bk: int
    tm: int
    tn: int


@dotcu.op("tuned_example::matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty((m, n))
    t = matmul.configuration(m, n, k)
    grid = dotcu.cdiv(n, t.bn), dotcu.cdiv(m, t.bm)
    kernel = kernels.matmul[t.bm, t.bn, t.bk, t.tm, t.tn]
    kernel(a.contiguous(), b.contiguous(), out, m, n, k, grid=grid, block=t.bm // t.tm * (t.bn // t.tn))
    return out


@matmul.configurations
def _() -> Iterator[Tile]:
    yield Tile(64, 64, 16, 4, 4)
    for bm in (32, 64, 128):
        for bn in (32, 64, 128):
            for bk in (8, 16, 32):
                for tm in (2, 4, 8):
                    for tn in (2, 4, 8):
                        if 32 <= bm // tm * (bn // tn) <= 1024:
                            yield Tile(bm, bn, bk, tm, tn)


@matmul.reference
def _(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@matmul.work
def _(a: Tensor, b: Tensor) -> tuple[int, int]:
    (m, k), n = a.shape, b.shape[1]
    return 4 * (m * k + k * n + m * n), 2 * m * n * k


@matmul.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for m, k, n in ((64, 48, 80), (70, 33, 65)):
        yield dotcu.Sample(torch.randn(m, k, device=device), torch.randn(k, n, device=device))
'''

KERNEL = r"""
template <int BM, int BN, int BK, int TM, int TN>
__global__ __launch_bounds__(BM / TM * (BN / TN)) void matmul(const float* a, const float* b, float* out,
                                                              int m, int n, int k) {
    constexpr int columns = BN / TN, threads = BM / TM * columns;
    __shared__ float as[BK][BM + 4], bs[BK][BN];
    const int top = blockIdx.y * BM, left = blockIdx.x * BN;
    const int row = threadIdx.x / columns * TM, column = threadIdx.x % columns * TN;
    float sum[TM][TN] = {};
    for (int at = 0; at < k; at += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += threads) {
            const int r = top + i / BK, c = at + i % BK;
            as[i % BK][i / BK] = r < m && c < k ? a[(long long)r * k + c] : 0;
        }
        for (int i = threadIdx.x; i < BK * BN; i += threads) {
            const int r = at + i / BN, c = left + i % BN;
            bs[i / BN][i % BN] = r < k && c < n ? b[(long long)r * n + c] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) x[i] = as[p][row + i];
#pragma unroll
            for (int j = 0; j < TN; ++j) y[j] = bs[p][column + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j)
            if (top + row + i < m && left + column + j < n)
                out[(long long)(top + row + i) * n + left + column + j] = sum[i][j];
}
"""

SCALE = r'''
"""An operator that memory bounds: many configurations are as good."""

from typing import NamedTuple

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline("""
template <typename T, int ITEMS>
__global__ void scale(const T* x, T* out, float by, int n) {
    int first = blockIdx.x * blockDim.x * ITEMS + threadIdx.x;
    for (int k = 0; k < ITEMS; ++k) {
        int i = first + k * blockDim.x;
        if (i < n) out[i] = static_cast<T>(by * static_cast<float>(x[i]));
    }
}
""")


class Tile(NamedTuple):
    block: int
    items: int


@dotcu.op("tuned_example::scale")
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    tile = scale.configuration(x.dtype, n)
    grid = dotcu.cdiv(n, tile.block * tile.items)
    kernels.scale[x.dtype, tile.items](x, out, by, n, grid=grid, block=tile.block)
    return out


@scale.configurations
def _():
    yield Tile(256, 1)
    for block in (32, 64, 128, 256, 512, 1024):
        for items in (1, 2, 4, 8):
            yield Tile(block, items)


@dotcu.op("tuned_example::plain")
def plain(x: Tensor, by: float = 2.0) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    tile = Tile(256, 1)
    grid = dotcu.cdiv(n, tile.block * tile.items)
    kernels.scale[x.dtype, tile.items](x, out, by, n, grid=grid, block=tile.block)
    return out


@scale.reference
def _(x, by=2.0):
    return by * x


@scale.samples
def _(device, dtype):
    for n in (64, 1000):
        yield dotcu.Sample(torch.randn(n, device=device, dtype=dtype))
'''

FAULTS = r'''
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline(r"""
template <int KIND>
__global__ void twice(const float* x, float* out, int n, volatile int* flag) {
    static_assert(KIND != 5, "this configuration does not compile");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (KIND == 1) while (*flag == 0) {}
    if (KIND == 2 && i == 0) *(volatile float*)16 = 1;
    if (KIND == 3 && n % 32 && i == n) out[n] = 1;
    if (i < n) out[i] = KIND == 4 && n > 64 ? 0.f / 0.f : 2 * x[i];
}
""")


class Kind(NamedTuple):
    name: str


NAMES = ("good", "hangs", "faults", "writes beyond", "is NaN beyond 64", "does not compile", "good too")


@dotcu.op("tuned_example::twice")
def twice(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kind = NAMES.index(twice.configuration(x.numel()).name)
    flag = x.new_zeros((1,), dtype=torch.int32)
    kernels.twice[kind](x, out, x.numel(), flag, grid=dotcu.cdiv(x.numel(), 128), block=128)
    return out


@twice.configurations
def _() -> Iterator[Kind]:
    for name in NAMES:
        yield Kind(name)


@twice.reference
def _(x: Tensor) -> Tensor:
    return 2 * x


@twice.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for n in (64, 100):
        yield dotcu.Sample(torch.randn(n, device=device))
'''


def _small(text: str) -> str:
    """Return the product with a part of its configurations, as another operator."""
    for all_of, some in (
        ("tuned_example::matmul", "tuned_example::small"),
        ("bk in (8, 16, 32)", "bk in (32,)"),
        ("tm in (2, 4, 8)", "tm in (4, 8)"),
        ("tn in (2, 4, 8)", "tn in (4, 8)"),
    ):
        text = text.replace(all_of, some)
    return text


def write(folder: Path) -> Path:
    """Write the operators into a folder, and return the file of the product."""
    (folder / "matmul.cu").write_text(KERNEL)
    (folder / "matmul_ops.py").write_text(MATMUL)
    (folder / "small_ops.py").write_text(_small(MATMUL))
    (folder / "scale_ops.py").write_text(SCALE)
    (folder / "fault_ops.py").write_text(FAULTS)
    return folder / "matmul_ops.py"


def chosen(file: Path) -> dict[Any, Any]:
    """Return the configuration of each key in a file."""
    of_file = tuned.read(file).operators.values()
    return {entry.key: entry.configuration for entries in of_file for entry in entries}


Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A case whose configurations were gated, to time them again in this process."""

    op: Any
    case: str
    shapes: tuple[str, ...]
    space: list[dict[str, Any]]
    rejected: tuple[int, ...]

    @staticmethod
    def of(op: Any, row: TuneRow, shapes: Sequence[str]) -> Tried:
        """Return the case of a row, which is one of some shapes."""
        space = [dict(values_of(each)) for each in op.tunable.space]
        rejected = tuple(sorted({space.index(dict(each.configuration)) for each in row.rejected}))
        return Tried(op=op, case=row.case, shapes=tuple(shapes), space=space, rejected=rejected)

    @property
    def passed(self) -> list[int]:
        """Those that may be timed."""
        return [each for each in range(len(self.space)) if each not in self.rejected]

    def search(self, *, earlier: int | None = None) -> Figures:
        """Search among those that passed; return the event at the end."""
        events: list[Any] = []
        self._session(earlier=earlier).run(events.append)
        found: Figures = events[-1]
        return found

    def times(self, among: Sequence[int], protocol: Protocol) -> Mapping[int, float]:
        """Return median times in microseconds, in one round of a protocol; results are not looked at."""
        rounds, session.ROUNDS = session.ROUNDS, (protocol,)
        try:
            return {one: time.median_us for one, time in self._session().time(among).items()}
        finally:
            session.ROUNDS = rounds

    def _session(self, earlier: int | None = None) -> Session:
        request = TuneRequest(
            target="", overload=self.op.qualified_name, device="cuda:0", dtype=self.case.partition("-")[0],
            case=self.case, shapes=self.shapes, gated=tuple(self.passed), rejected=self.rejected, default=0,
            earlier=earlier,
        )  # fmt: skip
        return Session(Subject(overload=self.op, device=torch.device("cuda:0"), seed=0), request)


class Runs:
    """The parts of this benchmark, which share what was tuned; `main` has the options."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._product, self._options = write(folder), options
        self._runs, self._shapes = options.runs, tuple(options.shapes)
        self._report: TuneReport | None = None

    def _operator(self, file: str, name: str) -> Any:
        return resolve(f"{self._product.with_name(file)}:{name}")[0][1]

    def _tuned(self) -> TuneReport:
        """Tune the product."""
        if self._report is None:
            op, rows = self._operator("matmul_ops.py", "matmul"), []
            plan = prepare(op, shapes=self._shapes)
            for row in plan.run():
                rows.append(row)
                print(f"{row.case}: {values_text(row.configuration)}, {row.seconds:.1f} s", flush=True)
            self._report = plan.report(rows)
        return self._report

    def seconds(self) -> Figures:
        """Tune the product: seconds, and what its choices are worth."""
        report = self._tuned()
        rows = [
            {"case": row.case, "configuration": dict(row.configuration), "us": row.median_us,
             "over_default": row.over_default, "tied": row.tied, "seconds": round(row.seconds, 1)}
            for row in report.rows
        ]  # fmt: skip
        figures = {"configurations": report.rows[0].candidates, "shapes": len(rows)}
        return {**figures, "seconds": round(report.seconds, 1), "goal_seconds": 90, "rows": rows}

    def exhaustive(self) -> Figures:
        """Time every configuration for long, and the choice once more beside the fastest of them."""
        op = self._operator("matmul_ops.py", "matmul")
        rows: list[Figures] = []
        first, *others = self._tuned().rows  # the first one's seconds are those of compiling, too
        for row in sorted(others or [first], key=lambda row: row.seconds):
            if not rows or time.monotonic() - BEGAN < self._options.within:
                rows.append(self._against_all(Tried.of(op, row, self._shapes), row))
                print(json.dumps(rows[-1]), flush=True)
        return {
            "budget": BUDGET,
            "goal": 1.02,
            "worst": max(row["over_fastest"] for row in rows),
            "rows": rows,
        }

    def _against_all(self, tried: Tried, row: TuneRow) -> Figures:
        winner, began = tried.space.index(dict(row.configuration)), time.monotonic()
        times = tried.times(tried.passed, _for_seconds(min(BUDGET * row.seconds, self._options.most)))
        seconds = time.monotonic() - began
        fastest = sorted(tried.passed, key=lambda each: times.get(each, math.inf))[:FINALISTS]
        last = tried.times(sorted({winner, *fastest}), _blocks(40, calls=10))
        best = min(last, key=lambda each: last[each])
        return {
            "case": row.case, "seconds": round(row.seconds, 1), "exhaustive_seconds": round(seconds, 1),
            "times": round(seconds / row.seconds, 1), "choice": tried.space[winner], "us": last[winner],
            "fastest": tried.space[best], "fastest_us": last[best],
            "over_fastest": round(last[winner] / last[best], 4),
        }  # fmt: skip

    def equal(self) -> Figures:
        """Choose several times from the start, and a quarter as often over a file."""
        return {
            kind: self._choices(self._operator(*EQUAL[kind][:2]), EQUAL[kind][2])
            for kind in self._options.equal
        }

    def _choices(self, op: Any, shapes: str) -> Figures:
        timer = BenchDevice(torch.device("cuda")).timer
        (row,) = prepare(op, shapes=shapes, timer=timer).run()
        before, tried = op.tunable.file.read_bytes(), Tried.of(op, row, [shapes])
        in_file = tried.space.index(dict(row.configuration))
        began = time.monotonic()
        events: list[Figures] = []
        over_file: list[int] = []
        same_bytes: bool | None = None
        with suppress(KeyboardInterrupt):
            for _ in range(self._runs):
                events.append(self._said(tried, tried.search()))
            for _ in range(-(-self._runs // 4)):
                over_file.append(self._said(tried, tried.search(earlier=in_file))["winner"])
            list(prepare(op, shapes=shapes, timer=timer).run())
            same_bytes = op.tunable.file.read_bytes() == before
        seconds = (time.monotonic() - began) / (len(events) + len(over_file))
        us: dict[str, list[float]] = {}
        for event in events:
            for one, interval in event["times"].items():
                if interval["median_us"] <= CLOSE * event["median_us"]:
                    us.setdefault(values_text(tried.space[int(one)]), []).append(interval["median_us"])
        return _with_counts(
            {
                "case": row.case, "configurations": row.candidates, "runs": len(events),
                "chosen": Counter(values_text(tried.space[event["winner"]]) for event in events),
                "over_a_file": len(over_file), "over_a_file_equal": over_file.count(in_file),
                "same_bytes": same_bytes,
                "seconds_of_a_run": round(seconds, 2), "rounds": [event["rounds"] for event in events],
                "us": {text: [round(min(each), 2), round(max(each), 2)] for text, each in us.items()},
            }
        )  # fmt: skip

    def _said(self, tried: Tried, event: Figures) -> Figures:
        """Print what a run has chosen and how far the next ones were, and return it."""
        best = min(each["median_us"] for each in event["times"].values())
        near = {
            values_text(tried.space[int(one)]): [
                round(each[time] / best, 4) for time in ("low_us", "median_us", "high_us")
            ]
            for one, each in sorted(event["times"].items(), key=lambda each: int(each[0]))
            if each["median_us"] <= CLOSE * best
        }
        print(
            f"{values_text(tried.space[event['winner']])}, {event['rounds']} rounds, {best:.2f} us: {near}",
            flush=True,
        )
        return event

    def gallery(self) -> Figures:
        """Tune operators of the gallery, write their files, and time each choice beside the default."""
        timer = BenchDevice(torch.device("cuda")).timer
        rows: list[Figures] = []
        for target in self._options.operators:
            module, _, name = target.partition(":")
            op: Any = resolve(f"dotcu.gallery.{module}.op:{name}")[0][1]
            plan = prepare(op, shapes=GALLERY[target], dtypes=["bfloat16"], timer=timer)
            cases = [case for case in plan.cases if isinstance(case, TuneCase)]
            with suppress(KeyboardInterrupt):
                for case, row in zip(cases, plan.run(), strict=False):
                    found = {"op": name, "case": row.case, "status": row.status, "reason": row.reason}
                    if row.status == "tuned":
                        tried = Tried.of(op, row, GALLERY[target])
                        found |= self._beside_default(tried, case, row)
                        if not row.is_default and ":" not in GALLERY[target][0]:
                            found["with_fewer_rows"] = self._with_fewer_rows(tried, case, row)
                    rows.append(found)
                    print(json.dumps(found), flush=True)
        return {"goal": {"worst": 1.0, "best": 1.05}, "rows": rows}

    def _beside_default(self, tried: Tried, case: TuneCase, row: TuneRow) -> Figures:
        winner = tried.space.index(dict(row.configuration))
        us = tried.times(sorted({winner, case.default}), _blocks(40, calls=10))
        of_default = us.get(case.default)  # None where it was rejected
        return {
            "default": tried.space[case.default], "choice": tried.space[winner], "us": us[winner],
            "default_us": of_default, "over_default": of_default and round(of_default / us[winner], 4),
            "right": row.candidates - len(row.rejected), "seconds": round(row.seconds, 1),
        }  # fmt: skip

    def _with_fewer_rows(self, tried: Tried, case: TuneCase, row: TuneRow) -> float:
        """Return the time of the default over that of a choice for other calls that the entry counts for."""
        rows, n = case.workload.name.partition("-")[2].partition(":")[0].split("x")
        shape = f"{int(rows) * 5 // 8}x{n}"
        (other,) = prepare(tried.op, shapes=shape, dtypes=["bfloat16"]).cases
        assert isinstance(other, TuneCase)
        assert other.key == case.key
        winner = tried.space.index(dict(row.configuration))
        fewer = replace(tried, case=other.workload.name, shapes=(shape,))
        us = fewer.times(sorted({winner, other.default}), _blocks(40, calls=10))
        return round(us.get(other.default, 0) / us.get(winner, math.inf), 4)

    def look_up(self) -> Figures:
        """Time the look-up alone, and calls with and without one, through Python and native."""
        op, plain = self._operator("scale_ops.py", "scale"), self._operator("scale_ops.py", "plain")
        x = torch.randn(1024, device="cuda")
        dtype = x.dtype
        look = op.configuration
        token = scope_variable.set(in_body("tuned_example::scale", 0))
        try:
            alone = _each_us(lambda: look(dtype, 1024)) - _each_us(lambda: dtype)
        finally:
            scope_variable.reset(token)
        calls = {
            "through Python with": _each_us(lambda: _observed(op, x)),
            "through Python without": _each_us(lambda: _observed(plain, x)),
            "native with": _each_us(lambda: op(x)),
            "native without": _each_us(lambda: plain(x)),
        }  # fmt: skip
        torch.cuda.synchronize()
        return {"look_up_us": round(alone, 3), "goal_us": 0.3, "calls_us": calls}

    def faults(self) -> Figures:
        """Tune where configurations hang, fault, or are wrong."""
        report = tune(self._operator("fault_ops.py", "twice"), shapes="100")
        reasons = {values_text(each.configuration): each.reason for each in report.rows[0].rejected}
        return {"seconds": round(report.seconds, 1), "rejected": reasons}


def _with_counts(figures: Figures) -> Figures:
    """Return the figures of equal choices with how many of them are."""
    chosen: Counter[str] = Counter(figures["chosen"])
    return {**figures, "chosen": dict(chosen.most_common()), "equal": max(chosen.values())}


def joined(part: str, old: Figures, new: Figures) -> Figures:
    """Return the figures of a part joined to earlier ones of the same machine."""
    if "rows" in new:
        again = {(row.get("op"), row["case"]) for row in new["rows"]}
        rows = [row for row in old["rows"] if (row.get("op"), row["case"]) not in again] + new["rows"]
        worst = {"worst": max(row["over_fastest"] for row in rows)} if part == "exhaustive" else {}
        return new if part == "seconds" else {**new, **worst, "rows": rows}
    if part == "equal":
        return old | {kind: _added(old[kind], new[kind]) if kind in old else new[kind] for kind in new}
    return new


def _added(old: Figures, new: Figures) -> Figures:
    """Return the figures of the runs of both."""
    us = {
        name: [min(low for low, _ in spans), max(high for _, high in spans)]
        for name in {**old["us"], **new["us"]}
        if (spans := [each["us"][name] for each in (old, new) if name in each["us"]])
    }
    runs = old["runs"] + new["runs"]
    seconds = sum(each["runs"] * each["seconds_of_a_run"] for each in (old, new)) / runs
    return _with_counts(
        {
            **new, "runs": runs, "chosen": Counter(old["chosen"]) + Counter(new["chosen"]), "us": us,
            "over_a_file": old["over_a_file"] + new["over_a_file"],
            "over_a_file_equal": old["over_a_file_equal"] + new["over_a_file_equal"],
            "same_bytes": old["same_bytes"] and new["same_bytes"],
            "seconds_of_a_run": round(seconds, 2), "rounds": old["rounds"] + new["rounds"],
        }
    )  # fmt: skip


def _blocks(count: int, calls: int = 1) -> Protocol:
    return Protocol(
        blocks=count, most_blocks=count, calls=calls, block_s=0.0, warmup_most_s=0.2, most_s=600.0
    )


def _for_seconds(seconds: float) -> Protocol:
    """Return a protocol of blocks of one call of each, for some seconds."""
    return Protocol(
        blocks=100_000, most_blocks=100_000, calls=1, block_s=0.0, warmup_most_s=0.2, most_s=seconds
    )


def _observed(op: Any, x: Any) -> Any:
    with observing_every_call():
        return op(x)


def _each_us(call: Callable[[], Any], count: int = 500) -> float:
    """Return what a call takes on the host, in microseconds: the fastest of many loops, as no queue fills."""
    times = []
    for _ in range(40):
        began = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - began) / count)
        torch.cuda.synchronize()
    return round(min(times) * 1e6, 3)


PARTS = ("seconds", "exhaustive", "equal", "look_up", "faults", "gallery")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--runs", type=int, default=20, help="of equal")
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=SHAPES, help="of the product")
    parser.add_argument(
        "--most", type=float, default=600.0, help="seconds of an exhaustive search of a shape"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=math.inf,
        help="seconds after which exhaustive begins no further shape",
    )
    parser.add_argument(
        "--operators", nargs="*", choices=list(GALLERY), default=list(GALLERY), help="of gallery"
    )
    parser.add_argument("--equal", nargs="*", choices=list(EQUAL), default=list(EQUAL), help="of equal")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args(words)
    figures: Figures = {"machine": {**machine(), "cores": len(os.sched_getaffinity(0))}}
    if args.save and args.save.exists():
        saved = json.loads(args.save.read_text())
        if saved["machine"] != figures["machine"]:
            parser.error(
                f"{args.save} holds figures of another machine, {saved['machine']['gpu']}: name another"
            )
        figures |= saved
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), args)
        for part in args.parts:
            found = getattr(runs, part)()
            figures[part] = joined(part, figures[part], found) if part in figures else found
            print(json.dumps({part: figures[part]}, indent=1), flush=True)
            if args.save:
                args.save.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
