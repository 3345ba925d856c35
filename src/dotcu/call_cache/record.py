"""Recorded calls: what one call of an operator allocates and launches, as expressions of its arguments.

Tracing a body once makes one (`trace.py`). It holds for every call whose arguments have the same types
(`keys`) and whose sizes, strides and numbers take the same branches (`guards`). It is data: native code
runs it, `evaluate.py` runs it in Python, and the debug mode compares it with the body.

    steps        values 0, 1, 2, ... one for each step, integers of 64 bits or doubles
    guards       (step, integer): the value that each must have, else the recording does not fit
    allocations  what the body allocates with torch.empty and similar functions
    launches     with their parameters: constant bytes, and fields to fill in
    results      the allocations that the call returns

A step that cannot be computed exactly (an integer beyond 64 bits, a division by zero, an integer
beyond 2^53 turned into a double) means that the recording does not fit. Then the body runs, and Python
computes or raises.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from dotcu.kernel.arguments.tensor_map import Tiled

Step = int
"""The index of a step, and of its value."""


class Unsupported(Exception):
    """A body or a call that cannot be recorded, for the reason that the message gives."""


class StepOp(enum.IntEnum):
    """The operation of a step on `a` and `b`: steps, unless noted. Native code has the same numbers."""

    # Leaves.
    INT = 0  # value: the constant
    FLOAT = 1  # value: the constant
    SIZE = 2  # a: argument, b: dimension
    STRIDE = 3  # a: argument, b: dimension
    NUMEL = 4  # a: argument
    OFFSET = 5  # a: argument; its storage offset in elements
    ADDRESS = 6  # a: argument; the address of its first element
    CONTIGUOUS = 7  # a: argument; 1 if torch calls it contiguous, else 0
    INT_ARGUMENT = 8  # a: argument
    FLOAT_ARGUMENT = 9  # a: argument
    MULTIPROCESSORS = 10  # of the GPU; only in traces without launches: others are for one device

    # Integers, with Python's meaning: // and % round towards minus infinity.
    ADD = 16
    SUB = 17
    MUL = 18
    FLOORDIV = 19
    MOD = 20
    NEG = 21
    ABS = 22
    MIN = 23
    MAX = 24
    LSHIFT = 25
    RSHIFT = 26
    AND = 27
    OR = 28
    XOR = 29
    EQ = 32  # comparisons give 0 or 1
    NE = 33
    LT = 34
    LE = 35
    GT = 36
    GE = 37

    # Doubles.
    TO_FLOAT = 48  # of an integer of at most 53 bits
    FADD = 49
    FSUB = 50
    FMUL = 51
    FDIV = 52
    FNEG = 53
    FABS = 54
    FEQ = 56  # comparisons give the integers 0 or 1
    FNE = 57
    FLT = 58
    FLE = 59
    FGT = 60
    FGE = 61
    SAME = 62  # 1 if two doubles have the same bits
    TRUNC = 63  # double to integer, towards zero; must fit 64 bits
    FLOOR = 64
    CEIL = 65


class RecordedStep(NamedTuple):
    """One step."""

    op: StepOp
    a: int = 0
    b: int = 0
    value: int | float = 0


@dataclass(frozen=True, kw_only=True)
class TensorKey:
    """A tensor argument of this dtype, number of dimensions and device."""

    dtype: torch.dtype
    dim: int
    device: torch.device


ConstantKey = tuple[object]
"""An argument of exactly this value: None, a bool, str, dtype, device, or a tuple of ints for a list."""

Key = TensorKey | ConstantKey | type[int] | type[float]
"""The type or value of an argument; `int` and `float` stand for any number of that type."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Memory that the body allocates.

    Attributes:
        sizes: One step for each dimension; in `evaluate.Effects`, its value.
        strides: The same, in elements.
        zeroed: True if it is filled with zeros, else it is uninitialized.
    """

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Step, ...]
    strides: tuple[Step, ...]
    zeroed: bool = False


class FieldKind(enum.IntEnum):
    """The type of a field of a launch's parameters. Native code has the same numbers."""

    ARGUMENT_ADDRESS = 0  # of argument `source`, plus the bytes of `step`
    ALLOCATION_ADDRESS = 1  # of allocation `source`, plus the same
    INT8 = 2  # the value of `step`; where that does not fit, neither does the recorded call
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9  # of a value that is not negative
    FLOAT32 = 10  # rounded to nearest even; a finite value that becomes infinite does not fit
    FLOAT64 = 11


@dataclass(frozen=True, kw_only=True)
class Field:
    """A part of a launch's parameters that depends on the call.

    Attributes:
        offset: In bytes, from the start of `Launch.parameters`.
        source: The argument or the allocation of an address.
        step: The value to write, or the bytes to add to an address; -1 for none. In `evaluate.Effects`,
            these bytes.
    """

    offset: int
    kind: FieldKind
    source: int = 0
    step: Step = -1


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch.

    Attributes:
        kernel: Its name, for messages.
        function: The driver's CUfunction on the call's device; 0 in the simulator.
        device: The device that runs it.
        parameters: All parameters in one block of memory, with zeros at the fields.
        offsets: The start of each parameter in it, a multiple of 16 bytes.
        fields: The values to fill in; in `evaluate.Effects`, the addresses.
        maps: The tensor maps, each encoded anew in its place, a multiple of 64 bytes: the address, and the
            rest, with steps for sizes and strides; in `evaluate.Effects`, their values.
        grid: One step for each dimension, in blocks; in `evaluate.Effects`, its value. A grid with a zero
            in it runs nothing; one beyond the limits of every GPU does not fit.
        cluster: In blocks; None without clusters.
        most_blocks: For a cooperative launch the blocks that can run at once; more do not fit. Else 0.
    """

    kernel: str
    function: int = field(compare=False)
    device: torch.device
    parameters: bytes
    offsets: tuple[int, ...]
    fields: tuple[Field, ...]
    maps: tuple[tuple[Field, Tiled], ...] = ()
    grid: tuple[Step, Step, Step]
    block: tuple[int, int, int]
    smem_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    programmatic: bool = False
    most_blocks: int = 0


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """The effects of calls with certain types and branches.

    Attributes:
        keys: One for each argument of the schema, in its order.
        device: The device of every tensor argument and allocation.
        results: Indices of allocations.
        single: True if the call returns its one result itself, not in a tuple. A call that writes its
            arguments has no results and returns None.
        writes: The arguments that the schema declares as written: their versions are counted.
        distinct: True if it holds only where no two tensor arguments are the same object.
    """

    keys: tuple[Key, ...]
    device: torch.device
    steps: tuple[RecordedStep, ...]
    guards: tuple[tuple[Step, int], ...]
    allocations: tuple[Allocation, ...]
    launches: tuple[Launch, ...]
    results: tuple[int, ...]
    single: bool
    writes: tuple[int, ...] = ()
    distinct: bool = False
