"""Purity: a body can be traced if it reads nothing but its arguments and what never changes.

This looks at a body before it runs: at its bytecode, and at that of the functions that it reaches. A name
from outside must stand for something that carries no state from one call to the next. What could be bound
to something else later is a dependency: each recorded call is guarded by it.
"""

from __future__ import annotations

import builtins
import ctypes
import dis
import enum
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch.overrides import get_overridable_functions

from dotcu.call_cache.record import Unsupported
from dotcu.kernel import Kernel, Module, capability, cdiv, is_aligned, sm_count, strided, tensor_map
from dotcu.kernel.native import word
from dotcu.kernel.shape_queries import ByLayout

_NEVER_REBOUND = ("torch", "dotcu", "math")
_MODULES = (*_NEVER_REBOUND, "dotcu.errors")


Dependency = tuple[object, str, object]
"""Something besides its arguments that a body reads: while it is the same object, recordings hold.

The dict that it is looked up in (a function's globals), a closure's cell, or a function; its name there, ""
for a cell, an attribute of a function; and the object."""


def dependencies(body: Callable[..., Any]) -> tuple[Dependency, ...]:
    """Return everything that a body reads besides its arguments.

    Raises:
        Unsupported: It cannot be traced, whatever its arguments.
    """
    return tuple(_read(body).dependencies.values())


def compares_tensors(body: Callable[..., Any]) -> bool:
    """Return True if a body may behave differently where two of its arguments are the same tensor."""
    try:
        return _read(body).compares
    except Unsupported:
        return True


_OF_DEVICES = {"is_cuda", "is_cpu", "get_device", "type", "index"}


def device_query(body: Callable[..., Any]) -> str:
    """Return a query of a body that may reveal the device it runs on; empty if it makes none."""
    try:
        reader = _read(body)
    except Unsupported as reason:
        return str(reason)
    if any(value is torch.cuda.get_device_capability for _, _, value in reader.dependencies.values()):
        return "get_device_capability"
    return next((f".{name}" for name in sorted(reader.attributes & _OF_DEVICES)), "")


def _read(body: Callable[..., Any]) -> _Reader:
    reader = _Reader()
    try:
        reader.function(body)
    except Unsupported as reason:
        raise Unsupported(f"{reason}.") from None
    return reader


class _Reader:
    """Reads the code of a body and of the functions that it reaches.

    Attributes:
        dependencies: By holder and name.
        compares: True if the code may compare tensors by identity.
        attributes: The names of attributes that it reads of computed values.
    """

    def __init__(self) -> None:
        self.dependencies: dict[tuple[int, str], Dependency] = {}
        self.compares = False
        self.attributes: set[str] = set()
        self._names_of_values: set[str] = set()
        self._seen: set[int] = set()

    def function(self, function: Any) -> None:
        """Read a function, once."""
        if not isinstance(function, FunctionType):
            raise Unsupported(f"it is {_describe(function)}, not a plain function")
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        for part in ("__code__", "__defaults__"):  # a tool that reloads modules in place replaces these
            self._add(function, part, getattr(function, part))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(default, f"a default of {function.__name__}", ())
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            self._code(code, function, cells)
            codes += [constant for constant in code.co_consts[::-1] if isinstance(constant, CodeType)]

    def _code(self, code: CodeType, function: FunctionType, cells: Mapping[str, CellType]) -> None:
        rows = _instructions(code)
        for row in rows:
            if row.opname == "STORE_DEREF" and row.argval in cells:
                raise Unsupported(f"it sets {row.argval}, which outlives the call")
        followed: set[int] = set()
        for index, row in enumerate(rows):
            self.compares |= _compares(rows, index)
            if row.opname in _LOADS:
                chain = _chain(rows, index)
                followed.update(chain)
                self._load(row, tuple(rows[at].argval for at in chain), function, cells)
        computed = [
            row.argval
            for index, row in enumerate(rows)
            if row.opname in _ATTRIBUTES and index not in followed
        ]
        self.attributes.update(computed)
        _require_attributes([name for name in computed if name not in self._names_of_values], "a value")

    def _load(
        self,
        row: dis.Instruction,
        chain: tuple[str, ...],
        function: FunctionType,
        cells: Mapping[str, CellType],
    ) -> None:
        """Judge a load of a name from outside, and of the attributes that are read of it at once."""
        name, names = row.argval, function.__globals__
        if row.opname == "LOAD_DEREF":
            if name not in cells:  # of a function around the code, inside the body
                _require_attributes(chain, name)
                return
            try:
                value = cells[name].cell_contents
            except ValueError:
                raise Unsupported(f"it reads {name}, which does not exist") from None
            self._add(cells[name], "", value)
        elif name in names:
            value = names[name]
            if not (isinstance(value, ModuleType) and value.__name__ in _NEVER_REBOUND):
                self._add(names, name, value)
        elif hasattr(builtins, name):
            value = getattr(builtins, name)
            self.compares |= value is dict
        else:
            raise Unsupported(f"it reads {name}, which does not exist")
        self._value(value, name, chain)

    def _add(self, holder: object, name: str, value: object) -> None:
        self.dependencies[id(holder), name] = (holder, name, value)

    def _value(self, value: Any, name: str, chain: tuple[str, ...]) -> None:
        """Judge the value of a name, and the attributes that are read of it."""
        if isinstance(value, ModuleType):
            self._module(value, name, chain)
            return
        if type(value) is Module and chain:  # kernels.add, which is a kernel, or kernels.kernels[...]
            if chain[0] != "kernels" and chain[0] not in value.kernels:
                raise Unsupported(f"it uses {name}.{chain[0]}, which is not a kernel")
            _require_attributes(chain[1:], f"{name}.{chain[0]}")
            return
        if isinstance(value, ByLayout):  # a traced body runs its function
            value = value.function
        tunable = getattr(value, "tunable", None) if chain == ("configuration",) else None
        if tunable is not None:  # an operator's look-up, which guards what it looks at
            self._names_of_values.update(tunable.names)
            return
        if isinstance(value, FunctionType) and not (_is_allowed(value) or _is_torchs(value)):
            self.function(value)
            if chain:
                raise Unsupported(f"it reads {name}.{chain[0]}, which can change")
            return
        if not (_is_allowed(value) or _is_constant(value) or type(value) in (Kernel, Module)):
            raise Unsupported(_why(value, name))
        if isinstance(value, type) and chain:
            raise Unsupported(f"it reads {name}.{chain[0]}, of a class")
        _require_attributes(chain, name)

    def _module(self, module: ModuleType, name: str, chain: tuple[str, ...]) -> None:
        if not chain:
            raise Unsupported(f"it passes the module {name} as a value")
        known = module.__name__ in _MODULES
        try:
            value = getattr(module, chain[0]) if known else vars(module)[chain[0]]
        except (AttributeError, KeyError):
            raise Unsupported(f"it reads {name}.{chain[0]}, which does not exist") from None
        if not known:
            self._add(vars(module), chain[0], value)
        if isinstance(value, ModuleType) and known and value.__name__ not in _MODULES:
            raise Unsupported(f"it reads {'.'.join((name, *chain))}, which may depend on more than the call")
        self._value(value, f"{name}.{chain[0]}", chain[1:])


def _require_attributes(names: Iterable[str], of: str) -> None:
    for name in names:
        if name not in _allowed_attributes():
            raise Unsupported(f"it reads .{name} of {of}, which may depend on more than the call")


def _is_torchs(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


def _describe(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _why(value: Any, name: str) -> str:
    """Return why a value from outside is refused, and the remedy."""
    if hasattr(type(value), "torch_op") or type(value).__module__ == "torch._ops":
        return f"it calls the operator {name}, and only launches can be recorded"
    if isinstance(value, (list, dict, set, bytearray)):
        return f"it reads the {type(value).__name__} {name}, which can change; make it a tuple"
    if callable(value):
        return f"it uses {name}, which may depend on or change more than its arguments"
    return f"it reads {name}, {_describe(value)}, which can change; pass it as an argument"


# What a body may use: values that carry no state from one call to the next.


_BUILTINS: tuple[Any, ...] = (
    min, max, len, isinstance, abs, range, zip, enumerate, all, any, sum, reversed, sorted, divmod, pow,
    round, map, filter, slice, int, float, bool, complex, str, bytes, tuple, list, dict, iter, next,
    AssertionError, NotImplemented,
)  # fmt: skip

_DOTCU: tuple[Any, ...] = (capability, cdiv, is_aligned, sm_count, strided, tensor_map, Kernel, Module)

# Of torch: what a function mode sees, and what depends on its arguments alone.
_TORCH: tuple[Any, ...] = (
    torch.Tensor, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo,
    torch.iinfo, torch.is_tensor, torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full,
    torch.arange, torch.tensor, torch.promote_types, torch.can_cast, torch.result_type,
    torch.broadcast_shapes, torch.cuda.get_device_capability,
)  # fmt: skip

_CONSTANTS = (
    int, float, bool, complex, str, bytes, type(None), type(...), torch.dtype, torch.device,
    torch.memory_format, torch.layout, range,
)  # fmt: skip

_UNSEEN = {"eig", "lstsq", "reinforce", "solve", "symeig", "to_sparse_coo", "format", "format_map"}
"""Methods that no function mode sees, or that read attributes by names in a string."""

_OTHER_ATTRIBUTES = {
    "occupancy", "name", "index", "type", "eps", "tiny", "smallest_normal", "resolution", "itemsize",
    "is_signed", "to_complex", "to_real",
}  # fmt: skip


@functools.cache
def _identities() -> frozenset[int]:
    """Return the ids of everything allowed by name; these objects live as long as Python does."""
    functions = [
        function
        for function in get_overridable_functions()[torch]
        if isinstance(function, (BuiltinFunctionType, FunctionType))
    ]
    mathematics = [value for name, value in vars(math).items() if callable(value) and name[0] != "_"]
    return frozenset(map(id, (*_BUILTINS, *_DOTCU, *_TORCH, *functions, *mathematics)))


def _is_allowed(value: Any) -> bool:
    """Return True for the functions and types of the tables."""
    return id(value) in _identities()


def _is_named(kind: type) -> bool:
    """Return True for a NamedTuple, which computes nothing."""
    return kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


def _is_constant(value: Any) -> bool:
    """Return True for a value that never changes: a number, str, dtype, tuple of these, exception type."""
    plain = type(value) in (tuple, frozenset, torch.Size)
    if isinstance(value, (tuple, frozenset)) and (plain or _is_named(type(value))):
        return all(_is_constant(item) or _is_allowed(item) for item in value)
    if isinstance(value, type):
        return issubclass(value, BaseException)
    return type(value) in _CONSTANTS or isinstance(value, enum.Enum)


@functools.cache
def _allowed_attributes() -> frozenset[str]:
    """Return the names of attributes that a body may read of computed values."""
    kinds: Iterable[Any] = (torch.Tensor, torch.Size, str, tuple, list, dict, int, float, range)
    names = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    names |= {name for info in (torch.finfo, torch.iinfo) for name in dir(info) if not name.startswith("_")}
    return frozenset((names | _OTHER_ATTRIBUTES) - _UNSEEN)


# Bytecode. Instructions are allowed by name, so that one which a later Python adds is refused.


# Those of Python 3.10 to 3.13 that move, compute and branch on values of the body alone; and others.
_OPERATIONS = (
    "ADD AND FLOOR_DIVIDE LSHIFT MATRIX_MULTIPLY MODULO MULTIPLY OR POWER RSHIFT SUBTRACT TRUE_DIVIDE XOR"
)
_NAMES = """
LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST
STORE_FAST_STORE_FAST BINARY_OP BINARY_SLICE BINARY_SUBSCR UNARY_INVERT UNARY_NEGATIVE UNARY_NOT
UNARY_POSITIVE JUMP_ABSOLUTE JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_IF_FALSE_OR_POP
JUMP_IF_TRUE_OR_POP ROT_TWO ROT_THREE ROT_FOUR ROT_N DUP_TOP DUP_TOP_TWO
NOP CACHE RESUME EXTENDED_ARG PUSH_NULL PRECALL KW_NAMES POP_TOP COPY SWAP LOAD_CONST DELETE_FAST LOAD_CLOSURE
LOAD_DEREF STORE_DEREF MAKE_CELL COPY_FREE_VARS LOAD_GLOBAL LOAD_ATTR LOAD_METHOD STORE_SUBSCR STORE_SLICE
DELETE_SUBSCR TO_BOOL COMPARE_OP IS_OP CONTAINS_OP BUILD_TUPLE BUILD_LIST BUILD_MAP BUILD_CONST_KEY_MAP
BUILD_SLICE BUILD_STRING LIST_APPEND LIST_EXTEND LIST_TO_TUPLE MAP_ADD DICT_MERGE DICT_UPDATE FORMAT_VALUE
FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE UNPACK_SEQUENCE UNPACK_EX GET_ITER FOR_ITER END_FOR GET_LEN CALL
CALL_KW CALL_FUNCTION CALL_FUNCTION_KW CALL_FUNCTION_EX CALL_METHOD CALL_INTRINSIC_1 MAKE_FUNCTION
SET_FUNCTION_ATTRIBUTE RETURN_VALUE RETURN_CONST RETURN_GENERATOR GEN_START YIELD_VALUE LOAD_ASSERTION_ERROR
RAISE_VARARGS RERAISE
"""
_TESTS = ("TRUE", "FALSE", "NONE", "NOT_NONE")
_ALLOWED = frozenset({
    *_NAMES.split(),
    *(f"{kind}_{name}" for kind in ("BINARY", "INPLACE") for name in _OPERATIONS.split()),
    *(f"POP_JUMP_{way}IF_{test}" for way in ("", "FORWARD_", "BACKWARD_") for test in _TESTS),
})  # fmt: skip

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


@functools.lru_cache(maxsize=4096)
def _instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    """Return the instructions of a code object."""
    rows = tuple(row for row in dis.get_instructions(code) if row.opname not in ("EXTENDED_ARG", "CACHE"))
    refusal = next(filter(None, (_refusal(row, code) for row in rows)), None)
    if refusal is not None:
        raise Unsupported(refusal)
    return rows


def _refusal(row: dis.Instruction, code: CodeType) -> str | None:
    line = f" ({code.co_name} in {code.co_filename.rpartition('/')[2]})"
    if row.opname == "YIELD_VALUE" and code.co_name != "<genexpr>":
        return "it is a generator" + line
    if row.opname == "CALL_INTRINSIC_1" and row.arg not in _INTRINSICS:
        return f"it uses the instruction {row.opname} {row.arg}" + line
    if row.opname in _ALLOWED:
        return None
    return _WHY.get(row.opname, f"it uses the instruction {row.opname}").format(row.argval) + line


def _chain(rows: Sequence[dis.Instruction], index: int) -> range:
    """Return the indices of the instructions after a load that read attributes of the loaded value."""
    end = index + 1
    while end < len(rows) and rows[end].opname in _ATTRIBUTES and not rows[end].is_jump_target:
        end += 1
    return range(index + 1, end)


def _compares(rows: Sequence[dis.Instruction], index: int) -> bool:
    """Return True if an instruction may compare tensors by identity."""
    row = rows[index]
    if row.opname == "IS_OP":
        return not _is_fixed(rows, index)
    return row.opname in ("MAP_ADD", "STORE_SUBSCR") or (row.opname == "BUILD_MAP" and bool(row.arg))


def _is_fixed(rows: Sequence[dis.Instruction], end: int) -> bool:
    """Return True if the operand before an instruction is a constant or a global."""
    start = end - 1
    while start > 0 and rows[start].opname in _ATTRIBUTES:
        start -= 1
    if any(row.is_jump_target for row in rows[start + 1 : end + 1]):
        return False
    return rows[start].opname == "LOAD_GLOBAL" or (rows[start].opname == "LOAD_CONST" and start == end - 1)


# Guards: a dict is asked for a name. A reference of a function or a closure's cell is a word of memory, since
# asking Python for a function's code raises an audit event, which can take as long as the rest of a call.

DependencyGuard = tuple[object, object, object]
"""(dict, name, value), or (address, word, object to keep alive)."""


def guards_on(dependencies: Sequence[Dependency]) -> tuple[DependencyGuard, ...]:
    """Return guards on dependencies, for native code."""
    guards: list[DependencyGuard] = []
    for holder, name, value in dependencies:
        if isinstance(holder, dict):
            guards.append((holder, name, value))
            continue
        expected = 0 if value is None and name == "__defaults__" else id(value)
        guards.append((id(holder) + _offset(isinstance(holder, CellType), name), expected, (holder, value)))
    return tuple(guards)


@functools.cache
def _offset(is_cell: bool, name: str) -> int:
    """Return the offset, in bytes, at which a cell or a function refers to a named part of it."""
    samples = [_sample(is_cell, name) for _ in range(3)]
    words = range(0, type(samples[0][0]).__basicsize__, ctypes.sizeof(ctypes.c_void_p))
    offsets = [at for at in words if all(word(id(holder) + at) == id(value) for holder, value in samples)]
    if len(offsets) != 1:
        raise Unsupported(f"{name or 'the content of a cell'} is found at {len(offsets)} offsets in memory.")
    return offsets[0]


def _sample(is_cell: bool, name: str) -> tuple[Any, Any]:
    if is_cell:
        value = object()
        return CellType(value), value
    function = FunctionType((lambda: None).__code__.replace(), {}, argdefs=(object(),))
    return function, getattr(function, name)
