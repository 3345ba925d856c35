"""cuTile Python kernels in `simulate()`: the Tile IR that cuTile emits, run by dotcu's interpreter of it.

cuTile's front end makes Tile IR of a kernel without a GPU and without `tileiras`
(`cuda.tile.compilation.export_kernel`). What it has to know of the arguments is found here as its own
launches find it on a GPU: contiguous dimensions, and what addresses, shapes and strides are multiples of.

Two things have no public way in cuTile, and may change without notice:

- `cuda.tile.launch` is replaced while a run is in force. `from cuda.tile import launch` before that keeps
  cuTile's own, which needs a GPU.
- The Python function of a kernel, whose annotations say which arguments are constants, is in
  `kernel._annotated_function`. Without it, every argument that is a bool, or not a tensor or a number, is
  taken as a constant.

Source: cuda/tile/compilation, cuda/tile/_execution.py; seen in cuTile Python 1.7.0.
"""

from __future__ import annotations

import io
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cuda.tile as ct
import torch
from cuda.tile import compilation

from dotcu.errors import ArgumentError, UsageError
from dotcu.kernel.languages.arguments import LaunchArguments
from dotcu.kernel.languages.replacing import Replacement
from dotcu.kernel.simulated_memory import active_run, capability_of, print_output
from dotcu.simulator.tile.launch import TileProgram, launch_tile

BYTECODE = "13.3"
"""The newest version of Tile IR that dotcu reads and cuTile writes."""
ALIGNED_BYTES = 16
"""What cuTile finds out about addresses, shapes and strides: whether they are multiples of it."""
MAX_PROGRAMS = 256

DTYPES = {
    torch.bool: "bool_", torch.uint8: "uint8", torch.uint16: "uint16", torch.uint32: "uint32",
    torch.uint64: "uint64", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.float16: "float16", torch.float32: "float32", torch.float64: "float64",
    torch.bfloat16: "bfloat16", torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2",
}  # fmt: skip
"""cuTile's names of torch's types."""


_programs: dict[tuple[Any, str, str], TileProgram] = {}


def compiled(kernel: Any, signature: Any, gpu_code: str) -> TileProgram:
    """Return a kernel's Tile IR for arguments of a kind, and an architecture."""
    key = kernel, signature.with_mangled_symbol(signature.symbol).symbol, gpu_code
    if key not in _programs:
        if len(_programs) == MAX_PROGRAMS:
            _programs.clear()
        file = io.BytesIO()
        compilation.export_kernel(
            kernel,
            [signature],
            file,
            gpu_code=gpu_code,
            output_format="tileir_bytecode",
            bytecode_version=BYTECODE,
        )
        _programs[key] = TileProgram.parse(file.getvalue())
    return _programs[key]


class TileArguments(LaunchArguments):
    """Arguments, and what cuTile compiles for because of them."""

    def __init__(self, kernel: str) -> None:
        super().__init__(kernel)
        self.constraints: list[Any] = []

    def add(self, label: str, value: Any, annotation: Any) -> None:
        """Pack an argument as cuTile's calling convention has it, and note its kind."""
        marks = typing.get_args(annotation)[1:] if typing.get_origin(annotation) is typing.Annotated else ()
        self.constraints.append(self._added(label, value, marks))

    def _added(self, label: str, value: Any, marks: Sequence[Any]) -> Any:
        if any(isinstance(mark, ct.ConstantAnnotation) for mark in marks) or isinstance(value, bool):
            return value
        if isinstance(value, tuple):
            return compilation.TupleConstraint(
                [self._added(f"{label}[{number}]", each, ()) for number, each in enumerate(value)]
            )
        if isinstance(value, torch.Tensor):
            index = next((m.index_dtype for m in marks if isinstance(m, ct.ArrayAnnotation)), None)
            return self._array(label, value, index or ct.int32)
        if isinstance(value, int):
            wide = any(getattr(mark, "dtype", None) is ct.int64 for mark in marks)
            self.put(label, "q" if wide else "i", value)
            return compilation.ScalarConstraint(ct.int64 if wide else ct.int32)
        if isinstance(value, float):
            self.put(label, "f", value)
            return compilation.ScalarConstraint(ct.float32)
        return compilation.ConstantConstraint(value)

    def _array(self, label: str, tensor: torch.Tensor, index: Any) -> Any:
        """Pass a tensor: its address, its shape, its strides."""
        if tensor.dtype not in DTYPES:
            raise ArgumentError(
                f"The argument {label} of {self.kernel} is a tensor of {tensor.dtype}, which cuTile does not "
                f"take.\nIt takes {', '.join(str(each) for each in DTYPES)}.\nConvert it: {label}.to(...)"
            )
        address, form = self.address(label, tensor), "q" if index is ct.int64 else "i"
        self.put(label, "Q", address)
        for number in (*tensor.shape, *tensor.stride()):
            self.put(label, form, number)
        unit = max(1, ALIGNED_BYTES // tensor.itemsize)
        return compilation.ArrayConstraint(
            getattr(ct, DTYPES[tensor.dtype]),
            tensor.ndim,
            index_dtype=index,
            stride_lower_bound_incl=0,
            alias_groups=("tensors",),
            may_alias_internally=False,
            stride_constant=[1 if stride == 1 else None for stride in tensor.stride()],
            stride_divisible_by=[unit if stride % unit == 0 else 1 for stride in tensor.stride()],
            shape_divisible_by=[unit if size % unit == 0 else 1 for size in tensor.shape],
            base_addr_divisible_by=ALIGNED_BYTES if address % ALIGNED_BYTES == 0 else 1,
        )


def launch(
    stream: Any, grid: Sequence[int], kernel: Any, kernel_args: Sequence[Any], /, **options: Any
) -> None:
    """Run a kernel in the simulator where this thread has a run, in place of `cuda.tile.launch`.

    Args:
        stream: The stream of a GPU; the simulator has none.
        grid: Tile blocks, in one to three dimensions.
        kernel: What `cuda.tile.kernel` made.
        kernel_args: The arguments, tensors on the CPU among them.
        options: More options of `cuda.tile.launch`.
    """
    run = active_run()
    if run is None:
        _launch.original(stream, grid, kernel, kernel_args, **options)
        return
    function = getattr(getattr(kernel, "_annotated_function", None), "pyfunc", None)
    hints = typing.get_type_hints(function, include_extras=True) if function else {}
    code = getattr(function, "__code__", None)
    labels = (
        code.co_varnames[: code.co_argcount] if code else [f"argument {n}" for n in range(len(kernel_args))]
    )
    name = getattr(function, "__name__", "kernel")
    if len(kernel_args) != len(labels):
        raise UsageError(
            f"{name} was launched with {len(kernel_args)} arguments.\nIt takes {len(labels)}: "
            f"{', '.join(labels)}.\nPass those: ct.launch(stream, grid, {name}, ({', '.join(labels)}))."
        )
    given = TileArguments(name)
    for label, value in zip(labels, kernel_args, strict=True):
        given.add(label, value, hints.get(label))
    convention = compilation.CallingConvention.cutile_python_v1()
    signature = compilation.KernelSignature(given.constraints, convention, name)
    x, y, z = (*grid, 1, 1)[:3]
    printed = len(run.output)
    try:
        launch_tile(
            compiled(kernel, signature, "sm_{}{}".format(*capability_of(run.arch))),
            name,
            params=given.packed,
            memory=given.memory,
            grid=(x, y, z),
            run=run,
            kernel=name,
            parameter_names=tuple(given.names),
        )
    finally:
        print_output(run, printed)


_launch = Replacement(("cuda.tile",), "launch", launch)


@contextmanager
def simulated() -> Iterator[None]:
    """Take the launches of cuTile's kernels into the simulator, in threads that have a run."""
    with _launch.in_force():
        yield
