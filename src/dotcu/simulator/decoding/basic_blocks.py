"""Basic blocks, numbered so that running the lowest first makes lanes reconverge.

The number is a weak topological order: within a loop, and between loops, a block comes
before what follows it, and all blocks of a loop come before what is after the loop. Lanes
that leave a loop early therefore wait, at a higher number, for those that still go round,
and the two sides of a branch meet where they join, however the compiler laid them out.

Source: F. Bourdoncle, "Efficient chaotic iteration strategies with widenings" (1993), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.decoding.inlining import FlatInstruction

# Instructions at which lanes wait for each other: each begins a block, where they can wait.
RENDEZVOUS = frozenset(
    {"shfl", "vote", "match", "redux", "elect", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}
)
_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap", "brkpt", "assertfail", "enter", "return"})
EXIT = -1


@dataclass(frozen=True, kw_only=True)
class BasicBlock:
    """Instructions that run one after the other.

    Attributes:
        first: Index of its first instruction.
        last: Index after its last one.
        following: Where control may go: blocks by number, EXIT for the end.
    """

    first: int
    last: int
    following: tuple[int, ...]


def is_barrier(instruction: Instruction) -> bool:
    """Return whether it is a barrier of the block, not of a warp."""
    return instruction.opcode in ("bar", "barrier") and "warp" not in instruction.flags


def begins_block(instruction: Instruction) -> bool:
    """Return whether lanes may have to wait in front of it for others of their warp."""
    if instruction.opcode == "bar":
        return "warp" in instruction.flags
    return instruction.opcode in RENDEZVOUS and "sync" in instruction.flags


def ends_block(instruction: Instruction) -> bool:
    """Return whether it decides where its lanes go next, or when."""
    return instruction.opcode in _ENDS or is_barrier(instruction)


def basic_blocks(code: Sequence[FlatInstruction]) -> tuple[list[BasicBlock], dict[int, int]]:
    """Blocks in their running order, and the block that each leading instruction begins."""
    leaders = _leaders(code)
    raw = list(zip(leaders, [*leaders[1:], len(code)], strict=True))
    position = {first: index for index, (first, _) in enumerate(raw)}
    edges = [_following(code, last, position) for _, last in raw]
    order = weak_topological_order(edges)
    number = {old: new for new, old in enumerate(order)}
    blocks = [
        BasicBlock(
            first=raw[old][0],
            last=raw[old][1],
            following=tuple(EXIT if e == EXIT else number[e] for e in edges[old]),
        )
        for old in order
    ]
    return blocks, {block.first: new for new, block in enumerate(blocks)}


def _leaders(code: Sequence[FlatInstruction]) -> list[int]:
    found = {0}
    for index, placed in enumerate(code):
        opcode = placed.instruction.opcode
        if begins_block(placed.instruction):
            found.add(index)
        if ends_block(placed.instruction):
            found.add(index + 1)
            found.update(placed.targets)
            if opcode == "bra":
                found.add(placed.instruction.target)
    return sorted(leader for leader in found if leader < len(code))


def _following(code: Sequence[FlatInstruction], last: int, position: Mapping[int, int]) -> tuple[int, ...]:
    placed = code[last - 1]
    instruction = placed.instruction
    through = position.get(last, EXIT)
    if instruction.opcode == "bra":
        target = position.get(instruction.target, EXIT)
        return (target,) if instruction.guard is None else (target, through)
    if instruction.opcode in ("brx", "enter", "return"):
        ways = tuple(position.get(t, EXIT) for t in placed.targets)
        return ways if instruction.guard is None else (*ways, through)
    if instruction.opcode in _ENDS and not is_barrier(instruction):
        return (EXIT,) if instruction.guard is None else (EXIT, through)
    return (through,)


def weak_topological_order(edges: Sequence[Sequence[int]]) -> list[int]:
    """Nodes reachable from node 0, loops kept together, each loop's head first."""
    reached = _reachable(edges)
    return _order(sorted(reached), edges, 0)


def _reachable(edges: Sequence[Sequence[int]]) -> set[int]:
    seen = {0}
    pending = [0]
    while pending:
        for node in edges[pending.pop()]:
            if node != EXIT and node not in seen:
                seen.add(node)
                pending.append(node)
    return seen


def _order(nodes: Sequence[int], edges: Sequence[Sequence[int]], root: int) -> list[int]:
    """Order of a subgraph; work is kept on a list, since nesting may be deep."""
    result: list[int] = []
    work: list[tuple[Sequence[int], int, int | None]] = [(nodes, root, None)]
    while work:
        members, start, head = work.pop()
        if head is not None:
            result.append(head)
        inside = set(members)
        if not inside:
            continue
        components = _components(inside, edges, start)
        for component in reversed(components):
            if len(component) == 1:
                node = component[0]
                work.append(((), node, node))
                continue
            entry = component[-1]  # the first node of it that the search met
            rest = [n for n in component if n != entry]
            nearest = next((n for n in edges[entry] if n in set(rest)), rest[0])
            work.append((rest, nearest, entry))
    return result


def _components(inside: set[int], edges: Sequence[Sequence[int]], start: int) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for seed in [start, *sorted(inside - {start})]:
        if seed in index:
            continue
        path: list[tuple[int, int]] = [(seed, 0)]
        while path:
            node, child = path.pop()
            if child == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            ways = [n for n in edges[node] if n in inside]
            for at in range(child, len(ways)):
                if ways[at] not in index:
                    path.append((node, at + 1))
                    path.append((ways[at], 0))
                    break
                if ways[at] in on_stack:
                    low[node] = min(low[node], index[ways[at]])
            else:
                _close(node, path, index, low, stack, on_stack, found)
    found.reverse()
    return found


def _close(
    node: int,
    path: list[tuple[int, int]],
    index: dict[int, int],
    low: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    found: list[list[int]],
) -> None:
    if low[node] == index[node]:
        component: list[int] = []
        while not component or component[-1] != node:
            component.append(stack.pop())
            on_stack.discard(component[-1])
        found.append(component)
    if path:
        parent = path[-1][0]
        low[parent] = min(low[parent], low[node])
