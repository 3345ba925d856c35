"""wgmma: matrices that a warpgroup multiplies, from shared memory or registers, asynchronously.

What is not complete is in `machine.warpgroups`. One step multiplies for all warpgroups at once.

Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "wgmma.mma_async" (shapes, types,
fragments), "Shared Memory Matrix Layout", "Strides", "Matrix Descriptor Format"; setmaxnreg in
"Miscellaneous Instructions".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import Instruction, Operand, Register, Vector
from dotcu.simulator.machine.access import describe_element
from dotcu.simulator.machine.memory import RANK_BIT
from dotcu.simulator.machine.shape import Threads
from dotcu.simulator.machine.state import Access, Batch, InstructionStep, active_threads
from dotcu.simulator.machine.warpgroups import CHUNK_BYTES, GROUP, ROWS, Warpgroups, warpgroups
from dotcu.simulator.program.binding import MANY, Binding, chosen, counted, immediate, only, require, vector
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.rounding import canonical
from dotcu.simulator.semantics.matrix.mma import (
    ELEMENT_BITS,
    MmaForm,
    Product,
    integer_product,
    layout_of,
    numbers_of,
    sizes_of,
)
from dotcu.simulator.semantics.warp import Rendezvous

GroupStep = Callable[[Batch, Warpgroups, Array], None]
"""What an instruction does for some whole warpgroups, which are those of the active threads."""


def _admit_groups(batch: Batch, instruction: FlatInstruction, number: int, mask: Array) -> bool:
    """Keep back warps whose warpgroup has others that are elsewhere; return whether any go on."""
    groups, threads = warpgroups(batch), batch.numbers()
    here = np.bincount(groups.of(threads), minlength=groups.count)
    living = np.bincount(groups.of(batch.everyone()), minlength=groups.count)
    absent = (here < living)[groups.of(threads)]
    if absent.any():
        batch.stall(number, threads[absent])
        batch.active = threads[~absent]
    return not absent.all()


def _of_groups(instruction: FlatInstruction, binding: Binding, step: GroupStep) -> Rendezvous:
    """The step for whole warpgroups; warps that lack others are reported, and left out."""
    kind = instruction.ptx.opcode

    def run(batch: Batch) -> None:
        groups, threads, active = warpgroups(batch), batch.numbers(), batch.active
        own = groups.of(threads)
        count = np.bincount(own, minlength=groups.count)
        partial = (count % GROUP != 0)[own]
        if partial.any():
            _report_partial(batch, instruction, kind, threads[partial])
            active, own = threads[~partial], own[~partial]
        whole = own[::GROUP]
        if len(whole):
            with active_threads(batch, active):
                step(batch, groups, whole)

    everyone = binding.constant(np.array([0xFFFFFFFF], np.uint32))
    return Rendezvous(run, instruction, everyone, _admit_groups)


def _report_partial(batch: Batch, instruction: FlatInstruction, kind: str, threads: Threads) -> None:
    first = threads[warpgroups(batch).of(threads) == warpgroups(batch).of(threads[:1])]
    message = (
        f"{kind}: only {len(first)} of a warpgroup's {GROUP} threads execute `{instruction.ptx.opcode}` "
        "here. All four warps of a warpgroup, of which the first is at a multiple of four, have to: take it "
        f"out of the condition, and let the block be a multiple of {GROUP} threads."
    )
    batch.report(kind, instruction, threads, message)


def bind_wgmma(instruction: FlatInstruction, binding: Binding) -> Rendezvous:
    """wgmma, of any kind."""
    ptx = instruction.ptx
    kind = counted(ptx.flags, 1, MANY)[0]
    require({"sync", "aligned"} <= set(ptx.flags))
    if kind == "mma_async":
        return _of_groups(instruction, binding, _multiply(instruction, binding))
    if kind == "fence":
        return _of_groups(instruction, binding, lambda batch, state, groups: state.fence(groups))
    if kind == "commit_group":
        return _of_groups(instruction, binding, lambda batch, state, groups: state.commit(groups))
    require(kind == "wait_group")
    left = immediate(only(ptx.operands))
    return _of_groups(
        instruction, binding, lambda batch, state, groups: state.wait(instruction, groups, left)
    )


# Types: what A and B may be, what D may be, and how many elements of K one instruction takes.
#
# Sums in float32 are of products that are exact: within (K + 1) * 2^-23 * sum|a * b| of any order of
# accumulation, as for mma. The hardware's own sums have fewer bits, those of fp8 about 14.
#
# Source: PTX ISA, "wgmma.mma_async": "Data types", "Matrix Shape".

_FLOATS = ("f32", "f16")
# By the type of A: types of B, types of D.
_TYPES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (("f16",), _FLOATS),
    "bf16": (("bf16",), ("f32",)),
    "tf32": (("tf32",), ("f32",)),
    **dict.fromkeys(("e4m3", "e5m2"), (("e4m3", "e5m2"), _FLOATS)),
    **dict.fromkeys(("s8", "u8"), (("s8", "u8"), ("s32",))),
    "b1": (("b1",), ("s32",)),
}
# Columns that integers do not come in (PTX ISA, "Matrix Shape": multiples of 16 beyond 24 and 8).
_INTEGER_COLUMNS = frozenset((8, 24, *range(16, 257, 16)))


def _numbers(type_: str) -> Callable[[Array], Array]:
    """Return what makes numbers of 32-bit words, those of a word side by side, the lowest first."""
    if type_ == "b1":
        return lambda words: np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(
            np.float32
        )
    return numbers_of(type_, np.float32)


def _float_product(result: str, sign: int) -> Product:
    """The product of floats, of which one may be negated, and a sum."""

    def multiply(a: Array, b: Array, c: Array) -> Array:
        total = np.matmul(a, b)
        flat = total.reshape(-1)
        is_far = not np.isfinite(flat @ flat)  # a product or a sum may be larger than f32's largest number
        if is_far:
            total = np.matmul(a, b, dtype=np.float64)
        if sign < 0:
            np.negative(total, out=total)
        total += c
        if result == "f16":
            total = total.astype(np.float16)
        if is_far or result == "f16":
            total = total.astype(np.float32)
            total += 0.0  # what underflows is +0
        return total

    return multiply


def _form_of(ptx: Instruction, from_registers: bool) -> MmaForm:
    """Read the modifiers; the layouts say whether A is stored along K or M, and B along N or K."""
    d, a, b = counted(ptx.types, 3)
    shape = only([flag for flag in ptx.flags if re.fullmatch(r"m\d+n\d+k\d+", flag)])
    others = frozenset(ptx.flags) - {"mma_async", "sync", "aligned", shape}
    m, n, k = sizes_of(shape)
    allowed_b, allowed_d = chosen(_TYPES, a)
    is_integer = d == "s32"
    require(b in allowed_b and d in allowed_d and m == ROWS and k * ELEMENT_BITS[a] == 256)
    require(n in _INTEGER_COLUMNS if is_integer else n % 8 == 0 and 8 <= n <= 256)
    require(others == ({"and", "popc"} if a == "b1" else others & ({"satfinite"} if is_integer else set())))
    given = [immediate(operand) for operand in ptx.operands[4:]]
    signs, across = given[:2], given[2:]
    halves = a in ("f16", "bf16")
    require(len(given) == (0 if is_integer else 2 + halves * (1 if from_registers else 2)))
    require(all(sign in (1, -1) for sign in signs) and all(each in (0, 1) for each in across))
    a_across, b_across = [0] * (2 - len(across)) + across
    layouts = ("col" if a_across else "row"), ("row" if b_across else "col")
    if is_integer:
        return MmaForm(shape, d, a, b, d, layouts, integer_product(others & {"satfinite"}, d), 0)
    return MmaForm(shape, d, a, b, d, layouts, _float_product(d, signs[0] * signs[1]), 0)


def _multiply(instruction: FlatInstruction, binding: Binding) -> GroupStep:
    """wgmma.mma_async: gather A and B, multiply, and hold the sums until they are waited for."""
    ptx = instruction.ptx
    to, left, right, adds, *_ = counted(ptx.operands, 4, MANY)
    from_registers = isinstance(left, Vector)
    form = _form_of(ptx, from_registers)
    columns, dtype = sizes_of(form.shape)[1], np.dtype(np.int32 if form.d == "s32" else np.float32)
    scatter, gather = _fragment(form.d, columns)
    slots = tuple(binding.destination(element).slot for element in vector(to))
    require(len(slots) == columns // (4 if form.d == "f16" else 2))
    fragment: tuple[int, ...] = ()
    if isinstance(left, Vector):
        fragment = tuple(binding.source(element, "b32").slot for element in left.elements)
        require(len(fragment) == 4)
    a_matrix = None if from_registers else _matrix(instruction, left, "A", ROWS, form, binding)
    b_matrix = _matrix(instruction, right, "B", columns, form, binding)
    predicate, a_numbers = binding.source(adds, "pred"), _numbers(form.a)

    def step(batch: Batch, state: Warpgroups, groups: Array) -> None:
        sums = state.sums_of(
            instruction, slots, lambda count: np.zeros((count, ROWS, columns), dtype), scatter
        )
        if sums.shared:
            state.settle(instruction, sums.shared, groups)
        if fragment and state.is_held:
            reads = frozenset(fragment)
            state.settle(
                instruction, [s for s in state.accumulators.values() if reads.intersection(s.slots)], groups
            )
        state.require_fence(instruction, groups, (*slots, *fragment))
        add_to = _uniform(batch, instruction, predicate.read(batch), "scale-d")
        b, inside = b_matrix(batch, state, groups)
        if a_matrix is None:
            a = a_numbers(_A_LAYOUT.gather(_read_all(batch, fragment)))
        else:
            a, a_inside = a_matrix(batch, state, groups)
            inside = inside & a_inside
        if not inside.all():
            groups, a, b = groups[inside], a[inside], b[inside]
            add_to = add_to if add_to.size == 1 else add_to[inside]
            if not len(groups):
                return
        fresh = groups[~sums.held[groups] & add_to]
        if len(fresh):  # what they add to is in the registers, which are newer
            with active_threads(batch, state.threads(fresh)):
                sums.values[fresh] = gather(_read_all(batch, sums.slots))
        rows = state.rows(groups)
        old = sums.values[rows]
        if not add_to.all():
            old = np.where(np.broadcast_to(add_to, len(old)).reshape(-1, 1, 1), old, 0)
        sums.values[rows] = form.product(a, b, old)
        state.issue(instruction, groups, sums, fragment)

    return step


def _read_all(batch: Batch, slots: Sequence[int]) -> Array:
    """The active threads' values of some registers, a row of words for each register."""
    values = np.empty((len(slots), batch.count()), np.uint32)
    for row, slot in zip(values, slots, strict=True):
        row[:] = batch.read(slot).view(np.uint32)
    return values


_A_LAYOUT = layout_of("k h | w g t | w h g | k t", w=4, h=2, k=2)


def _fragment(type_: str, columns: int) -> tuple[Callable[[Array], list[Array]], Callable[[Array], Array]]:
    """Return what makes registers of matrices D, and matrices of registers; of f16, two are in a register."""
    tiles = columns // 8
    if type_ == "f16":
        pairs = layout_of("n h | w g t | w h g | n t", w=4, h=2, n=tiles)
        return (
            lambda values: pairs.scatter(canonical(values).astype(np.float16).view(np.uint32)),
            lambda registers: pairs.gather(registers).view(np.float16).astype(np.float32),
        )
    dtype = np.dtype(np.int32 if type_ == "s32" else np.float32)
    layout = layout_of("n h p | w g t | w h g | n t p", w=4, h=2, n=tiles, p=2)
    return (
        lambda values: layout.scatter(canonical(values)),
        lambda registers: layout.gather(registers).view(dtype),
    )


def _uniform(batch: Batch, instruction: FlatInstruction, value: Array, what: str) -> Array:
    """A value that all threads of a warpgroup have to share, one for each warpgroup or one for all."""
    if value.size == 1:
        return value
    rows = value.reshape(-1, GROUP)
    apart = (rows != rows[:, :1]).any(axis=1)
    if apart.any():
        threads = batch.numbers().reshape(-1, GROUP)[apart].reshape(-1)
        message = (
            f"wgmma: the threads of a warpgroup have different values of {what}, which have to be the same. "
            "Compute it from blockIdx, and from threadIdx / 128 at most."
        )
        batch.report("wgmma", instruction, threads, message)
    return np.ascontiguousarray(rows[:, 0])


# Matrices in shared memory.
#
# A descriptor has, in units of 16 bytes, the start (bits 0 to 13), the leading offset (16 to 29) and the
# stride (32 to 45); then the base offset (49 to 51) and the swizzle (62 and 63). A matrix is made of
# 8 rows by 16 bytes. Along K, 8 rows are `stride` from the next 8; without a swizzle the second 16 bytes are
# `leading` from the first. Along M or N, 8 of K follow each other; with a swizzle of w bytes a row has w
# bytes, the next w are `leading` away, and the next 8 of K `stride`; without one it is the reverse.
#
# A swizzle of w bytes permutes the 16-byte chunks of w bytes by bits 7 and up of the address itself, less
# the base offset.


_SWIZZLES = (0, 128, 64, 32)
_UNUSED = ~np.uint64(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62)

Matrix = Callable[[Batch, Warpgroups, Array], tuple[Array, Array]]
"""Gives the matrix of each warpgroup as numbers along K for A and B, and whether it is in shared memory."""


@functools.lru_cache(maxsize=4096)
def _places(descriptor: int, extent: int, across: bool) -> Array:
    """The 16-byte chunks of a matrix, counted from the start of shared memory.

    Args:
        descriptor, extent: The descriptor, and the matrix's size along M or N.
        across: It is stored along M or N: chunks are by K, then by 8 of M or N; else by row, then by K.
    """
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    width = _SWIZZLES[descriptor >> 62]
    if across:
        k, tile = np.ix_(np.arange(16), np.arange(extent // 8))
        each = width // CHUNK_BYTES
        if width:
            offset = tile // each * leading + tile % each * CHUNK_BYTES + k % 8 * width + k // 8 * stride
        else:
            offset = tile * stride + k % 8 * CHUNK_BYTES + k // 8 * leading
    else:
        row, k = np.ix_(np.arange(extent), np.arange(2))
        offset = (
            row // 8 * stride + row % 8 * (width or CHUNK_BYTES) + k * (CHUNK_BYTES if width else leading)
        )
    address = start + offset
    if width:
        base = descriptor >> 49 & 7
        address ^= ((address >> 7) - base) % (width // CHUNK_BYTES) * CHUNK_BYTES
    return np.asarray(address.reshape(-1) // CHUNK_BYTES)


@functools.lru_cache(maxsize=4096)
def _are_apart(descriptor: int, extent: int, across: bool) -> bool:
    """Return whether each 16-byte chunk of a matrix has a place of its own; arguments as of `_places`."""
    places = _places(descriptor, extent, across)
    return len(np.unique(places)) == len(places)


def _matrix(
    instruction: FlatInstruction, operand: Operand, name: str, extent: int, form: MmaForm, binding: Binding
) -> Matrix:
    """Bind a descriptor."""
    source = binding.source(operand, "b64")
    type_, across = (form.a, form.layouts[0] == "col") if name == "A" else (form.b, form.layouts[1] == "row")
    access = Access(binding.next_access(), instruction, "shared", source.slot, 0, 8, 1, "read")
    numbers = _numbers(type_)

    def matrix(batch: Batch, state: Warpgroups, groups: Array) -> tuple[Array, Array]:
        words = _uniform(batch, instruction, source.read(batch), f"the descriptor of {name}")
        words = np.broadcast_to(words, len(groups))
        if batch.shape.cluster_blocks > 1:
            _check_ranks(state, access, groups, words, lambda word: _places(word, extent, across), name)
        unique, which = np.unique(words, return_inverse=True)
        tables = [_places(int(word), extent, across) for word in unique]
        sound = np.ones(len(unique), bool)
        for i, (word, table) in enumerate(zip(unique.tolist(), tables, strict=True)):
            message, variable = _misplaced(batch, word, table, name)
            sound[i] = not message
            if sound[i] and not _are_apart(word, extent, across):
                message = (
                    f"wgmma: several elements of {name} are read from the same bytes: its descriptor "
                    f"{_offsets(word)[1]}, so that parts of the matrix overlap. Give it the offsets of the "
                    "tile as it is stored; rows that are to be the same are written out, too."
                )
            if message:
                state.report(instruction, groups[which == i], message, address_of=variable)
        inside = sound[which]
        table = np.stack([t if ok else np.zeros_like(t) for t, ok in zip(tables, sound, strict=True)])
        starts = groups // state.each * (batch.shared.pitch // CHUNK_BYTES)
        places = table[which] + starts[:, None]
        if inside.all():
            _check(state, access, groups, places, words)
        data = batch.shared.data.view(np.complex128).take(places).view(np.uint32)
        if across:
            values = numbers(data.reshape(len(groups), 16, -1))
            return values.swapaxes(1, 2) if name == "A" else values, inside
        values = numbers(data.reshape(len(groups), extent, -1))
        return values if name == "A" else values.swapaxes(1, 2), inside

    return matrix


def _check_ranks(
    state: Warpgroups,
    access: Access,
    groups: Array,
    words: Array,
    places: Callable[[int], Array],
    name: str,
) -> None:
    """Report descriptors made of a whole address, whose rank of the block is in the leading offset."""
    size = state.batch.shape.cluster_blocks
    ranks = groups // state.each % size
    leading = (words >> np.uint64(16) & np.uint64(0x3FFF)).astype(np.int64)
    known = state.leading.setdefault(access.number, np.full(size, -1))
    if (known[ranks] == leading).all():
        return
    known[ranks] = leading
    bits = np.arange(size) << RANK_BIT - 4 - 16
    spilt = (known != known[0]) & ((known == known[0] + bits) | (known == known[0] | bits))
    word = int(words[0]) & ~(0x3FFF << 16)
    here = [
        r
        for r in np.flatnonzero(spilt & (known[0] >= 0)).tolist()
        if not np.array_equal(places(word | int(known[r]) << 16), places(word | int(known[0]) << 16))
    ]
    everyone = np.arange(state.count)
    state.report(
        access.instruction,
        everyone[np.isin(everyone // state.each % size, here)],
        f"wgmma: the descriptor of {name} has its block's rank in the bits of the leading offset. In a "
        "cluster the upper bits of an address in shared memory hold it: mask them, (address & 0x3ffff) >> 4.",
    )


def _misplaced(batch: Batch, descriptor: int, table: Array, name: str) -> tuple[str, str]:
    """Return the message for a descriptor that means no shared memory of the block, and the variable."""
    strange = descriptor & int(_UNUSED)
    if strange:
        return (
            f"wgmma: the descriptor of {name} is {descriptor:#018x}, with bits set ({strange:#x}) that have "
            "no meaning. Its address and offsets are in units of 16 bytes, 14 bits each: shift them right "
            "by 4, and mask them with 0x3fff."
        ), ""
    start, shown = _offsets(descriptor)
    end, size, where = (int(table.max()) + 1) * CHUNK_BYTES, batch.shared.size, "shared memory"
    layout, of = batch.launch.decoded.layout, ""
    for space, first, last in layout.extents.values():
        if space == "shared" and last is not None and first <= start < last:
            of, size = layout.variable_before("shared", first), last
            where = f"shared memory, in `{of}`"
    if end <= size:
        return "", ""
    return (
        f"wgmma: {name} ends at byte {end} of {where}, which ends at {size}. Its descriptor {shown}. "
        "Correct them, or the size of the array."
    ), of


def _offsets(descriptor: int) -> tuple[int, str]:
    """Return the start of the matrix of a descriptor, and the words for that and its offsets."""
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    swizzle = _swizzle_name(_SWIZZLES[descriptor >> 62])
    return (
        start,
        f"starts at byte {start}, with a leading offset of {leading}, a stride of {stride} and {swizzle}",
    )


def _check(state: Warpgroups, access: Access, groups: Array, places: Array, descriptors: Array) -> None:
    """Check that what wgmma reads is there, visible to it, and laid out as its descriptor says.

    For each warpgroup there are a row of 16-byte chunks of shared memory, and the descriptor.
    """
    batch = state.batch
    _check_layouts(state, access, groups, places, descriptors)
    state.read_chunks(groups, places)
    for check in batch.on.matrix:
        if check(batch, access, groups, places):
            return


def _check_layouts(
    state: Warpgroups, access: Access, groups: Array, places: Array, descriptors: Array
) -> None:
    codes = state.layouts.take(places)
    own = np.array(_SWIZZLES)[(descriptors >> np.uint64(62)).astype(np.int64)]
    wrong = (codes != 0) & (codes != own[:, None] + 1)
    if not wrong.any():
        return
    rows = wrong.any(axis=1)
    brought = int(codes[wrong][0]) - 1
    with state.reading(access, groups, places) as part:
        name, shown = describe_element(part, int(part.indices[wrong.reshape(-1)][0]))
    state.report(
        access.instruction,
        groups[rows],
        f"wgmma: the descriptor says {_swizzle_name(int(own[rows][0]))}, and the tensor map that brought "
        f"{shown} {_swizzle_name(brought)}. Pass swizzle={own[rows][0]} to dotcu.tensor_map, or say "
        f"{brought} in the descriptor (bits 62 and 63: 0 none, 1 for 128, 2 for 64, 3 for 32).",
        address_of=name,
    )


def _swizzle_name(width: int) -> str:
    return f"a swizzle of {width} bytes" if width else "no swizzle"


# setmaxnreg: registers that warpgroups give to a pool of their block, or take from it.
#
# The pool has what the launch gave: the registers of each thread, times the threads. Without .maxnreg or
# .maxntid it is not known, and nothing is said of sums. A warpgroup that takes more than is there waits.
#
# Triton puts warps that work apart into one warpgroup, and lets each execute an instruction of its own with
# the number that all four have. By the ISA it is to be the same instruction; that is not the kernel's fault.
#
# Source: PTX ISA, "Miscellaneous Instructions: setmaxnreg"; the registers that a launch has: "Performance
# Tuning Directives: .maxnreg, .maxntid, .minnctapersm".


def bind_setmaxnreg(instruction: FlatInstruction, binding: Binding) -> Rendezvous:
    """setmaxnreg.inc and setmaxnreg.dec."""
    action, *flags = counted(instruction.ptx.flags, 3)
    require(action in ("inc", "dec") and flags == ["sync", "aligned"])
    wanted = immediate(only(instruction.ptx.operands))

    def step(batch: Batch, state: Warpgroups, groups: Array) -> None:
        if wanted % 8 or not 24 <= wanted <= 256:
            what = f"{wanted} registers a thread: setmaxnreg takes a multiple of 8 from 24 to 256."
            batch.report("setmaxnreg", instruction, state.threads(groups), what)
            return
        state.resize(instruction, groups, wanted, grows=action == "inc")

    whole = _of_groups(instruction, binding, step)

    def run(batch: Batch) -> None:
        if batch.launch.decoded.language == "triton":
            groups = warpgroups(batch)
            step(batch, groups, np.unique(groups.of(batch.numbers())))
        else:
            whole.step(batch)

    def admit(batch: Batch, instruction: FlatInstruction, number: int, mask: Array) -> bool:
        return batch.launch.decoded.language == "triton" or _admit_groups(batch, instruction, number, mask)

    return whole._replace(step=run, gather=admit)


# Other instructions that touch the registers of wgmma.


def wgmma_registers(code: Sequence[FlatInstruction]) -> frozenset[str]:
    """Return the names of the registers that hold accumulators, or A, of some wgmma, or copies of these."""
    names = {
        register.name
        for instruction in code
        if instruction.ptx.opcode == "wgmma"
        for operand in instruction.ptx.operands[:2]
        if isinstance(operand, Vector)
        for register in registers_of(operand)
    }
    copies = [each for instruction in code for each in _copied_registers(instruction.ptx)] if names else []
    missing = names
    while missing:
        missing = {to.name for to, source in copies if source.name in names} - names
        names |= missing
    return frozenset(names)


def _copied_registers(ptx: Instruction) -> list[tuple[Register, Register]]:
    """Return the target and the source of an instruction that copies a register, else nothing."""
    if ptx.opcode == "mov" and len(ptx.operands) == 2:
        to, source = ptx.operands
        if isinstance(to, Register) and isinstance(source, Register):
            return [(to, source)]
    return []


_NO_RESULT = frozenset({"st", "red", "bar", "barrier"})


def watched(
    step: InstructionStep, instruction: FlatInstruction, names: frozenset[str], binding: Binding
) -> InstructionStep:
    """The step, which first sees to registers of wgmma that its instruction touches."""
    opcode, *_, operands = instruction.ptx[:4]
    if opcode == "wgmma" or names.isdisjoint(r.name for operand in operands for r in registers_of(operand)):
        return step
    results = () if opcode in _NO_RESULT else operands[:1]
    writes = frozenset(_slots(results, names, binding))
    reads = frozenset(_slots(operands[len(results) :], names, binding))
    copies = opcode == "mov" and isinstance(operands[0], Register) and not isinstance(operands[1], Vector)
    target = binding.destination(operands[0]).slot if copies else -1

    def run(batch: Batch) -> None:
        state = batch.find(Warpgroups)
        if state is None:
            step(batch)
            return
        late = state.late_value(next(iter(reads))) if copies and reads and state.is_held else None
        state.touch(instruction, reads, writes, copies=copies)
        step(batch)
        if late is not None:
            threads, values = late
            with active_threads(batch, threads):
                batch.write(target, values.view(batch.registers[target].dtype))
        if copies and reads:
            state.note_copy(next(iter(reads)), target)

    return run


def _slots(operands: Sequence[Operand], names: frozenset[str], binding: Binding) -> Iterator[int]:
    for operand in operands:
        for register in registers_of(operand):
            if register.name in names:
                yield binding.register(register).slot
