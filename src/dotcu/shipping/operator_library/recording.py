"""Recorded calls: what a call of an operator allocates and launches, as expressions of its arguments.

A body is recorded as torch.compile traces it: as its own fake kernel, without its launches, on fake tensors
whose sizes are symbols of torch's `ShapeEnv`, and with symbols for its numbers. torch's symbolic shapes
compute, and each decision of the body on a symbol is a guard. The fake tensors are on a GPU, as in every call
in C++. A contiguous tensor stands for all of its kind: its strides follow from its sizes, also from one of 1.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NoReturn

import sympy
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from dotcu.compile import Target
from dotcu.errors import DotcuError
from dotcu.inspection.operators import samples_on_cpu
from dotcu.kernel import Kernel, TensorMap, cuda, simulate
from dotcu.kernel.arguments import pack
from dotcu.kernel.arguments.memory import is_plain
from dotcu.kernel.arguments.pack import WRAPPED, PointerPacker, TensorPacker
from dotcu.kernel.arguments.values import FloatPacker, IntPacker
from dotcu.kernel.compiled import CompilationUnit
from dotcu.kernel.config import BlockConfig, LaunchConfig, limits, read_config, require_fit
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.kernel.simulated_memory import ALLOCATE, FunctionMode, OperatorMode
from dotcu.operator import Operator, Overload, Sample
from dotcu.shipping.operator_library.expressions import Expr, is_expressible
from dotcu.torch_compat import storage_of
from dotcu.tracebacks import caller_line, first_lines, quiet

ALLOCATOR_ALIGNMENT, PARAMETER_ALIGNMENT = 16, 16
"""In bytes: of new memory, as every allocator of torch guarantees, and of the parameters of a launch."""

_ZERO = sympy.Integer(0)


@dataclass(frozen=True, kw_only=True)
class TensorArgument:
    """A tensor argument of this dtype and number of dimensions, contiguous or of any strides."""

    dtype: torch.dtype
    dim: int
    contiguous: bool


Argument = TensorArgument | tuple[object] | type[int] | type[float]
"""An argument's type, or its one value: None, a bool, a text, or a float that is not finite."""


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """A pointer into argument or allocation `source`, `offset` bytes from its first element."""

    argument: bool
    source: int
    offset: Expr = _ZERO


@dataclass(frozen=True, kw_only=True)
class TensorLayout:
    """Sizes and strides, and where a result starts in its allocation, all in elements."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr = _ZERO


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Memory that the body allocates: filled with zeros, or uninitialized."""

    dtype: torch.dtype
    layout: TensorLayout
    zeroed: bool


@dataclass(frozen=True, kw_only=True)
class Field:
    """A part of a launch's parameters that depends on the call: a number of a C++ type; "" for an address."""

    offset: int
    kind: str
    value: Pointer | Expr


@dataclass(frozen=True, kw_only=True)
class RecordedLaunch:
    """One launch. Its parameters are a block of memory with zeros at the fields; `config` has no grid."""

    kernel: str
    parameters: bytes
    offsets: tuple[int, ...]
    fields: tuple[Field, ...]
    grid: tuple[Expr, Expr, Expr]
    config: LaunchConfig


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """The effects of each call that has such arguments, and for which the guards hold.

    Attributes:
        results: Of each the index of its allocation, and the layout in which the call returns it.
        units: For each launch, the unit that its kernel is compiled in.
        exactly: True if it holds on GPUs of this compute capability alone, such as by its occupancy.
    """

    arguments: tuple[Argument, ...]
    guards: tuple[Expr, ...]
    allocations: tuple[Allocation, ...]
    launches: tuple[RecordedLaunch, ...]
    results: tuple[tuple[int, TensorLayout], ...]
    units: tuple[CompilationUnit, ...] = ()
    exactly: bool = False


class Unrecorded(BaseException):
    """Ends a body that cannot be recorded, for the reason that the message gives: no body catches it."""


_aten = torch.ops.aten
_GPU = torch.device("cuda", 0)
_ZEROS = {_aten.zeros, _aten.zeros_like, _aten.new_zeros}
_LIKE: dict[Any, Callable[..., Tensor]] = {_aten.empty_like: torch.empty, _aten.zeros_like: torch.zeros}
_REFUSED = {
    torch.Tensor.data_ptr: "it asks for an address: ask dotcu.is_aligned(t, bytes)",
    torch.Tensor.storage_offset: "it asks for a storage offset: ask dotcu.is_aligned(t, bytes)",
    torch.Tensor.__setitem__: "it assigns to a part of a tensor, and only launches can be recorded",
}
_BYTES = {"": 8, "float": 4, "double": 8, **{f"{u}int{8 * n}_t": n for u in ("", "u") for n in (1, 2, 4, 8)}}


class Recording:
    """The recording of one call for one architecture."""

    def __init__(self, target: Target) -> None:
        self._units: list[CompilationUnit] = []
        self._exactly = False
        self._target = target
        self._shapes: Any = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self._names: dict[Expr, Expr] = {}
        self._values: dict[Expr, Expr] = {}
        self._multiprocessors: Any = None
        self._memory: dict[int, tuple[Tensor, Pointer]] = {}  # by storage, which the tensor keeps alive
        self._roots: dict[tuple[bool, int], Tensor] = {}
        self._addresses: dict[int, Any] = {}
        self._allocations: list[Allocation] = []
        self._launched: list[tuple[Kernel, Sequence[Any], Any, tuple[Any, ...]]] = []

    def run(self, overload: Overload, arguments: Mapping[str, Any]) -> RecordedCall:
        """Record a body, which runs once, with a value for each argument of its schema, in its order.

        Raises:
            Unrecorded: The call does what C++ cannot repeat.
            DotcuError: The body, or a launch of it, is wrong.
        """
        arch, fakes = str(self._target).replace("compute_", "sm_"), FakeTensorMode(shape_env=self._shapes)
        body, signature = overload.body, overload.signature
        assert body is not None
        scope = entering_scope(LaunchPolicy.SKIP, operator=overload.qualified_name, recording=self)
        with quiet(), simulate(arch=arch), torch.no_grad(), fakes:
            rows = [self._argument(index, value) for index, value in enumerate(arguments.values())]
            given = {name: value for name, (_, value) in zip(arguments, rows, strict=True)}
            keywords = {name: given.pop(name) for name in signature.keyword_only}
            with OperatorMode(self._operator), FunctionMode(self._function), scope:
                result = body(*given.values(), **keywords)
        with quiet():
            return self._recorded(tuple(key for key, _ in rows), result, signature.returns)

    # Arguments, and symbols for what of them may vary.

    def _symbol(self, text: str, value: Any) -> Any:
        """Return a number that stands for any, with this text in C++ and this value in the sample."""
        from torch._dynamo.source import ConstantSource  # which ShapeEnv has imported: seconds

        source, env = ConstantSource(f"dotcu_{len(self._names)}"), self._shapes
        symbol = env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        self._names[symbol] = sympy.Symbol(text, integer=isinstance(value, int) or None, real=True)
        self._values[symbol] = sympy.sympify(value)
        make = env.create_symfloatnode if isinstance(value, float) else env.create_symintnode
        return make(symbol, hint=value, source=source)

    def _argument(self, index: int, value: Any) -> tuple[Argument, Any]:
        """Return what stands for an argument, and what the body gets for it."""
        if isinstance(value, Tensor):
            return self._tensor(index, value)
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return type(value), self._symbol(f"{{{index}}}", value)
        if value is None or isinstance(value, (bool, str, float)):
            return (value,), value
        raise Unrecorded(f"it depends on a {type(value).__name__}.")

    def _tensor(self, index: int, value: Tensor) -> tuple[Argument, Tensor]:
        if not is_plain(value):
            raise Unrecorded(f"argument {index + 1} is not plain memory.")
        contiguous, name = value.is_contiguous(), f"{{{index}}}"
        sizes = [self._symbol(f"{name}.sizes()[{d}]", int(size)) for d, size in enumerate(value.shape)]
        if contiguous:
            tensor = torch.empty(sizes, dtype=value.dtype, device=_GPU)
        else:
            strides = [self._symbol(f"{name}.strides()[{d}]", by) for d, by in enumerate(value.stride())]
            tensor = torch.empty(1, dtype=value.dtype, device=_GPU).as_strided(sizes, strides)
        self._add(tensor, argument=True, source=index)
        start = int(value.storage_offset()) * value.itemsize  # as in memory that starts at a multiple of much
        self._addresses[index] = self._symbol(f"Call::address({name})", start)
        return TensorArgument(dtype=value.dtype, dim=value.dim(), contiguous=contiguous), tensor

    # The body's calls of torch.

    def _operator(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call an operator of torch that allocates, views or asks; refuse any other."""
        packet = getattr(func, "overloadpacket", None)
        if packet in ALLOCATE or packet in _ZEROS:
            return self._allocated(packet, func, args, named)
        if func is _aten.view.default and self._is_contiguous(args[0]):
            return self._viewed(*args)
        if not (getattr(func, "is_view", False) or str(func).startswith(("aten.sym_", "prim."))):
            _refuse(f"it calls the operator {func}, and only launches can be recorded")
        return func(*args, **named)

    def _allocated(self, packet: Any, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        in_order = named.get("memory_format") in (None, torch.preserve_format, torch.contiguous_format)
        if packet in _LIKE and in_order and self._is_contiguous(args[0]):
            # torch's own rule for the strides asks whether sizes are 1, and each answer would be a guard
            options = {name: named.get(name) or getattr(args[0], name) for name in ("dtype", "device")}
            made = _LIKE[packet](args[0].shape, **options)
        else:
            made = func(*args, **named)
        if made.device != _GPU or made.layout is not torch.strided:
            _refuse(f"it makes a tensor on {made.device}, and its arguments are on the GPU")
        self._add(made, argument=False, source=len(self._allocations))
        self._allocations.append(Allocation(dtype=made.dtype, layout=_layout(made), zeroed=packet in _ZEROS))
        return made

    def _viewed(self, tensor: Tensor, shape: Iterable[Any]) -> Tensor:
        """Return a contiguous tensor in another shape, without torch's guards against sizes of 0 and 1."""
        sizes, numel = list(shape), tensor.numel()
        unknown = [at for at, size in enumerate(sizes) if type(size) is int and size == -1]
        if unknown:
            sizes[unknown[0]] = numel // math.prod(size for at, size in enumerate(sizes) if at not in unknown)
        if math.prod(sizes) != numel:
            return tensor.view(*shape)  # which raises torch's error
        made = torch.empty(sizes, dtype=tensor.dtype, device=_GPU)
        self._memory[storage_of(made)] = made, self._place(tensor)
        return made

    def _function(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Refuse what asks for more than a layout; do without torch what would start CUDA there."""
        if func in _REFUSED:
            _refuse(_REFUSED[func])
        if func is torch.Tensor.contiguous and len(args) == 1 and not named:
            return args[0] if self._is_contiguous(args[0]) else _refuse("contiguous() copies here")
        return _indexed(*args) if func is torch.Tensor.__getitem__ else func(*args, **named)

    # Tensors of the body, and their places in memory.

    def _add(self, tensor: Tensor, *, argument: bool, source: int) -> None:
        self._memory[storage_of(tensor)] = tensor, Pointer(argument=argument, source=source)
        self._roots[argument, source] = tensor

    def _place(self, tensor: Tensor) -> Pointer:
        """Return where a tensor's first element is."""
        known = self._memory.get(storage_of(tensor))
        if known is None:
            raise Unrecorded("it has a tensor of unknown origin.")
        start = _expr(_aten.sym_storage_offset.default(tensor))
        return replace(known[1], offset=known[1].offset + start * tensor.itemsize)

    def _is_contiguous(self, tensor: Tensor) -> bool:
        """Ask as torch does, and guard the answer, unless it is the same for all sizes."""
        step: Any = 1
        strides: list[Expr] = []
        for size in reversed(tensor.shape):
            strides.insert(0, _expr(step))
            step *= torch.sym_max(size, 1)
        return [*map(_expr, tensor.stride())] == strides or tensor.is_contiguous()

    def _plain(self, value: Any) -> Any:
        """Return a value as it is in the sample, without a guard: of a tensor the layout alone."""
        if isinstance(value, Tensor):
            sizes, strides = self._plain((*value.shape,)), self._plain(value.stride())
            return torch.empty_strided(sizes, strides, dtype=value.dtype)
        if isinstance(value, WRAPPED):
            return replace(value, tensor=self._plain(value.tensor))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._plain, value))
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return (int if isinstance(value, torch.SymInt) else float)(_expr(value).xreplace(self._values))
        return _pinned(value)

    # What dotcu calls while the body runs; kernel/launch_policy.py says when.

    def aligned(self, tensor: Tensor, bytes: int) -> bool:
        place = self._place(tensor)
        if not place.argument and ALLOCATOR_ALIGNMENT % bytes:
            _refuse(f"it asks whether new memory is aligned to {bytes} bytes")
        hint = int(place.offset.xreplace(self._values))
        offset = self._shapes.create_symintnode(place.offset, hint=hint)
        return bool((offset + (self._addresses[place.source] if place.argument else 0)) % bytes == 0)

    def multiprocessors(self, count: int) -> Any:
        if self._multiprocessors is None:
            self._multiprocessors = self._symbol("call.multiprocessors()", count)
        return self._multiprocessors

    def asked_device(self) -> None:
        self._exactly = True

    def hint(self, size: int) -> int:
        return int(self._plain(size))

    def launched(self, kernel: Kernel, args: Sequence[Any], grid: Any, shape: BlockConfig) -> None:
        self._launched.append((kernel, args, grid, shape))

    # The recorded call, of a body that has returned.

    def _recorded(self, arguments: tuple[Argument, ...], result: Any, returns: int) -> RecordedCall:
        launches = tuple(self._launch(*launched) for launched in self._launched)
        tensors = result if isinstance(result, tuple) else () if result is None else (result,)
        if len(tensors) != returns or not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise Unrecorded(f"it returns a {type(result).__name__}, and its schema {returns} tensor(s).")
        results = tuple(map(self._result, tensors))
        if len({source for source, _ in results}) < len(results):
            raise Unrecorded("it returns the same memory twice.")
        trivial = {sympy.Ge(symbol, 0) for symbol, name in self._names.items() if ".sizes()" in name.name}
        guards = tuple(dict.fromkeys(guard.expr for guard in self._shapes.guards))
        call = RecordedCall(
            arguments=arguments, guards=guards, allocations=tuple(self._allocations), launches=launches,
            results=results,
        )  # fmt: skip
        found: dict[Expr, Expr] = {}
        _changed(call, lambda expr: found.setdefault(expr, expr))
        # what has no C++ makes the call hold for the sample's numbers alone
        pinned = {each for expr in found if not is_expressible(expr) for each in expr.free_symbols}
        values = {symbol: self._values[symbol] for symbol in self._names if symbol in pinned}
        call = _changed(call, lambda expr: expr.xreplace(values))
        guards = (*call.guards, *(sympy.Eq(*row) for row in values.items()))
        if any(guard.xreplace(self._values) != sympy.true for guard in guards):
            raise Unrecorded("its recording does not fit its own sample.")
        call = replace(call, guards=tuple(guard for guard in guards if guard not in {sympy.true, *trivial}))
        call = _changed(call, lambda expr: expr.xreplace(self._names))
        assert isinstance(call, RecordedCall)
        return replace(call, units=tuple(self._units), exactly=self._exactly)

    def _result(self, tensor: Tensor) -> tuple[int, TensorLayout]:
        place = self._place(tensor)
        if place.argument or tensor.dtype != self._allocations[place.source].dtype:
            raise Unrecorded("it returns an argument's memory, or memory in another dtype than it made.")
        offset = sympy.expand(place.offset / tensor.itemsize)
        return place.source, replace(_layout(tensor), offset=offset)

    def _launch(
        self, kernel: Kernel, args: Sequence[Any], grid: Any, shape: tuple[Any, ...]
    ) -> RecordedLaunch:
        name, unit, arch = kernel.name, kernel.unit, limits(self._target.major, self._target.minor)
        if unit.is_tile:
            raise Unrecorded(f"{unit.source.name} has tile kernels, which are launched from Python alone.")
        if any(isinstance(value, TensorMap) for value in args):
            raise Unrecorded("it passes a tensor map, which is encoded for calls from Python alone.")
        if any(pack.members_of(value) is not None for value in args):
            raise Unrecorded(f"{name} takes the members of a struct.")
        if not [self._place(tensor) for tensor in pack.tensors_in(args)]:
            raise Unrecorded(f"{name} is launched without a tensor, so on the current GPU.")
        config, code = read_config(name, self._plain(grid), *map(_pinned, shape)), unit.code(self._target)
        code.claim(name)
        require_fit(name, config, code.needs(name), arch)
        plan, parameters, offsets, parts = code.plan(name), bytearray(), list[int](), list[Field]()
        to = pack.Placement(lambda *_: 0, lambda *_: b"", _refuse_list)
        packed, _ = pack.pack(plan, self._plain([*args]), to)
        for packer, value, data in zip(plan.packers, pack.expanded(args), packed, strict=True):
            parameters += bytes(-len(parameters) % PARAMETER_ALIGNMENT)
            start, constant = len(parameters), bytearray(data)
            for part in self._fields(name, packer, value):
                constant[part.offset : part.offset + _BYTES[part.kind]] = bytes(_BYTES[part.kind])
                parts.append(replace(part, offset=start + part.offset))
            offsets.append(start)
            parameters += constant
        self._units.append(unit)
        x, y, z = map(_expr, (*(grid if isinstance(grid, (tuple, list)) else (grid,)), 1, 1)[:3])
        config = replace(cuda.supported(config, arch.capability), grid=(1, 1, 1))
        return RecordedLaunch(
            kernel=name, parameters=bytes(parameters), offsets=tuple(offsets), fields=tuple(parts),
            grid=(x, y, z), config=config,
        )  # fmt: skip

    def _fields(self, kernel: str, packer: Any, value: Any) -> Iterator[Field]:
        """Yield the parts of a parameter that depend on the call, and guard what was accepted of it."""
        if isinstance(packer, (PointerPacker, TensorPacker)) and value is not None:
            yield from self._pointer(kernel, packer, value)
            return
        kind = ""
        if isinstance(value, (torch.SymInt, torch.SymFloat)) and _expr(value).free_symbols:
            if isinstance(packer, FloatPacker):
                value, kind = torch.sym_float(value), {"<f": "float", "<d": "double"}.get(packer.code, "")
            elif isinstance(packer, IntPacker) and packer.size <= 8:
                signed = bool(value < 0) if packer.either else packer.signed
                kind = f"{'' if signed else 'u'}int{8 * packer.size}_t"
        if kind:
            yield Field(offset=0, kind=kind, value=_expr(value))
        else:
            _pinned(value)

    def _pointer(self, kernel: str, packer: PointerPacker | TensorPacker, value: Any) -> Iterator[Field]:
        tensor = value.tensor if isinstance(value, WRAPPED) else value
        place = self._place(tensor)
        if isinstance(packer, PointerPacker):
            if not isinstance(value, pack.Strided) and not self._is_contiguous(tensor):
                raise Unrecorded(f"{kernel} gets a tensor that is not contiguous.")
            if packer.alignment > tensor.itemsize and not self.aligned(tensor, packer.alignment):
                raise Unrecorded(f"{kernel} gets a tensor that is not aligned to {packer.alignment} bytes.")
        elif packer.index:
            raise Unrecorded(f"{kernel} takes a TensorInfo, whose sizes are not at fixed places.")
        else:
            for number, size in enumerate((*tensor.shape, *tensor.stride())):
                yield Field(offset=8 + 8 * number, kind="int64_t", value=_expr(size))
        whole = _expr(self._roots[place.argument, place.source].numel()) == _expr(tensor.numel())
        if whole or tensor.numel() != 0:  # an empty part has no address, though the whole may have one
            yield Field(offset=0, kind="", value=place)


def _refuse(reason: str) -> NoReturn:
    """End the body, with the line of it that is running."""
    where = caller_line()
    raise Unrecorded(f"{reason}, in {where}." if where else f"{reason}.")


def _refuse_list(data: bytes, name: str, writable: bool) -> NoReturn:
    raise Unrecorded(f"it passes a list for {name}, and C++ makes no array of it.")


def _expr(number: Any) -> Expr:
    return number.node.expr if isinstance(number, (torch.SymInt, torch.SymFloat)) else sympy.sympify(number)


def _layout(tensor: Tensor) -> TensorLayout:
    return TensorLayout(sizes=tuple(map(_expr, tensor.shape)), strides=tuple(map(_expr, tensor.stride())))


def _pinned(value: Any) -> Any:
    """Return a value, or the numbers in it, as in the sample, and guard that they are."""
    if isinstance(value, tuple):
        return tuple(map(_pinned, value))
    kinds: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](value) if type(value) in kinds else value


def _indexed(tensor: Tensor, key: Any) -> Tensor:
    """Index a tensor by the operators for views."""
    keys, dim = list(key) if isinstance(key, tuple) else [key], 0
    for at in [at for at, one in enumerate(keys) if one is Ellipsis]:
        keys[at : at + 1] = [slice(None)] * (tensor.dim() + 1 - sum(one is not None for one in keys))
    for one in keys:
        if isinstance(one, slice):
            tensor = _aten.slice.Tensor(tensor, dim, one.start, one.stop, 1 if one.step is None else one.step)
        elif one is None:
            tensor = tensor.unsqueeze(dim)
        elif isinstance(one, (int, torch.SymInt)) and not isinstance(one, bool):
            tensor = tensor.select(dim, one)
            continue
        else:
            _refuse(f"it indexes a tensor with a {type(one).__name__}, which copies")
        dim += 1
    return tensor


def _changed(value: Any, change: Callable[[Expr], Expr]) -> Any:
    """Return a recorded call, or a part of one, with every expression changed."""
    if isinstance(value, sympy.Basic):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_changed(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _changed(getattr(value, part.name), change) for part in fields(value)}
        return replace(value, **parts)
    return value


# Every call of a project's samples, for every GPU that a wheel has code for.


MAX_TARGETS = 64
"""A plan's targets are the bits of one number."""

# The schema types that C++ on the stable ABI takes. Source: torch/csrc/stable/stableivalue_conversions.h.
TYPES = {"Tensor": "Tensor", "int": "int64_t", "float": "double", "bool": "bool", "str": "std::string"}

DTYPES: Mapping[torch.dtype, str] = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.uint16: "UInt16", torch.uint32: "UInt32", torch.uint64: "UInt64", torch.bool: "Bool",
    torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
    torch.float8_e4m3fn: "Float8_e4m3fn", torch.float8_e5m2: "Float8_e5m2",
}  # fmt: skip
"""torch's name of each dtype in C++. Source: torch/headeronly/core/ScalarType.h."""


Calls = Mapping[RecordedCall, Sequence[int]]
"""What the samples of an overload do, and the indices of the architectures for which they do it."""

HasCode = Callable[[CompilationUnit, Target], bool]


def record_all(
    operators: Sequence[Operator], targets: Sequence[Target], has_code: HasCode = lambda unit, target: True
) -> tuple[dict[Overload, Calls], tuple[str, ...]]:
    """Record every overload for each architecture, with every sample in every dtype.

    Args:
        operators: With samples.
        targets: The architectures.
        has_code: Whether a kernel was compiled for an architecture.

    Returns:
        The overloads that C++ can run, with their calls; what it cannot run, and why.
    """
    recorded, notes = dict[Overload, Calls](), dict[str, None]()
    for overload in (overload for operator in operators for overload in operator.overloads.values()):
        reason = _unfit(overload)
        if reason:
            notes[f"{overload.qualified_name} is not in C++: {reason}"] = None
        elif calls := _calls(overload, targets, notes, has_code):
            recorded[overload] = calls
    return recorded, tuple(notes)


def types_of(overload: Overload) -> tuple[str, ...]:
    """Return the schema type of each argument; a dtype is an `int` to a schema."""
    schema: Any = torch._C.parse_schema(overload.signature.name + overload.signature.text)
    texts = [str(argument.type) for argument in schema.arguments]
    return tuple(re.sub(r"^Optional\[(.*)\]$", r"\1?", text) for text in texts)


def _unfit(overload: Overload) -> str:
    """Return why no call of it can be in C++; empty if one may be."""
    for name, kind in zip(overload.signature.arguments, types_of(overload), strict=True):
        if kind.removesuffix("?") not in TYPES:
            return f"its argument {name} is a {kind}, which the stable ABI does not take from here."
    if "Tensor" not in types_of(overload):
        return "each of its tensors may be left out, so its device is unknown."
    if overload.body is None:
        return "a library computes it, in C++ already."
    return "it returns a list of tensors." if any(overload.signature.lists) else ""


def _calls(overload: Overload, targets: Sequence[Target], notes: dict[str, None], has_code: HasCode) -> Calls:
    calls: dict[RecordedCall, list[int]] = {}
    lacking: dict[str, list[str]] = {}
    for index, target in enumerate(targets):
        for name, sample in samples_on_cpu(overload):
            found = _recorded(overload, sample, target)
            if not isinstance(found, str) and not all(has_code(unit, target) for unit in found.units):
                found = "it launches a kernel of another package, or one that was not compiled."
            if isinstance(found, str):
                if name not in lacking.setdefault(found, []):
                    lacking[found].append(name)
            elif index not in calls.setdefault(found, []):
                calls[found].append(index)
    if not calls and not lacking:
        notes[f"{overload.qualified_name} is not in C++: it has no samples, which show what it does."] = None
    for reason, names in lacking.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        notes[f"{overload.qualified_name} with {names[0]}{more} is not in C++: {reason}"] = None
    return calls


def _recorded(overload: Overload, sample: Sample, target: Target) -> RecordedCall | str:
    """Return a sample's call; or why C++ cannot run it."""
    try:
        call = Recording(target).run(overload, dict(_whole(overload, sample)))
    except (Unrecorded, DotcuError) as reason:
        return str(reason)
    except Exception as error:
        return f"recorded without launches, on tensors without values, it raised {first_lines(error)}"
    dtypes = [each.dtype for each in call.arguments if isinstance(each, TensorArgument)]
    for dtype in (*dtypes, *(made.dtype for made in call.allocations)):
        if dtype not in DTYPES:
            return f"it has a tensor of {dtype}, which has no C++ type here."
    written = next((unit for unit in call.units if unit.variables.contents), None)
    if written is not None:
        return f"variables of {written.source.name} are written from Python, and C++ does not do that."
    return call


def _whole(overload: Overload, sample: Sample) -> Iterator[tuple[str, Any]]:
    """Yield a value for each argument, as torch would pass it on."""
    assert overload.body is not None
    bound = inspect.signature(overload.body).bind(*sample.args, **sample.kwargs)
    bound.apply_defaults()
    for name, kind in zip(overload.signature.arguments, types_of(overload), strict=True):
        value, wanted = bound.arguments[name], kind.removesuffix("?")
        if wanted == "float" and type(value) is int:
            value = float(value)
        elif wanted == "int" and type(value) is bool:
            value = int(value)
        yield name, value
