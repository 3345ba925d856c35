"""Plans: what one call of an operator allocates and launches, as expressions of its arguments.

A plan is made by following a body once (`follow.py`) and holds for every call whose arguments have
the same types (`keys`) and whose sizes, strides and numbers pass the same branches (`guards`). It
is data: native code runs it, `evaluate.py` runs it in Python, and the debug mode compares it with
the body.

    steps        values 0, 1, 2, ... one for each step, integers of 64 bits or doubles
    guards       (step, integer): the value that each must have, else the plan does not fit
    allocations  what the body makes by torch.empty and its kin
    launches     with their parameters: bytes that never change, and fields to fill in
    results      the allocations that the call returns

A step that cannot be computed exactly (an integer beyond 64 bits, a division by zero, an integer
beyond 2^53 turned into a double) means that the plan does not fit. Then the body runs, and says
what Python has to say of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import torch

Step = int
"""The index of a step, which is that of its value."""


class Op(enum.IntEnum):
    """What a step computes of `a` and `b`, which are steps unless said. Native code has the same numbers."""

    # Leaves.
    INT = 0  # value: the constant
    FLOAT = 1  # value: the constant
    SIZE = 2  # a: argument, b: dimension
    STRIDE = 3  # a: argument, b: dimension
    NUMEL = 4  # a: argument
    OFFSET = 5  # a: argument; its storage offset in elements
    ADDRESS = 6  # a: argument; the address of its first element
    CONTIGUOUS = 7  # a: argument; whether torch says that it is contiguous, 0 or 1
    INT_ARGUMENT = 8  # a: argument
    FLOAT_ARGUMENT = 9  # a: argument
    MULTIPROCESSORS = 10  # of the GPU; only where launches do not run: a plan else holds for one device

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
    SAME = 62  # whether two doubles have the same bits
    TRUNC = 63  # double to integer, towards zero; must fit 64 bits
    FLOOR = 64
    CEIL = 65


class Instruction(NamedTuple):
    """One step."""

    op: Op
    a: int = 0
    b: int = 0
    value: int | float = 0


@dataclass(frozen=True, kw_only=True)
class TensorKey:
    """A tensor argument of this dtype, number of dimensions and device."""

    dtype: torch.dtype
    dim: int
    device: torch.device


@dataclass(frozen=True, kw_only=True)
class NumberKey:
    """An int, or a float, of any value: the steps say how it counts."""

    is_float: bool


@dataclass(frozen=True, kw_only=True)
class ConstantKey:
    """An argument of just this value: None, a bool, str, dtype or device, or a tuple of ints for a list."""

    value: object


Key = TensorKey | NumberKey | ConstantKey


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Memory that the body makes.

    Attributes:
        sizes: Steps, one for each dimension.
        strides: Steps, in elements.
        zeroed: Whether it is filled with zeros, else it is left unwritten.
    """

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Step, ...]
    strides: tuple[Step, ...]
    zeroed: bool = False


class FieldKind(enum.IntEnum):
    """What is written into a launch's parameters. Native code has the same numbers."""

    ARGUMENT_ADDRESS = 0  # of argument `source`, plus the bytes that `step` says, where it is one
    ALLOCATION_ADDRESS = 1  # of allocation `source`, plus the same
    INT8 = 2  # the value of `step`; one that does not fit means that the plan does not
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
    """A place in a launch's parameters that depends on the call.

    Attributes:
        offset: In bytes, from the start of `Launch.parameters`.
        source: The argument or the allocation of an address.
        step: What to write, or for an address the bytes to add; -1 for none.
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
        function: The driver's CUfunction on the plan's device; 0 in the simulator.
        device: Where it runs.
        parameters: The parameters in one piece of memory, with zeros at the fields.
        offsets: Where each parameter begins in it; each is 16-byte aligned.
        fields: What to fill in.
        grid: Steps, in blocks. A grid with a zero in it runs nothing; one beyond the limits of every
            GPU does not fit.
        cluster: In blocks; None without clusters.
        most_blocks: For a cooperative launch the blocks that can run at once; more do not fit. Else 0.
    """

    kernel: str
    function: int
    device: torch.device
    parameters: bytes
    offsets: tuple[int, ...]
    fields: tuple[Field, ...]
    grid: tuple[Step, Step, Step]
    block: tuple[int, int, int]
    smem_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    programmatic: bool = False
    most_blocks: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What calls with certain types and branches do.

    Attributes:
        keys: One for each argument of the schema, in its order.
        device: Of every tensor argument and allocation.
        results: Indices of allocations.
        single: Whether the call gives its one result itself, not in a tuple. A call that writes its
            arguments has no results and gives None.
        writes: The arguments that the schema says are written: their versions are counted.
        distinct: Whether it holds only where no two tensor arguments are the same object.
    """

    keys: tuple[Key, ...]
    device: torch.device
    steps: tuple[Instruction, ...]
    guards: tuple[tuple[Step, int], ...]
    allocations: tuple[Allocation, ...]
    launches: tuple[Launch, ...]
    results: tuple[int, ...]
    single: bool
    writes: tuple[int, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, kw_only=True)
class Unfollowed:
    """Why a body has no plan; `str()` is a sentence for a person.

    Attributes:
        always: Whether no other arguments would change that.
    """

    reason: str
    always: bool = False

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, kw_only=True)
class Read:
    """Something outside its arguments that a body reads: while it is the same object, plans hold.

    Attributes:
        names: The dict that it is looked up in (a function's globals), a closure's cell, or a function.
        name: Its name there; "" for a cell; an attribute of a function.
        value: What it was.
    """

    names: object
    name: str
    value: object
