"""The rates of GPUs by their datasheets: dense rates, never those with sparsity.

NVIDIA's datasheets give most matrix rates with structured sparsity, which is twice the dense rate; here is
the dense one. A rate holds at a clock, the last but one column: a GPU that runs faster than that can do more.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dotcu.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One GPU: its bandwidth in 10^9 bytes a second, and by dtype the dense rates of its tensor cores and of
    ordinary instructions, at a clock, which is 0 if unknown.
    """

    name: str
    memory_gbps: float
    matrix_tflops: Mapping[str, float] = field(default_factory=dict)
    plain_tflops: Mapping[str, float] = field(default_factory=dict)
    clock_mhz: int = 0
    source: str


_MATRIX = ("float64", "tf32", "float16", "bfloat16", "float8", "int8")


def _sheet(
    names: str, memory_gbps: float, float32: float, float64: float, matrix: tuple[float, ...],
    clock_mhz: int, source: str,
) -> tuple[tuple[str, ...], Sheet]:  # fmt: skip
    spellings = tuple(names.split(", "))
    return spellings, Sheet(
        name=spellings[0], memory_gbps=memory_gbps,
        matrix_tflops={name: rate for name, rate in zip(_MATRIX, matrix, strict=True) if rate},
        plain_tflops={"float32": float32, "float64": float64}, clock_mhz=clock_mhz, source=source,
    )  # fmt: skip


_AMPERE = "NVIDIA A100 Tensor Core GPU datasheet, 2021"
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, table 'H100 GPU specifications'"
_GRACE = "NVIDIA GH200 Grace Hopper Superchip datasheet"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture whitepaper, appendix A"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix A"
_RTX_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A"
_BLACKWELL = "NVIDIA Blackwell datasheet, per GPU, dense rates half of those with sparsity"
_AMPERE_MATRIX = (19.5, 156, 312, 312, 0, 624)
_HOPPER_MATRIX = (66.9, 494.7, 989.4, 989.4, 1978.9, 1978.9)
_HOPPER_NVL_MATRIX = (60, 417.5, 835.5, 835.5, 1670.5, 1670.5)

# Spellings, the first of which is shown; memory in GB/s; plain float32 and float64; matrix rates
# in the order of _MATRIX, 0 where tensor cores do not have the type; the clock of the rates; source.
# GeForce cards multiply halves at half speed where they add up in float32; their float16 and float8 here are
# the faster ones. What datasheets leave out: float64 of cards for graphics is float32's 1/32 on Turing and
# 1/64 after it (CUDA C++ Programming Guide, "Arithmetic Instructions"), clocks are by rate, multiprocessors
# and operations a clock.
_TABLE = (
    _sheet("T4", 320, 8.1, 0.254, (0, 0, 65, 0, 0, 130), 1590, "NVIDIA T4 datasheet"),
    _sheet(
        "V100 SXM2, V100-SXM2-16GB, V100-SXM2-32GB, V100",
        900, 15.7, 7.8, (0, 0, 125, 0, 0, 0), 1530, "NVIDIA V100 datasheet, 2020",
    ),
    _sheet(
        "V100 PCIe, V100-PCIE-16GB, V100-PCIE-32GB",
        900, 14, 7, (0, 0, 112, 0, 0, 0), 1380, "NVIDIA V100 datasheet, 2020",
    ),
    _sheet("A10", 600, 31.2, 0.488, (0, 62.5, 125, 125, 0, 250), 1695, "NVIDIA A10 datasheet"),
    _sheet("A10G", 600, 35, 0.547, (0, 35, 70, 70, 0, 140), 1710, "NVIDIA A10G datasheet"),
    _sheet("A30", 933, 10.3, 5.2, (10.3, 82, 165, 165, 0, 330), 1440, "NVIDIA A30 datasheet"),
    _sheet(
        "A100 40GB, A100-SXM4-40GB, A100-PCIE-40GB", 1555, 19.5, 9.7, _AMPERE_MATRIX, 1410, _AMPERE
    ),
    _sheet("A100 80GB PCIe, A100-PCIE-80GB", 1935, 19.5, 9.7, _AMPERE_MATRIX, 1410, _AMPERE),
    _sheet(
        "A100 80GB SXM, A100-SXM4-80GB, A100 SXM, A100-80GB, A100",
        2039, 19.5, 9.7, _AMPERE_MATRIX, 1410, _AMPERE,
    ),
    _sheet("RTX A6000, A6000", 768, 38.7, 0.605, (0, 77.4, 154.8, 154.8, 0, 309.7), 1800, _GA102),
    _sheet("RTX 3090, 3090", 936, 35.6, 0.556, (0, 35.6, 142, 71, 0, 284), 1695, _GA102),
    _sheet(
        "L4", 300, 30.3, 0.47, (0, 60, 121, 121, 242.5, 242.5), 2040,
        "NVIDIA L4 datasheet, dense rates half of those with sparsity",
    ),
    _sheet("L40S", 864, 91.6, 1.43, (0, 183, 366, 366, 733, 733), 2520, "NVIDIA L40S datasheet"),
    _sheet("RTX 4090, 4090", 1008, 82.6, 1.29, (0, 82.6, 330.3, 165.2, 660.6, 660.6), 2520, _ADA),
    _sheet(
        "RTX 6000 Ada Generation, RTX 6000 Ada, 6000 Ada",
        960, 91.1, 1.42, (0, 182.1, 364.2, 364.2, 728.5, 728.5), 2505,
        "NVIDIA Ada GPU Architecture whitepaper, appendix on professional GPUs",
    ),
    _sheet(
        "RTX 5090, 5090", 1792, 104.8, 1.64, (0, 104.8, 419, 209.5, 838, 838), 2407, _RTX_BLACKWELL
    ),
    _sheet(
        "H100 SXM, H100 80GB HBM3, H100 SXM5, H100-SXM5-80GB, H100",
        3352, 66.9, 33.5, _HOPPER_MATRIX, 1830, _HOPPER,
    ),
    _sheet(
        "H100 PCIe", 2039, 51.2, 25.6, (51.2, 378, 756, 756, 1513, 1513), 1620, _HOPPER
    ),
    _sheet(
        "H100 NVL", 3900, 60, 30, _HOPPER_NVL_MATRIX, 1545,
        "NVIDIA H100 NVL datasheet, dense rates half of those with sparsity",
    ),
    _sheet(
        "H200, H200 SXM, H200 SXM5, H200 141GB HBM3e",
        4800, 66.9, 33.5, _HOPPER_MATRIX, 1830,
        "Peak rates: H200 datasheet, H100 whitepaper",
    ),
    _sheet(
        "H200 NVL", 4800, 60, 30, _HOPPER_NVL_MATRIX, 1545,
        "NVIDIA H200 datasheet, dense rates half of those with sparsity",
    ),
    _sheet("GH200 96GB HBM3, GH200 480GB, GH200", 4000, 66.9, 33.5, _HOPPER_MATRIX, 1830, _GRACE),
    _sheet("GH200 144GB HBM3e, GH200 144G HBM3e", 4900, 66.9, 33.5, _HOPPER_MATRIX, 1830, _GRACE),
    _sheet("B200", 8000, 75, 37, (37, 1100, 2250, 2250, 4500, 4500), 1856, _BLACKWELL),
    _sheet("GB200", 8000, 80, 40, (40, 1250, 2500, 2500, 5000, 5000), 2062, _BLACKWELL),
    _sheet(
        "B300, B300 SXM6 AC, B300 SXM6", 8000, 75, 1.25, (1.25, 1100, 2250, 2250, 4500, 150), 1856,
        _BLACKWELL,
    ),
    _sheet("GB300", 8000, 80, 1.39, (1.39, 1250, 2500, 2500, 5000, 165), 2062, _BLACKWELL),
)  # fmt: skip

SHEETS: tuple[Sheet, ...] = tuple(sheet for _, sheet in _TABLE)


def _squeezed(name: str) -> str:
    """A name as all its spellings have it: `NVIDIA H100 80GB HBM3` is `h10080gbhbm3`."""
    words = re.sub(r"\b(nvidia|tesla|geforce)\b", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", words)


_BY_NAME = {_squeezed(spelling): sheet for spellings, sheet in _TABLE for spelling in spellings}


def find(name: str) -> Sheet | None:
    """Return the datasheet of a GPU by its whole name, of NVML or of a user; None if there is none."""
    return _BY_NAME.get(_squeezed(name))


def named(name: str) -> Sheet:
    """Return the datasheet that a user asked for; UsageError with the nearest if there is none."""
    found = find(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(_squeezed(name), _BY_NAME, n=1, cutoff=0.0)
    raise UsageError(
        f"gpu={name!r}: no datasheet of that name is known here.\n"
        f"Known are {', '.join(sheet.name for sheet in SHEETS)}.\n"
        f"Type: --gpu {_BY_NAME[near[0]].name if near else SHEETS[-1].name!r}"
    )


def of_device(device: Any, *, sm_mhz: int = 0) -> Sheet | None:
    """Return the highest rates of a GPU of this machine; None without a datasheet and a known bandwidth.

    Where `sm_mhz`, its highest clock by NVML, is above that of the sheet, so are its rates.
    """
    import torch

    name, own_gbps = torch.cuda.get_device_name(device), theoretical_bandwidth(device)
    sheet = find(name)
    if sheet is not None:
        faster = max(1.0, sm_mhz / sheet.clock_mhz)
        return replace(
            sheet,
            memory_gbps=max(sheet.memory_gbps, own_gbps),
            matrix_tflops={name: rate * faster for name, rate in sheet.matrix_tflops.items()},
            plain_tflops={name: rate * faster for name, rate in sheet.plain_tflops.items()},
        )
    if not own_gbps:
        return None
    source = "its memory's clock and the width of its bus, from the driver"
    return Sheet(name=name, memory_gbps=own_gbps, source=source)


def theoretical_bandwidth(device: Any) -> float:
    """Return the bandwidth of a GPU's memory by its clock (both edges) and its bus, in GB/s; 0 if unknown."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    clock_khz, bits = (getattr(properties, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    return float(2 * clock_khz * 1e3 * bits / 8 / 1e9)
