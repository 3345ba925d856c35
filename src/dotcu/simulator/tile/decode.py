"""The binders of a tile kernel's operations: each becomes a function of the launch, with its values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dotcu.simulator.run import Array
from dotcu.simulator.semantics.builtins import fill
from dotcu.simulator.tile.access import EXTENTS, MEMORY, TensorView
from dotcu.simulator.tile.operations import (
    COMPUTED,
    RegionBody,
    constant,
    dtype_of,
    is_float,
    reduce_tiles,
    scan_tiles,
)
from dotcu.simulator.tile.state import (
    VIEWS,
    Binder,
    RegionEnd,
    TileCode,
    TileDecoder,
    TileLaunch,
    TileStep,
    run_region,
)
from dotcu.tile_ir.module import (
    DYNAMIC,
    ELEMENT_BITS,
    Assumption,
    TileOperation,
)

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
    return _results(operation, lambda launch: [compute(*_inputs(launch, operation))])


def _inputs(launch: TileLaunch, operation: TileOperation) -> list[Any]:
    values = launch.values
    return [values[each] for each in operation.inputs]


def _results(operation: TileOperation, compute: Callable[[TileLaunch], Iterable[Any]]) -> TileStep:
    """Return the step that sets an operation's results to what a launch gives."""
    results = operation.results

    def step(launch: TileLaunch) -> None:
        for result, each in zip(results, compute(launch), strict=True):
            launch.values[result] = each

    return step


def _computed(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    return _bound(COMPUTED[operation.name](operation, decoder.function), operation)


def _sliced(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    step, types, (result,) = _computed(decoder, operation), decoder.function.types, operation.results
    given = iter(operation.inputs)
    tile, part = (next(given), result) if operation.name == "extract" else (next(given), next(given))[::-1]
    indices, type_ = tuple(given), types[result]
    counts = [whole // one for whole, one in zip(types[tile].shape, types[part].shape, strict=True)]

    def run(launch: TileLaunch) -> None:
        numbers = [int(launch.values[each]) for each in indices]
        if all(0 <= number < count for number, count in zip(numbers, counts, strict=True)):
            step(launch)
            return
        message = (
            f"out-of-bounds {operation.name}: there is no slice {numbers} in its tile. "
            "Number slices, not elements, from 0."
        )
        launch.report("out-of-bounds", operation, 1, message)
        launch.values[result] = np.zeros(type_.shape, dtype_of(type_.element))

    return run


def _constant(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    value = constant(operation.attributes["value"])
    return _results(operation, lambda launch: [value])


def _offset(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    width = np.int64(_pointee_bytes(decoder, operation.inputs[0]))
    return _bound(lambda pointer, offset: pointer + np.asarray(offset).astype(np.int64) * width, operation)


def _pointee_bytes(decoder: TileDecoder, pointer: int) -> int:
    return max(1, ELEMENT_BITS[decoder.function.types[pointer].pointee] // 8)


def _body(decoder: TileDecoder, operation: TileOperation) -> Callable[[TileLaunch], RegionBody]:
    """Return the function of a reduction's or a scan's region, applied to whole arrays."""
    code = decoder.region(operation.regions[0])

    def start(launch: TileLaunch) -> RegionBody:
        def apply(arrays: Sequence[Array]) -> list[Array]:
            values, shape = launch.values, arrays[0].shape
            for argument, each in zip(code.arguments, arrays, strict=True):
                values[argument] = each
            for step in code.steps:
                step(launch)
            ended = [values[each] for each in code.ending[1]]
            return [each if np.shape(each) == shape else np.broadcast_to(each, shape) for each in ended]

        return apply

    return start


def _reduce(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    axis, body = operation.attributes["dim"], _body(decoder, operation)
    return _results(operation, lambda launch: reduce_tiles(_inputs(launch, operation), axis, body(launch)))


def _scan(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    axis, reverse = operation.attributes["dim"], operation.attributes["reverse"]
    body = _body(decoder, operation)
    return _results(
        operation,
        lambda launch: scan_tiles(_inputs(launch, operation), axis, body(launch), reverse=reverse),
    )


def _assume(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    predicate, value = operation.attributes["predicate"], operation.inputs[0]
    (result,) = operation.results
    if value in decoder.origins:
        decoder.origins[result] = decoder.origins[value]
    unit = np.int64(1)
    if predicate.every is not None and decoder.function.types[value].is_pointer:
        unit = np.int64(_pointee_bytes(decoder, value))

    def step(launch: TileLaunch) -> None:
        given = launch.values[value]
        launch.values[result] = given
        numbers = np.asarray(given.base if isinstance(given, TensorView) else given)
        broken = _broken(numbers, predicate, unit)
        if broken.any():
            _report_broken(launch, operation, numbers, broken)

    return step


def _broken(numbers: Array, predicate: Assumption, unit: np.int64) -> Array:
    """Return which values break a promise."""
    if predicate.kind == "bounded":
        bad = np.zeros(numbers.shape, bool)
        if predicate.low is not None:
            bad |= numbers < predicate.low
        return bad if predicate.high is None else bad | (numbers > predicate.high)
    first = numbers
    if predicate.kind == "same_elements":
        for axis, group in enumerate(predicate.groups):
            index = np.arange(numbers.shape[axis])
            first = np.take(first, index - index % group, axis)
        return np.asarray(first != numbers)
    if predicate.every is None or predicate.along is None:
        return np.asarray(numbers % predicate.divisor != 0)
    along, count = predicate.along, numbers.shape[predicate.along]
    inside = np.arange(count) % predicate.every
    first = np.take(numbers, np.arange(count) - inside, along)
    counted = np.moveaxis(first, along, -1) + inside * unit
    return (np.moveaxis(counted, -1, along) != numbers) | (first % predicate.divisor != 0)


def _report_broken(launch: TileLaunch, operation: TileOperation, numbers: Array, broken: Array) -> None:
    """Report values that break a promise."""
    first, value = int(np.broadcast_to(numbers, broken.shape)[broken][0]), operation.inputs[0]
    type_, origin = launch.decoded.function.types[value], launch.decoded.origins.get(value, -1)
    name = launch.names[origin] if 0 <= origin < len(launch.names) else ""
    held = f"is {first}"
    if type_.is_pointer or type_.kind == "tensor_view":
        name = launch.name_at(first) or name
        held = f"begins at a multiple of {first & -first} bytes" if first else "is null"
    message = (
        f"broken-promise: {f'`{name}`' if name else 'a value'} {held}, and the kernel promises "
        f"{operation.attributes['predicate'].words}. A GPU computes anything then: keep the promise, or do "
        "without it."
    )
    launch.report("broken-promise", operation, int(broken.sum()), message, name)


# Views


def _tensor_view(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    type_, (result,) = decoder.function.types[operation.results[0]], operation.results
    (base,) = operation.operands["base"]
    sizes, steps = operation.operands["dynamicShape"], operation.operands["dynamicStrides"]

    def filled(values: list[Any], known: tuple[int, ...], given: Iterator[int]) -> tuple[int, ...]:
        return tuple(int(values[next(given)]) if each == DYNAMIC else each for each in known)

    def step(launch: TileLaunch) -> None:
        values = launch.values
        extents = filled(values, type_.shape, iter(sizes))
        view = TensorView(int(values[base]), extents, filled(values, type_.strides, iter(steps)))
        values[result] = view
        at = next((at for at, extent in enumerate(extents) if extent < 0), None)
        if at is not None:
            name = launch.name_at(view.base)
            message = (
                f"out-of-bounds: a view{f' of `{name}`' if name else ''} has the extent {extents[at]} in "
                f"dimension {at}, which is no size. A GPU computes anything then. {EXTENTS}"
            )
            launch.report("out-of-bounds", operation, 1, message, name)

    return step


def _extents(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    """Bind what gives the extents of a tensor, or how many tiles of a view there are along each."""
    types = decoder.function.types
    held, type_ = [dtype_of(types[each].element) for each in operation.results], types[operation.inputs[0]]

    def found(launch: TileLaunch) -> Iterator[Any]:
        extents = launch.values[operation.inputs[0]].extents
        if operation.name == "get_index_space_shape":
            steps = zip(type_.dim_map, type_.steps or type_.shape, strict=True)
            extents = [-(-extents[dimension] // step) for dimension, step in steps]
        return (np.asarray(each).astype(dtype)[()] for each, dtype in zip(extents, held, strict=True))

    return _results(operation, found)


# Memory of variables, and of a block


def _global(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    name = operation.attributes["name"]
    return _results(operation, lambda launch: [np.int64(launch.addresses[name])])


def _alloca(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    size = operation.attributes["num_elem"] * _pointee_bytes(decoder, operation.results[0])
    return _results(operation, lambda launch: [np.int64(launch.allot(size))])


# Control


def _if(decoder: TileDecoder, operation: TileOperation) -> TileStep:
    codes = [decoder.region(region) for region in operation.regions]
    condition, results = operation.operands["condition"][0], operation.results
    then, otherwise = codes[0], codes[1] if len(codes) > 1 else None

    def step(launch: TileLaunch) -> RegionEnd | None:
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
) -> RegionEnd | None:
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

    def step(launch: TileLaunch) -> RegionEnd | None:
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

    def printed(value: Any, element: str) -> bytes:
        """Return the bytes that printf takes for a value, of a tile for its first."""
        first = np.asarray(value).reshape(-1)[0]
        if element and is_float(element):
            return np.float64(first).tobytes()
        return int(first).to_bytes(8, "little", signed=True)

    def step(launch: TileLaunch) -> None:
        taken = iter([printed(launch.values[a], e) for a, e in zip(arguments, elements, strict=True)])
        shown = fill(text, lambda size: next(taken, b"\0" * 8)[: max(size, 1)], lambda address: "")
        launch.run.output.append("tile block ({},{},{}): ".format(*launch.block) + shown)

    return step


BINDERS: Mapping[str, Binder] = {
    **dict.fromkeys(COMPUTED, _computed),
    **MEMORY,
    **dict.fromkeys(VIEWS, lambda decoder, operation: _bound(lambda view: view, operation)),
    # Operations run in the program's order.
    **dict.fromkeys(("make_token", "join_tokens"), lambda decoder, operation: lambda launch: None),
    **dict.fromkeys(("extract", "insert"), _sliced),
    **dict.fromkeys(("get_tensor_shape", "get_index_space_shape"), _extents),
    "constant": _constant,
    "offset": _offset,
    "reduce": _reduce,
    "scan": _scan,
    "get_tile_block_id": lambda decoder, op: _results(op, lambda launch: map(np.int32, launch.block)),
    "get_num_tile_blocks": lambda decoder, op: _results(op, lambda launch: map(np.int32, launch.extent)),
    "assume": _assume,
    "make_tensor_view": _tensor_view,
    "get_global": _global,
    "alloca": _alloca,
    "if": _if,
    "for": _for,
    "loop": _loop,
    "assert": _assert,
    "print_tko": _print,
}
