"""A tile kernel, ready to run: each operation a function of the launch, bound to the values that it takes.

Values are numbered over the kernel, so that a launch keeps all of them in one list. An operation whose
operands are the same for every tile block (constants, parameters, and what is computed of them alone) runs
once in a launch, at its first turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dotcu.errors import UnsupportedInstruction
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.tile import access as memory
from dotcu.simulator.tile.access import TensorView, TileAccess
from dotcu.simulator.tile.arithmetic import ELEMENTWISE, work_of
from dotcu.simulator.tile.elements import constant, dtype_of
from dotcu.simulator.tile.structure import STRUCTURE, reduce_tiles, scan_tiles
from dotcu.tile_ir.module import (
    DYNAMIC,
    ELEMENT_BITS,
    Region,
    TileFunction,
    TileOperation,
    TileType,
    describe_operation,
)

if TYPE_CHECKING:
    from dotcu.simulator.tile.launch import TileLaunch

Outcome = tuple[str, tuple[Any, ...]]
"""How a region ended: the name of the operation that ended it, and the values that it passed on."""
TileStep = Callable[["TileLaunch"], "Outcome | None"]
Binder = Callable[["TileDecoder", TileOperation], TileStep]


@dataclass(eq=False, kw_only=True)
class TileCode:
    """A region, ready to run.

    Attributes:
        arguments: The values that it is started with.
        steps: Its operations.
        varying: Those of them that have to run each time.
        work: The numbers of its operations.
        elements: How many elements its operations have on average.
        ending: The operation that ends it, and the values that it passes on.
    """

    arguments: tuple[int, ...]
    steps: tuple[TileStep, ...]
    varying: tuple[TileStep, ...]
    work: tuple[int, ...]
    elements: int
    ending: tuple[str, tuple[int, ...]]


@dataclass(eq=False)
class TileDecoder:
    """A kernel while its operations are bound, and what is known of it then.

    Attributes:
        function: The kernel.
        operations: Its operations by number.
        uniform: The values that are the same for every tile block.
        body: The kernel's code.
        used: The values that an operation takes.
        works: For each operation what it counts as.
        origins: The parameters, and values that are the same as one: the parameter's number.
    """

    function: TileFunction
    operations: list[TileOperation] = field(default_factory=list)
    uniform: set[int] = field(default_factory=set)
    works: list[tuple[str, str, int, int]] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uniform.update(self.function.body.arguments)
        self.origins.update((value, number) for number, value in enumerate(self.function.body.arguments))
        self.used = {value for operation in self.function.operations() for value in operation.inputs}
        self.body = self.region(self.function.body)

    def region(self, region: Region) -> TileCode:
        """Bind the operations of a region."""
        steps, varying, work = [], [], []
        *operations, last = region.operations
        for operation in operations:
            number = self.number(operation)
            binder = _BINDERS.get(operation.name)
            if binder is None:
                raise UnsupportedInstruction(self.refusal(operation))
            step = binder(self, operation)
            steps.append(step)
            if not self._is_uniform(operation):
                varying.append(step)
            work.append(number)
        work.append(self.number(last))
        return TileCode(
            arguments=region.arguments,
            steps=tuple(steps),
            varying=tuple(varying),
            work=tuple(work),
            elements=sum(self.works[number][3] for number in work) // len(work),
            ending=(last.name, last.inputs),
        )

    def idle_axes(self) -> tuple[str, ...]:
        """Return the axes of the grid that nothing in the kernel depends on."""
        places = [each.results for each in self.operations if each.name == "get_tile_block_id"]
        return tuple(
            axis for at, axis in enumerate("xyz") if all(results[at] not in self.used for results in places)
        )

    def may_wait(self) -> bool:
        """Return whether a loop may wait for another tile block: it looks at memory that others change."""
        loops = [each.regions[0] for each in self.function.operations() if each.name == "loop"]
        while loops:
            for inner in loops.pop().operations:
                loops += inner.regions
                if inner.attributes.get("memory_ordering_semantics", "weak") != "weak":
                    return True
        return False

    def refusal(self, operation: TileOperation) -> str:
        """Return the message for an operation that is not executed."""
        place = operation.line
        where = f"{place.file}:{place.line}: " if place else ""
        shown = describe_operation(operation, self.function)
        return (
            f"{where}the simulator does not execute `{operation.name}`: `{shown}`.\n"
            "It executes the operations that CUDA Tile C++ of CUDA 13.5 needs for one GPU.\n"
            "Launch on CUDA tensors, or write the step without it."
        )

    def access(self, operation: TileOperation, action: str, type_: TileType) -> TileAccess:
        """Describe the access of the operation that was numbered last.

        Args:
            operation: The operation.
            action: "read", "write" or "atomic".
            type_: A view or a tile of values, of the element type in memory.
        """
        if ELEMENT_BITS.get(type_.element) == 4:  # two to a byte; C++ has one in each
            raise UnsupportedInstruction(self.refusal(operation))
        return TileAccess.of(len(self.operations) - 1, operation, action, type_)

    def number(self, operation: TileOperation) -> int:
        """Number an operation."""
        self.operations.append(operation)
        self.works.append(work_of(operation, self.function))
        return len(self.operations) - 1

    def _is_uniform(self, operation: TileOperation) -> bool:
        if operation.name not in _PURE or not self.uniform.issuperset(operation.inputs):
            return False
        if operation.regions:
            known = set(self.uniform)
            for region in operation.regions:
                known.update(region.arguments)
                for inner in region.operations:
                    if not known.issuperset(inner.inputs):
                        return False
                    known.update(inner.results)
        self.uniform.update(operation.results)
        return True


def run_region(launch: TileLaunch, code: TileCode) -> Outcome:
    """Run a region, and return how it ended."""
    seen = launch.seen
    first = id(code) not in seen
    launch.enter(code)
    for step in code.steps if first else code.varying:
        outcome = step(launch)
        if outcome is not None:
            return outcome
    if first:
        seen.add(id(code))
    values = launch.values
    return code.ending[0], tuple([values[each] for each in code.ending[1]])


# Operations on values alone


def _bound(compute: Callable[..., Any], operation: TileOperation) -> TileStep:
    """Return the step of a function with one result."""
    (result,), inputs = operation.results, operation.inputs
    if len(inputs) == 1:
        (a,) = inputs

        def one(launch: TileLaunch) -> None:
            values = launch.values
            values[result] = compute(values[a])

        return one
    if len(inputs) == 2:
        a, b = inputs

        def two(launch: TileLaunch) -> None:
            values = launch.values
            values[result] = compute(values[a], values[b])

        return two

    def step(launch: TileLaunch) -> None:
        values = launch.values
        values[result] = compute(*[values[each] for each in inputs])

    return step


def _elementwise(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    return _bound(ELEMENTWISE[operation.name](operation, decoder.function), operation)


def _structural(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    return _bound(STRUCTURE[operation.name](operation, decoder.function), operation)


def _sliced(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    step = _structural(decoder, operation)
    shape = decoder.function.types[operation.results[0]].shape

    def run(launch: TileLaunch) -> None:
        try:
            step(launch)
        except IndexError as error:
            message = (
                f"out-of-bounds {operation.name}: there is no slice {list(error.args[1])} in its tile. "
                "Number slices, not elements, from 0."
            )
            launch.report("out-of-bounds", operation, 1, message)
            held = dtype_of(decoder.function.types[operation.results[0]].element)
            launch.values[operation.results[0]] = np.zeros(shape, held)

    return run


def _constant(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    value, (result,) = constant(operation.attributes["value"]), operation.results

    def step(launch: TileLaunch) -> None:
        launch.values[result] = value

    return step


def _offset(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    type_ = decoder.function.types[operation.inputs[0]]
    width = np.int64(_bytes_of(type_.pointee))
    return _bound(lambda pointer, offset: pointer + np.asarray(offset).astype(np.int64) * width, operation)


def _bytes_of(element: str) -> int:
    return max(1, ELEMENT_BITS[element] // 8)


def _body(decoder: TileDecoder, operation: TileOperation) -> Callable[[TileLaunch], Any]:
    """Return the function of a reduction's or a scan's region, applied to whole arrays."""
    code = decoder.region(operation.regions[0])

    def start(launch: TileLaunch) -> Callable[[Sequence[Array]], list[Array]]:
        def apply(arrays: Sequence[Array]) -> list[Array]:
            values = launch.values
            for argument, each in zip(code.arguments, arrays, strict=True):
                values[argument] = each
            for step in code.steps:
                step(launch)
            shape = arrays[0].shape
            ended = [values[each] for each in code.ending[1]]
            return [each if np.shape(each) == shape else np.broadcast_to(each, shape) for each in ended]

        return apply

    return start


def _reduce(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    axis, body = operation.attributes["dim"], _body(decoder, operation)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        reduced = reduce_tiles([values[each] for each in operation.inputs], axis, body(launch))
        for result, each in zip(operation.results, reduced, strict=True):
            values[result] = each

    return step


def _scan(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    axis, reverse, body = (
        operation.attributes["dim"],
        operation.attributes["reverse"],
        _body(decoder, operation),
    )

    def step(launch: TileLaunch) -> None:
        values = launch.values
        tiles = [values[each] for each in operation.inputs]
        for result, each in zip(
            operation.results, scan_tiles(tiles, axis, body(launch), reverse=reverse), strict=True
        ):
            values[result] = each

    return step


def _token(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    return lambda launch: None  # operations run in the program's order


def _block_id(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    def step(launch: TileLaunch) -> None:
        for result, each in zip(operation.results, launch.block, strict=True):
            launch.values[result] = np.int32(each)

    return step


def _block_count(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    def step(launch: TileLaunch) -> None:
        for result, each in zip(operation.results, launch.extent, strict=True):
            launch.values[result] = np.int32(each)

    return step


def _assume(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    predicate, value = operation.attributes["predicate"], operation.inputs[0]
    (result,) = operation.results
    type_ = decoder.function.types[value]
    if value in decoder.origins:
        decoder.origins[result] = decoder.origins[value]
    unit = np.int64(1)
    if predicate.every is not None and type_.is_pointer:
        unit = np.int64(_bytes_of(type_.pointee))

    def step(launch: TileLaunch) -> None:
        given = launch.values[value]
        launch.values[result] = given
        numbers = np.asarray(given.base if isinstance(given, TensorView) else given)
        broken = _broken(numbers, predicate, unit)
        if broken is not None:
            launch.report_broken(operation, value, (numbers, broken), predicate)

    return step


def _broken(numbers: Array, predicate: Any, unit: np.int64) -> Array | None:
    """Return which values break a promise, None if none does."""
    if predicate.kind == "bounded":
        low, high = predicate.low, predicate.high
        bad = np.zeros(numbers.shape, bool)
        if low is not None:
            bad |= numbers < low
        if high is not None:
            bad |= numbers > high
    elif predicate.kind == "div_by":
        first = numbers
        if predicate.every is not None:
            along, count = predicate.along, numbers.shape[predicate.along]
            inside = np.arange(count) % predicate.every
            first = np.take(numbers, np.arange(count) - inside, along)
            counted = np.moveaxis(first, along, -1) + inside * unit
            bad = (np.moveaxis(counted, -1, along) != numbers) | (first % predicate.divisor != 0)
        else:
            bad = np.asarray(first % predicate.divisor != 0)
    else:
        first = numbers
        for axis, group in enumerate(predicate.groups):
            index = np.arange(numbers.shape[axis])
            first = np.take(first, index - index % group, axis)
        bad = first != numbers
    return bad if bad.any() else None


# Views


def _tensor_view(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    type_, (result,) = decoder.function.types[operation.results[0]], operation.results
    base = operation.one("base")
    assert base is not None
    sizes, steps = operation.operands["dynamicShape"], operation.operands["dynamicStrides"]

    def filled(values: list[Any], known: tuple[int, ...], given: Iterator[int]) -> tuple[int, ...]:
        return tuple(int(values[next(given)]) if each == DYNAMIC else each for each in known)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        view = TensorView(
            int(values[base]),
            filled(values, type_.shape, iter(sizes)),
            filled(values, type_.strides, iter(steps)),
        )
        values[result] = view
        if any(extent < 0 for extent in view.extents):
            launch.report_extents(operation, view)

    return step


def _same(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    return _bound(lambda view: view, operation)


def _tensor_shape(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    return _shape_of(decoder, operation, lambda view: view.extents)


def _index_space(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    type_ = decoder.function.types[operation.inputs[0]]

    def tiles(view: TensorView) -> tuple[int, ...]:
        each = type_.steps or type_.shape
        dims = type_.dim_map
        return tuple(-(-view.extents[d] // step) for d, step in zip(dims, each, strict=True))

    return _shape_of(decoder, operation, tiles)


def _shape_of(
    decoder: TileDecoder, operation: TileOperation, extents: Callable[[TensorView], tuple[int, ...]]
) -> TileStep:
    held = [dtype_of(decoder.function.types[each].element) for each in operation.results]

    def step(launch: TileLaunch) -> None:
        values = launch.values
        found = extents(values[operation.inputs[0]])
        for result, dtype, each in zip(operation.results, held, found, strict=True):
            values[result] = np.asarray(each).astype(dtype)[()]

    return step


# Memory


def _load_view(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    view, index = operation.operands["view"][0], operation.operands["index"]
    type_, result = decoder.function.types[view], operation.results[0]
    access = decoder.access(operation, "read", type_)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        values[result] = memory.load_view(
            launch, access, values[view], type_, [values[each] for each in index]
        )

    return step


def _store_view(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    view, index = operation.operands["view"][0], operation.operands["index"]
    tile, type_ = operation.operands["tile"][0], decoder.function.types[view]
    access = decoder.access(operation, "write", type_)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        at = [values[each] for each in index]
        memory.store_view(launch, access, values[view], type_, at, values[tile])

    return step


def _optional(launch: TileLaunch, value: int | None) -> Any:
    return None if value is None else launch.values[value]


def _load_pointers(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    source, result = operation.operands["source"][0], operation.results[0]
    mask, padding = operation.one("mask"), operation.one("paddingValue")
    access = decoder.access(operation, "read", decoder.function.types[result])

    def step(launch: TileLaunch) -> None:
        values = launch.values
        values[result] = memory.load_pointers(
            launch, access, values[source], _optional(launch, mask), _optional(launch, padding)
        )

    return step


def _store_pointers(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    target, value = operation.operands["destination"][0], operation.operands["value"][0]
    mask = operation.one("mask")
    access = decoder.access(operation, "write", decoder.function.types[value])

    def step(launch: TileLaunch) -> None:
        values = launch.values
        memory.store_pointers(launch, access, values[target], _optional(launch, mask), values[value])

    return step


def _atomic(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    pointers, result, mask = operation.operands["pointers"][0], operation.results[0], operation.one("mask")
    type_ = decoder.function.types[result]
    access = decoder.access(operation, "atomic", type_)
    names: tuple[str, ...] = ("cmp", "val")
    update, at_once = memory.exchange_if_equal, None
    if operation.name == "atomic_rmw_tko":
        mode = operation.attributes["mode"]
        names, update = ("arg",), memory.update_of(mode, type_.element)
        at_once = None if result in decoder.used else memory.ufunc_of(mode, type_.element)
    operands = [operation.operands[name][0] for name in names]

    def step(launch: TileLaunch) -> None:
        values = launch.values
        values[result] = memory.change_pointers(
            launch,
            access,
            values[pointers],
            _optional(launch, mask),
            [values[each] for each in operands],
            update,
            at_once,
        )

    return step


def _atomic_view(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    view, index = operation.operands["view"][0], operation.operands["index"]
    value, type_ = operation.operands["value"][0], decoder.function.types[view]
    access = decoder.access(operation, "atomic", type_)
    update = memory.update_of(operation.attributes["mode"], type_.element)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        at = [values[each] for each in index]
        memory.change_view(launch, access, values[view], type_, at, values[value], update)

    return step


def _global(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    name, (result,) = operation.attributes["name"], operation.results

    def step(launch: TileLaunch) -> None:
        launch.values[result] = np.int64(launch.program.addresses[name])

    return step


def _alloca(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    (result,) = operation.results
    width = _bytes_of(decoder.function.types[result].pointee)
    size = operation.attributes["num_elem"] * width

    def step(launch: TileLaunch) -> None:
        launch.values[result] = np.int64(launch.allot(size))

    return step


# Control


def _if(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    codes = [decoder.region(region) for region in operation.regions]
    condition, results = operation.operands["condition"][0], operation.results
    then, otherwise = codes[0], codes[1] if len(codes) > 1 else None

    def step(launch: TileLaunch) -> Outcome | None:
        code = then if launch.values[condition] else otherwise
        if code is None:
            return None
        outcome = run_region(launch, code)
        if outcome[0] != "yield":
            return outcome
        for result, each in zip(results, outcome[1], strict=True):
            launch.values[result] = each
        return None

    return step


def _repeated(
    launch: TileLaunch, operation: TileOperation, code: TileCode, counts: Iterable[tuple[Any, ...]]
) -> Outcome | None:
    """Run a loop's region, from its initial values on: once for each count, which goes before them."""
    values = launch.values
    carried = tuple([values[each] for each in operation.operands["initValues"]])
    for count in counts:
        for argument, each in zip(code.arguments, (*count, *carried), strict=True):
            values[argument] = each
        outcome = run_region(launch, code)
        if outcome[0] == "return":
            return outcome
        carried = outcome[1]
        if outcome[0] == "break":
            break
    for result, each in zip(operation.results, carried, strict=True):
        values[result] = each
    return None


def _for(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    code = decoder.region(operation.regions[0])
    low, high, stride = (operation.operands[name][0] for name in ("lowerBound", "upperBound", "step"))
    held = dtype_of(decoder.function.types[low].element)
    unsigned = np.dtype(f"u{held.itemsize}") if operation.attributes.get("unsignedCmp") else held

    def step(launch: TileLaunch) -> Outcome | None:
        values = launch.values
        bounds = [int(np.asarray(values[each]).view(unsigned)[()]) for each in (low, high, stride)]
        if bounds[2] < 1:
            message = f"a loop has the step {bounds[2]}. Count up: the step of a range is positive."
            launch.report("trap", operation, 1, message)
            bounds[2] = max(1, bounds[1] - bounds[0])
        counts = ((np.asarray(number).astype(held)[()],) for number in range(*bounds))
        return _repeated(launch, operation, code, counts)

    return step


def _loop(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    code = decoder.region(operation.regions[0])
    return lambda launch: _repeated(launch, operation, code, itertools.repeat(()))


def _assert(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    condition, text = operation.inputs[0], operation.attributes["message"]

    def step(launch: TileLaunch) -> None:
        held = np.asarray(launch.values[condition])
        if not held.all():
            message = f"the assertion `{text}` failed. Look at what made it false."
            launch.report("trap", operation, int((~held).sum()), message)

    return step


def _print(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    text, arguments = operation.attributes["str"], operation.operands["args"]
    elements = [decoder.function.types[each].element for each in arguments]

    def step(launch: TileLaunch) -> None:
        launch.show(text, [launch.values[each] for each in arguments], elements)

    return step


_VIEWS = ("make_partition_view", "make_strided_view", "make_gather_scatter_view")
_BINDERS: Mapping[str, Binder] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(STRUCTURE, _structural),
    **dict.fromkeys(_VIEWS, _same),
    **dict.fromkeys(("make_token", "join_tokens"), _token),
    **dict.fromkeys(("extract", "insert"), _sliced),
    **dict.fromkeys(("atomic_rmw_tko", "atomic_cas_tko"), _atomic),
    "constant": _constant,
    "offset": _offset,
    "reduce": _reduce,
    "scan": _scan,
    "get_tile_block_id": _block_id,
    "get_num_tile_blocks": _block_count,
    "assume": _assume,
    "make_tensor_view": _tensor_view,
    "get_tensor_shape": _tensor_shape,
    "get_index_space_shape": _index_space,
    "load_view_tko": _load_view,
    "store_view_tko": _store_view,
    "load_ptr_tko": _load_pointers,
    "store_ptr_tko": _store_pointers,
    "atomic_red_view_tko": _atomic_view,
    "get_global": _global,
    "alloca": _alloca,
    "if": _if,
    "for": _for,
    "loop": _loop,
    "assert": _assert,
    "print_tko": _print,
}
_PURE = frozenset(
    {
        *ELEMENTWISE,
        *STRUCTURE,
        *_VIEWS,
        "constant",
        "offset",
        "reduce",
        "scan",
        "get_num_tile_blocks",
        "assume",
        "make_tensor_view",
        "get_tensor_shape",
        "get_index_space_shape",
        "get_global",
        "make_token",
        "join_tokens",
    }
)
"""The operations that depend on their operands alone."""
