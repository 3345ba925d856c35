"""What a code object does, as far as its bytecode tells: what it reads, and what no plan could follow.

Instructions are allowed by name, so one that a later Python adds is refused and not overlooked.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

# Python 3.10 to 3.13.
_NAMES = """
NOP CACHE RESUME EXTENDED_ARG PUSH_NULL PRECALL KW_NAMES POP_TOP COPY SWAP DUP_TOP DUP_TOP_TWO
ROT_TWO ROT_THREE ROT_FOUR ROT_N LOAD_CONST
LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST
STORE_FAST_STORE_FAST STORE_FAST_MAYBE_NULL DELETE_FAST LOAD_CLOSURE LOAD_DEREF STORE_DEREF MAKE_CELL
COPY_FREE_VARS LOAD_GLOBAL LOAD_ATTR LOAD_METHOD
BINARY_ADD BINARY_AND BINARY_FLOOR_DIVIDE BINARY_LSHIFT BINARY_MATRIX_MULTIPLY BINARY_MODULO
BINARY_MULTIPLY BINARY_OR BINARY_POWER BINARY_RSHIFT BINARY_SUBTRACT BINARY_TRUE_DIVIDE BINARY_XOR
INPLACE_ADD INPLACE_AND INPLACE_FLOOR_DIVIDE INPLACE_LSHIFT INPLACE_MATRIX_MULTIPLY INPLACE_MODULO
INPLACE_MULTIPLY INPLACE_OR INPLACE_POWER INPLACE_RSHIFT INPLACE_SUBTRACT INPLACE_TRUE_DIVIDE INPLACE_XOR
BINARY_OP BINARY_SUBSCR BINARY_SLICE STORE_SUBSCR STORE_SLICE DELETE_SUBSCR
UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE TO_BOOL COMPARE_OP IS_OP CONTAINS_OP
BUILD_TUPLE BUILD_LIST BUILD_MAP BUILD_CONST_KEY_MAP BUILD_SLICE BUILD_STRING LIST_APPEND LIST_EXTEND
LIST_TO_TUPLE MAP_ADD DICT_MERGE DICT_UPDATE FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE
UNPACK_SEQUENCE UNPACK_EX GET_ITER FOR_ITER END_FOR GET_LEN
JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_ABSOLUTE JUMP_IF_FALSE_OR_POP
JUMP_IF_TRUE_OR_POP POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE
POP_JUMP_BACKWARD_IF_NOT_NONE
CALL CALL_KW CALL_FUNCTION CALL_FUNCTION_KW CALL_FUNCTION_EX CALL_METHOD CALL_INTRINSIC_1 MAKE_FUNCTION
SET_FUNCTION_ATTRIBUTE RETURN_VALUE RETURN_CONST RETURN_GENERATOR GEN_START YIELD_VALUE
LOAD_ASSERTION_ERROR RAISE_VARARGS RERAISE
"""
_ALLOWED = frozenset(_NAMES.split())

_INTRINSICS = {3, 5, 6}
"""StopIteration in a generator, unary plus, a list to a tuple; not print and not import *."""

_WHY = {
    "STORE_GLOBAL": "it sets the global {0}",
    "DELETE_GLOBAL": "it deletes the global {0}",
    "STORE_ATTR": "it sets the attribute {0} of something",
    "DELETE_ATTR": "it deletes the attribute {0} of something",
    "IMPORT_NAME": "it imports {0}; import it at the top of the file",
    "LOAD_BUILD_CLASS": "it defines a class",
    "BUILD_SET": "it builds a set, whose order is not fixed",
    "SET_ADD": "it builds a set, whose order is not fixed",
    "PUSH_EXC_INFO": "it has a try or a with block",
    "SETUP_FINALLY": "it has a try block",
    "SETUP_WITH": "it has a with block",
    "BEFORE_WITH": "it has a with block",
}

_LOADS = ("LOAD_GLOBAL", "LOAD_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_BY_KEY = ("MAP_ADD", "STORE_SUBSCR")


@dataclass(frozen=True, kw_only=True)
class Load:
    """A name from outside that is loaded, and the attributes that are read of it at once."""

    name: str
    attributes: tuple[str, ...]
    is_global: bool


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one code object does.

    Attributes:
        refusal: Why nothing that runs it can be followed; None where nothing is against it.
        attributes: What it reads of values that come about inside.
        stores: Variables that it shares with functions inside or around it, and sets.
        compares: Whether it may tell by identity whether two tensors are the same object.
        inner: The functions and comprehensions that are written inside.
    """

    refusal: str | None
    loads: tuple[Load, ...]
    attributes: tuple[str, ...]
    stores: tuple[str, ...]
    compares: bool
    inner: tuple[CodeType, ...]


@functools.lru_cache(maxsize=4096)
def facts(code: CodeType) -> Facts:
    """Read a code object."""
    rows = [row for row in dis.get_instructions(code) if row.opname not in ("EXTENDED_ARG", "CACHE")]
    loads = tuple(_loads(rows))
    attributes = [row.argval for row in rows if row.opname in _ATTRIBUTES]
    for load in loads:
        for name in load.attributes:
            attributes.remove(name)
    return Facts(
        refusal=next(filter(None, (_refusal(row, code) for row in rows)), None),
        loads=loads,
        attributes=tuple(attributes),
        stores=tuple(row.argval for row in rows if row.opname == "STORE_DEREF"),
        compares=any(_compares(rows, index) for index in range(len(rows))),
        inner=tuple(constant for constant in code.co_consts if isinstance(constant, CodeType)),
    )


def _refusal(row: dis.Instruction, code: CodeType) -> str | None:
    line = f" ({code.co_name} in {code.co_filename.rpartition('/')[2]})"
    if row.opname == "YIELD_VALUE" and code.co_name != "<genexpr>":
        return "it is a generator" + line
    if row.opname == "CALL_INTRINSIC_1" and row.arg not in _INTRINSICS:
        return f"it uses the instruction {row.opname} {row.arg}" + line
    if row.opname in _ALLOWED:
        return None
    return _WHY.get(row.opname, f"it uses the instruction {row.opname}").format(row.argval) + line


def _loads(rows: Sequence[dis.Instruction]) -> Iterator[Load]:
    for index, row in enumerate(rows):
        if row.opname in _LOADS:
            names = tuple(rows[place].argval for place in _chain(rows, index))
            yield Load(name=row.argval, attributes=names, is_global=row.opname == "LOAD_GLOBAL")


def _chain(rows: Sequence[dis.Instruction], index: int) -> range:
    """The instructions after a load that read attributes of just what it has loaded."""
    end = index + 1
    while end < len(rows) and rows[end].opname in _ATTRIBUTES and not rows[end].is_jump_target:
        end += 1
    return range(index + 1, end)


def _compares(rows: Sequence[dis.Instruction], index: int) -> bool:
    """Whether an instruction may tell two tensors apart by their identity."""
    row = rows[index]
    if row.opname == "IS_OP":
        return not _is_fixed(rows, index)
    return row.opname in _BY_KEY or (row.opname == "BUILD_MAP" and bool(row.arg))


def _is_fixed(rows: Sequence[dis.Instruction], end: int) -> bool:
    """Whether what stands before an instruction loads a constant or a global."""
    start = end - 1
    while start > 0 and rows[start].opname in _ATTRIBUTES:
        start -= 1
    if any(row.is_jump_target for row in rows[start + 1 : end + 1]):
        return False
    return rows[start].opname == "LOAD_GLOBAL" or (rows[start].opname == "LOAD_CONST" and start == end - 1)
