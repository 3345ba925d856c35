"""Reports of races and of missing fences between proxies: what two accesses do, and what would order them."""

from __future__ import annotations

import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.machine.access import describe_element
from dotcu.simulator.machine.shape import WARP, BatchShape, Threads
from dotcu.simulator.machine.state import AccessPart
from dotcu.simulator.run import Array, shown_coordinates
from dotcu.simulator.sanitizers.proxies import is_async, known_of
from dotcu.simulator.sanitizers.shadow import (
    EVENT_BITS,
    LANE,
    MemoryEvent,
    ThreadAccess,
)

_VERB = {"read": "reads", "write": "writes", "atomic": "atomically updates"}


def check_overlap(part: AccessPart, index: Array, value: Array) -> None:
    beaten = np.flatnonzero(part.view.take(index) != value)
    if not len(beaten):
        return
    threads = part.batch.numbers(part.positions)[beaten]
    name, shown = describe_element(part, int(index[beaten[0]] if index.size > 1 else index[0]))
    message = (
        f"race: several threads store different values to {shown} "
        "in this instruction, and it is undefined which one remains. "
    )
    if part.batch.launch.decoded.language == "triton":
        message += "Give each element an address of its own, or use an atomic, such as tl.atomic_add."
    else:
        message += "Let one thread store, or use an atomic."
    part.batch.report("race", part.access.instruction, threads, message, address_of=name)


def report_source(at: ThreadAccess, part: AccessPart, old: int, threads: Threads, index: int) -> None:
    """Report that the source of a copy was written before the copy was waited for."""
    event = at.shadow.events[old >> EVENT_BITS]
    writer = (old & int(LANE)) - event.shape.first * event.shape.pitch
    name, shown = describe_element(part, index)
    message = (
        f"race: this copy reads {shown}, which {name_of(event.shape, writer)} writes at "
        f"{shown_line(at, event)} before the copy has been waited for. A copy may read its source until "
        "then, whatever barriers lie between: store after cp.async.wait_group (__pipeline_wait_prior), "
        "and after __syncthreads() if another thread stores."
    )
    at.batch.report("race", part.access.instruction, threads, message, address_of=name)


_FENCES = {
    "near": "fence.proxy.async.shared::cta",
    "far": "fence.proxy.async.shared::cluster",
    "global": "fence.proxy.async.global",
}


def report_proxy(
    at: ThreadAccess, part: AccessPart, event: MemoryEvent, writer: int, threads: Threads, index: int
) -> None:
    """Report an async access that no fence joins with the write before it.

    Args:
        event, writer: The write, and the thread that made it.
        threads, index: The threads that access now, and the element.
    """
    batch, instruction = part.batch, at.access.instruction
    name, shown = describe_element(part, index)
    where = "global"
    if part.region is None:
        where = "near" if writer // event.shape.pitch == int(threads[0]) // event.shape.pitch else "far"
    fence, call = _FENCES[where], "dotcu::tma_fence(), or " if where == "near" else ""
    does = "writes" if at.access.action == "write" else "reads"
    noun = "wgmma" if instruction.ptx.opcode == "wgmma" else "bulk copy"
    message = (
        f"proxy-fence: this {noun} {does} {shown}, which "
        f"{name_of(event.shape, writer)} writes at {shown_line(at, event)}, through another proxy: a barrier "
        f"alone does not make ordinary writes visible to it. Each writer calls {call}"
        f'asm volatile("{fence};" ::: "memory"), after it has written and before the barrier.'
    )
    batch.report("proxy-fence", instruction, threads, message, address_of=name)


def name_of(shape: BatchShape, thread: int, owner: str = "block") -> str:
    block, place = shape.coordinates(thread)
    block = shape.program(thread) if owner == "program" else block
    return f"thread {shown_coordinates(place)} of {owner} {shown_coordinates(block)}"


def shown_line(at: ThreadAccess, event: MemoryEvent) -> str:
    """The line of an earlier event, and its file if that is another one."""
    location_of = at.batch.launch.decoded.location_of
    file, line = location_of(event.access.instruction)
    own_file, own_line = location_of(at.access.instruction)
    if (file, line) == (own_file, own_line):
        return "the same line" + (" in another pass of the loop" if _is_in_another_pass(at, event) else "")
    return f"line {line}" if file == own_file else f"line {line} of {file}"


def _is_in_another_pass(at: ThreadAccess, event: MemoryEvent) -> bool:
    """Return whether the line of both accesses is in a loop, of which they are in different passes.

    Threads of a batch run in step. So a loop's way back is between them where the earlier access follows the
    later one in the code. In an unrolled loop, a line that reads and then writes has a read before the write.
    """
    if event.shape is not at.batch.shape:
        return False
    if at.access.number < event.access.number:
        return True
    if (at.access.action, event.access.action) != ("read", "write"):
        return False
    own = at.access.instruction
    earlier = (each.access for each in at.shadow.events.known if each is not None)
    return any(
        each.number < event.access.number
        and each.action == "read"
        and (each.instruction.ptx.location, each.instruction.calls) == (own.ptx.location, own.calls)
        for each in earlier
    )


def report_unawaited(
    at: ThreadAccess, part: AccessPart, event: MemoryEvent, writer: int, threads: Threads, index: Array
) -> None:
    name, shown = describe_element(part, int(index.reshape(-1)[0]))
    message = (
        f"proxy-fence: this line {_VERB[at.access.action]} {shown}, which the copy of "
        f"{name_of(event.shape, writer)} at {shown_line(at, event)} writes, and its thread has not waited "
        "until that is done: cp.async.bulk.wait_group without .read waits for the writes, with .read for its "
        "reads alone."
    )
    part.batch.report("proxy-fence", at.access.instruction, threads, message, address_of=name)


def _is_left_out(at: ThreadAccess, event: MemoryEvent, first: int, second: int) -> bool:
    thread, own = np.array([first]), np.array([second])
    known = known_of(at.batch.clocks.known, own, event.shape, thread)
    then = event.times_of(thread)
    is_known = then.block < known.block
    return bool((is_known & at.batch.clocks.left_out(thread, then, own, known.block)).any())


def report_race(
    at: ThreadAccess,
    part: AccessPart,
    event: MemoryEvent,
    action: str,
    first: int,
    second: Threads,
    index: int,
) -> None:
    access = at.access
    name, shown = describe_element(part, index)
    done = event.access.action if event.access.action == "atomic" else action
    pair = access.instruction.ptx, event.access.instruction.ptx
    is_triton = at.batch.launch.decoded.language == "triton"
    remedy_of, owner = (_triton_remedy, "program") if is_triton else (_remedy, "block")
    kind, remedy = "race", remedy_of(at, event, first, int(second[0]))
    if part.region is None and any(map(is_async, pair)):
        kind, remedy = "proxy-fence", _async_remedy(*pair)
    if event.shape is at.batch.shape and _is_left_out(at, event, first, int(second[0])):
        remedy = (
            f"One thread of its warp arrives for all: put __syncwarp() after what they {action}, before "
            "that thread arrives."
        )
    of_rank = f" of rank {event.shape.rank}" if at.batch.launch.others else ""
    other = f"{name_of(event.shape, first, owner)}{of_rank}"
    message = (
        f"{kind}: this line {_VERB[access.action]} {shown}, which {other} {_VERB[done]} at "
        f"{shown_line(at, event)}, and nothing orders the two. {remedy}"
    )
    threads = np.flatnonzero(np.bincount(second))
    at.batch.report(kind, access.instruction, threads, message, address_of=name)


def _async_remedy(later: Instruction, earlier: Instruction) -> str:
    """Return how two accesses of shared memory are ordered, one of which is asynchronous."""
    if is_async(later):
        return (
            "Before the asynchronous access, let the threads that accessed it arrive at a barrier, or at an "
            "mbarrier, that the thread which issues it waits for."
        )
    return (
        "First wait until the asynchronous access has ended, by the mbarrier of the copy or by its group: in "
        "each of these threads, or in one thread and then at a barrier with the others."
    )


def _triton_remedy(at: ThreadAccess, event: MemoryEvent, other: int, own: int) -> str:
    """Return how two accesses of Triton programs, or of one, are ordered."""
    earlier, later, pitch = (
        event.access.instruction.ptx,
        at.access.instruction.ptx,
        event.shape.cluster_threads,
    )
    if event.shape is at.batch.shape and other // pitch == own // pitch:
        if earlier.location == later.location:
            return "Give each element an address of its own, or use tl.atomic_add or another atomic."
        return "Both are in one program: put tl.debug_barrier() between them, or write to another tensor."
    if event.access.order.strong and at.access.order.strong:
        return 'Both are atomic only within a program: pass scope="gpu".'
    return (
        "Programs run in any order: let them access different elements, use tl.atomic_add or another atomic, "
        'set a flag by an atomic with sem="release" and await it with sem="acquire", or launch two kernels.'
    )


def _remedy(at: ThreadAccess, event: MemoryEvent, other: int, own: int) -> str:
    earlier, later, pitch = event.access.instruction.ptx, at.access.instruction.ptx, event.shape.pitch
    threads = event.shape.cluster_threads
    if (
        event.shape is at.batch.shape
        and other // pitch != own // pitch
        and other // threads == own // threads
    ):
        return (
            "Both blocks are of one cluster: put cluster.sync() between them, or let one arrive at an "
            "mbarrier of the other by .release.cluster, and the other wait for it by .acquire.cluster."
        )
    if event.shape.rank != at.batch.shape.rank:
        return (
            "They are of different GPUs: publish by a flag with __threadfence_system() before it is set and "
            "after it is seen, or by .release.sys and .acquire.sys. Synchronization at gpu scope does "
            "not reach another GPU."
        )
    if event.shape is not at.batch.shape or other // pitch != own // pitch:
        if event.access.order.strong and at.access.order.strong:
            return "Both are atomic only within a block: use the plain atomics, not those that end in _block."
        return (
            "Blocks run in any order: use an atomic, write to a tensor that the kernel does not read, set a "
            "flag with __threadfence() before it is set and after it is seen, or split the kernel in two."
        )
    is_write = at.access.action == "write" and event.access.action != "atomic"
    if earlier.location == later.location and is_write:
        return (
            "Use an atomic where several threads change the same place, or put __syncthreads() between them."
        )
    if at.access.order.exchange and event.access.order.strong and other // WARP != own // WARP:
        return (
            "volatile orders no two warps: put __syncthreads() between the write and the read, and between "
            "the read and the next write."
        )
    if at.access.order.exchange and event.access.order.strong:
        return (
            "Since Volta the threads of a warp do not run in step, and volatile orders none of them: put "
            "__syncwarp() between the write and the read, and between the read and the next write."
        )
    if "volatile" in (*earlier.flags, *later.flags):
        return "Make both sides volatile or atomic, with __threadfence_block() before and after."
    if other // WARP == own // WARP and pitch == WARP:
        return "Put __syncwarp() between them (or __syncthreads())."
    return "Put __syncthreads() between them (or __syncwarp(), if all is within one warp)."
