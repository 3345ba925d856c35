"""A golden case of a tile kernel: its launch, its arguments' element types, and how outputs are compared.

Only NumPy and this folder are needed: the machine that compiles and the one that records have no dotcu.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from golden_compare import told
from golden_recipes import Array as Array
from golden_recipes import Recipe

FOLDER = Path(__file__).parent
SOURCES = FOLDER / "tile"
HEADER = SOURCES / "golden.cuh"
TILE_IR = FOLDER / "recorded" / "tile_ir.npz"
RECORDED = FOLDER / "recorded" / "tile.npz"

DTYPES: Mapping[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits // 8}") for kind in "iu" for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    "bool": np.dtype(np.bool_),
    # kinds that NumPy has not, as bits
    "bf16": np.dtype(np.uint16),
    "e4m3": np.dtype(np.uint8),
    "e5m2": np.dtype(np.uint8),
}
"""How elements of each type lie in an array."""

MANTISSA: Mapping[str, tuple[int, int]] = {
    "f64": (53, -1022),
    "f32": (24, -126),
    "f16": (11, -14),
    "bf16": (8, -126),
    "e4m3": (4, -6),
    "e5m2": (3, -14),
}
"""Significant bits of each floating-point type, and the exponent of its smallest normal number."""


class Data(NamedTuple):
    """An array argument.

    Attributes:
        type: Of its elements, as the kernels spell it.
        recipe: Makes what it holds before the launch.
        compared: The kernel writes it, and it is compared.
    """

    type: str
    recipe: Recipe
    compared: bool = False


def out(type: str, *shape: int) -> Data:
    """Return an argument that the kernel writes; zeros before."""
    return Data(type, lambda seed: np.zeros(shape, DTYPES[type]), compared=True)


def floats(type: str, array: Array) -> Array:
    """Return elements as float64."""
    if type == "bf16":
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif type == "e5m2":
        array = (array.astype(np.uint16) << np.uint16(8)).view(np.float16)
    elif type == "e4m3":
        exponent, fraction = (array >> 3 & 15).astype(int), (array & 7).astype(float)
        value = np.where(exponent > 0, np.ldexp(8 + fraction, exponent - 10), np.ldexp(fraction, -9))
        value = np.where(array & 127 == 127, np.nan, value)
        return np.where(array & 128, -value, value)
    with np.errstate(invalid="ignore"):  # NaN that signals
        return array.astype(np.float64)


def ulp(type: str, values: Array) -> Array:
    """Return the unit in the last place of a type at float64 values."""
    digits, lowest = MANTISSA[type]
    finite = np.where(np.isfinite(values), values, 0.0)
    exponent = np.frexp(finite)[1] - 1
    return np.ldexp(1.0, np.where(finite == 0, lowest, np.maximum(exponent, lowest)) - digits + 1)


class Bound(NamedTuple):
    """How far an output of the interpreter may be from the recorded one.

    Attributes:
        ulps: In units in the last place of the output's type.
        absolute: Added to that.
        source: Where the bound is from.
        where: From the inputs, which elements are defined at all; all where it is not given.
    """

    ulps: float = 0.0
    absolute: float = 0.0
    source: str = "the dialect defines each bit"
    where: Callable[[Mapping[str, Array]], Array] | None = None


EXACT = Bound()


@dataclass(frozen=True, kw_only=True)
class TileCase:
    """One kernel and one launch of it.

    Attributes:
        name: Of the case; the kernel's name expression unless two cases share a kernel.
        file: The source, without .cu.
        kernel: The name expression.
        args: By parameter, in order; a scalar is of NumPy's type of that width.
        grid: Tile blocks.
        bounds: By output; those not named are compared bit for bit.
    """

    name: str
    file: str
    kernel: str
    args: Mapping[str, Data | np.generic]
    grid: tuple[int, int, int]
    bounds: Mapping[str, Bound]

    def arrays(self) -> dict[str, Array]:
        """Return what each array argument holds before the launch."""
        made = {}
        for i, (name, argument) in enumerate(self.args.items()):
            if isinstance(argument, Data):  # recipes take the first operand by its seed's first letter
                made[name] = np.ascontiguousarray(argument.recipe(f"{'abcdefgh'[i]} {self.name}"))
        return made

    @property
    def outputs(self) -> dict[str, str]:
        """The element type of each argument that is compared."""
        return {n: a.type for n, a in self.args.items() if isinstance(a, Data) and a.compared}

    @property
    def inputs_digest(self) -> str:
        """Of all that the kernel is given: what a recording was made with."""
        digest = hashlib.sha256(f"{self.kernel} {self.grid}".encode())
        for name, argument in self.args.items():
            if isinstance(argument, np.generic):
                digest.update(f"{name} {argument.dtype.str}".encode() + argument.tobytes())
        for name, array in self.arrays().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()[:16]

    def difference(self, given: Mapping[str, Array], recorded: Mapping[str, Array]) -> str:
        """Return what differs between two runs' outputs, empty where nothing does."""
        found = []
        for name, type_ in self.outputs.items():
            bound = self.bounds.get(name, EXACT)
            wrong = differs(type_, given[name], recorded[name], bound)
            if bound.where is not None:
                wrong &= bound.where(self.arrays())
            if wrong.any():
                found.append(told(wrong, given[name], recorded[name], name))
        return "\n".join(found)


def case(
    file: str,
    kernel: str,
    args: Mapping[str, Data | np.generic],
    *,
    grid: tuple[int, ...] = (1,),
    bounds: Mapping[str, Bound] | Bound = EXACT,
    name: str = "",
) -> TileCase:
    """Return a case; one bound stands for each output."""
    if isinstance(bounds, Bound):
        bounds = {n: bounds for n, a in args.items() if isinstance(a, Data) and a.compared}
    wide = (*grid, 1, 1)[:3]
    return TileCase(
        name=name or kernel,
        file=file,
        kernel=kernel,
        args=args,
        grid=(wide[0], wide[1], wide[2]),
        bounds=bounds,
    )


def elementwise(
    file: str, kernel: str, inputs: Mapping[str, tuple[str, Recipe]], result: str, bound: Bound = EXACT
) -> TileCase:
    """Return a case of 128 elements, or of 256 for each value of an fp8 type.

    Args:
        file: The source.
        kernel: The name expression.
        inputs: The element type and recipe of each operand.
        result: The element type of the output.
        bound: For the output.
    """
    blocks = 2 if any(t in ("e4m3", "e5m2") for t, _ in inputs.values()) else 1
    args = {name: Data(type_, recipe) for name, (type_, recipe) in inputs.items()}
    return case(file, kernel, {**args, "out": out(result, 128 * blocks)}, grid=(blocks,), bounds=bound)


def differs(type: str, given: Array, recorded: Array, bound: Bound = EXACT) -> Array:
    """Return where elements are further apart than a bound; NaN equals NaN, 0 is not -0 if bits count.

    Args:
        type: Of the elements.
        given: The interpreter's.
        recorded: The hardware's.
        bound: Zero for bit for bit.
    """
    if type not in MANTISSA:
        return np.asarray(given != recorded)
    x, y = floats(type, given), floats(type, recorded)
    same = np.isnan(x) & np.isnan(y)
    if bound.ulps == 0 and bound.absolute == 0:
        return ~(same | ((x == y) & (np.signbit(x) == np.signbit(y))))
    with np.errstate(invalid="ignore"):  # infinity less itself
        apart = np.abs(x - y)
    unit = np.maximum(ulp(type, x), ulp(type, y))
    # An infinity is one step from the largest finite number.
    return np.asarray(~(same | (x == y) | (apart <= bound.ulps * unit + bound.absolute)))


def planes(array: Array) -> bytes:
    """Return an array's bytes, first those that come first in each element: they compress better."""
    return np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T).tobytes()


def from_planes(data: bytes, like: Array) -> Array:
    """Return the array of that shape and type that `planes` made bytes of."""
    by_plane = np.frombuffer(data, np.uint8).reshape(like.itemsize, -1)
    return np.ascontiguousarray(by_plane.T).view(like.dtype).reshape(like.shape)


def save(path: Path, manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write arrays and a manifest into one compressed file, as one array of bytes.

    Args:
        path: The .npz.
        manifest: What JSON can hold; without the key "index".
        arrays: By name.
    """
    index = {name: array.nbytes for name, array in arrays.items()}
    text = json.dumps({**manifest, "index": index}).encode()
    whole = b"".join(planes(array) for array in arrays.values())
    np.savez_compressed(path, manifest=np.frombuffer(text, np.uint8), bytes=np.frombuffer(whole, np.uint8))


def load(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a saved file's manifest, and each array's bytes, plane by plane."""
    with np.load(path) as data:
        manifest = json.loads(data["manifest"].tobytes())
        whole = data["bytes"].tobytes()
    found, at = {}, 0
    for name, size in manifest["index"].items():
        found[name] = whole[at : at + size]
        at += size
    return manifest, found


def digest(data: bytes) -> str:
    """Return a short name of contents."""
    return hashlib.sha256(data).hexdigest()[:16]


def source_digest(file: str) -> str:
    """Return the digest of a source and of the header that all share."""
    return digest((SOURCES / f"{file}.cu").read_bytes() + HEADER.read_bytes())


def files(cases: Sequence[TileCase]) -> dict[str, list[str]]:
    """Return each source's kernels, in order and each once."""
    found: dict[str, list[str]] = {}
    for case in cases:
        kernels = found.setdefault(case.file, [])
        if case.kernel not in kernels:
            kernels.append(case.kernel)
    return found
