"""Basic blocks, numbered so that running the lowest first makes threads reconverge.

The number is a weak topological order: within a loop, and between loops, a block comes
before what follows it, and all blocks of a loop come before what is after the loop. Threads
that leave a loop early therefore wait, at a higher number, for those that still go round,
and the two sides of a branch meet where they join, however the compiler laid them out.

Source: F. Bourdoncle, "Efficient chaotic iteration strategies with widenings" (1993), section 3.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from dotcu.ptx.dataflow import names_of
from dotcu.ptx.instructions import Address, Instruction
from dotcu.simulator.program.inlining import FlatInstruction

# Instructions at which threads wait for each other: each begins a block, where they can wait.
RENDEZVOUS = frozenset(
    {"shfl", "vote", "match", "redux", "elect", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix"}
    | {"wgmma", "setmaxnreg"}
)
_ENDS = frozenset({"bra", "brx", "ret", "exit", "trap", "brkpt", "assertfail", "enter", "return"})
EXIT = -1


@dataclass(frozen=True, kw_only=True)
class BasicBlock:
    """Instructions that run one after the other.

    Attributes:
        first, last: Index of its first instruction, and after its last one.
        following: Where control may go: blocks by number, EXIT for the end.
        through: The block that stands behind it.
    """

    first: int
    last: int
    following: tuple[int, ...]
    through: int


def begins_block(ptx: Instruction) -> bool:
    """Return whether threads may have to wait in front of it for others of their warp."""
    if ptx.opcode == "bar":
        return "warp" in ptx.flags
    return ptx.opcode in RENDEZVOUS and "sync" in ptx.flags


def ends_block(ptx: Instruction) -> bool:
    """Return whether it decides where its threads go next, or when: also a barrier of the block."""
    is_barrier = ptx.opcode in ("bar", "barrier") and "warp" not in ptx.flags
    return ptx.opcode in _ENDS or is_barrier


def basic_blocks(code: Sequence[FlatInstruction]) -> list[BasicBlock]:
    """Return the blocks in their running order."""
    leaders = _leaders(code)
    raw = list(zip(leaders, [*leaders[1:], len(code)], strict=True))
    position = {first: index for index, (first, _) in enumerate(raw)}
    edges = [_following(code, last, position) for _, last in raw]
    order = weak_topological_order(edges)
    number = {EXIT: EXIT, **{old: new for new, old in enumerate(order)}}
    return [
        BasicBlock(
            first=raw[old][0],
            last=raw[old][1],
            following=tuple(number[edge] for edge in edges[old]),
            through=number.get(position.get(raw[old][1], EXIT), EXIT),
        )
        for old in order
    ]


def _leaders(code: Sequence[FlatInstruction]) -> list[int]:
    leaders = {0}
    for index, instruction in enumerate(code):
        opcode = instruction.ptx.opcode
        if begins_block(instruction.ptx):
            leaders.add(index)
        if ends_block(instruction.ptx):
            leaders.add(index + 1)
            leaders.update(instruction.targets)
            if opcode == "bra":
                leaders.add(instruction.ptx.target)
    return sorted(leader for leader in leaders if leader < len(code))


def _following(code: Sequence[FlatInstruction], last: int, position: Mapping[int, int]) -> tuple[int, ...]:
    instruction = code[last - 1]
    ptx = instruction.ptx
    through = position.get(last, EXIT)
    if ptx.opcode not in _ENDS:
        return (through,)
    ways = [EXIT]
    if ptx.opcode == "bra":
        ways = [position.get(ptx.target, EXIT)]
    elif ptx.opcode in ("brx", "enter", "return"):
        ways = [position.get(target, EXIT) for target in instruction.targets]
    return tuple(ways) if ptx.guard is None else (*ways, through)


def weak_topological_order(edges: Sequence[Sequence[int]]) -> list[int]:
    """Nodes reachable from node 0, loops kept together, each loop's head first."""
    result: list[int] = []
    reached = set(_postorder([0], edges, range(len(edges))))
    # Subgraphs to order, with their roots, and heads to add before: a list, since nesting may be deep.
    work: list[tuple[set[int], int, int | None]] = [(reached, 0, None)]
    while work:
        members, root, head = work.pop()
        if head is not None:
            result.append(head)
        for entry, *rest in reversed(_components(members, edges, root) if members else []):
            inner = set(rest)
            work.append((inner, next((n for n in edges[entry] if n in inner), entry), entry))
    return result


def _components(members: set[int], edges: Sequence[Sequence[int]], root: int) -> list[list[int]]:
    """Strongly connected components in topological order, each from the node that a search meets first."""
    into: dict[int, list[int]] = {node: [] for node in members}
    for node in members:
        for way in edges[node]:
            if way in members:
                into[way].append(node)
    components: list[list[int]] = []
    seen: set[int] = set()
    for first in reversed(_postorder([root, *sorted(members)], edges, members)):
        if first not in seen:
            seen.add(first)
            components.append([first])
            for node in components[-1]:  # it grows meanwhile
                fresh = set(into[node]) - seen
                components[-1] += fresh
                seen |= fresh
    return components


def _postorder(roots: Sequence[int], edges: Sequence[Sequence[int]], members: Container[int]) -> list[int]:
    """Return the nodes that a depth-first search reaches, in the order in which it leaves them."""
    order: list[int] = []
    seen: set[int] = set()
    for root in roots:
        path = [] if root in seen else [(root, iter(edges[root]))]
        seen.add(root)
        while path:
            node, ways = path[-1]
            way = next((n for n in ways if n in members and n not in seen), None)
            if way is None:
                order.append(node)
                path.pop()
            else:
                seen.add(way)
                path.append((way, iter(edges[way])))
    return order


# They have no result: what stands first is read.
NO_RESULT = frozenset(
    {"st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "cp", "membar", "fence", "stackrestore"}
    | {"call", "enter", "assertfail", "mbarrier", "wgmma", "wmma", "stmatrix"}
)

# Some of them do write operands, which ones depends on the modifiers.
_WRITE_OPERANDS = frozenset({"bar", "barrier", "mbarrier", "wgmma", "wmma", "call", "enter"})


def has_result(ptx: Instruction) -> bool:
    """Return whether an instruction's first operand is written and not read."""
    if ptx.opcode in NO_RESULT or not ptx.operands:
        return False
    return not isinstance(ptx.operands[0], Address)


def read_by(ptx: Instruction) -> set[str]:
    """Return the names that an instruction reads, its guard among them."""
    operands = ptx.operands[1:] if has_result(ptx) else ptx.operands
    names = names_of(operands)
    if ptx.guard is not None:
        names.add(ptx.guard.register.name)
    return names


def live_out(
    code: Sequence[FlatInstruction], plans: Sequence[BasicBlock]
) -> tuple[list[frozenset[str]], frozenset[str]]:
    """Return for each basic block the names that are read after it, and those that are read before any write.

    The latter are read so on some way through the code, which no thread may take.
    """
    gained, killed = [], []
    for plan in plans:
        reads: set[str] = set()
        writes: set[str] = set()
        for instruction in code[plan.first : plan.last]:
            ptx = instruction.ptx
            reads |= read_by(ptx) - writes
            if has_result(ptx) and ptx.guard is None:
                writes |= names_of(ptx.operands[:1])
        gained.append(reads)
        killed.append(writes)
    before: list[set[str]] = [set(reads) for reads in gained]
    after: list[set[str]] = [set() for _ in plans]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(plans))):
            plan = plans[number]
            ways = {way for way in (*plan.following, plan.through) if way >= 0}
            behind: set[str] = set().union(*(before[way] for way in ways)) if ways else set()
            if len(behind) > len(after[number]):
                after[number] = behind
                before[number] = gained[number] | (behind - killed[number])
                changed = True
    unset = before[0]
    for ptx in (instruction.ptx for instruction in code):
        if ptx.opcode in _WRITE_OPERANDS:
            unset -= names_of(ptx.operands)
    return [frozenset(names) for names in after], frozenset(unset)


def droppable(code: Sequence[FlatInstruction], after: frozenset[str]) -> frozenset[str]:
    """Return the names in a basic block that affect what follows through a select or a logical and, or alone.

    Args:
        after: The names that are read after it.
    """
    firm, soft = set(after), set[str]()
    for instruction in reversed(code):
        ptx = instruction.ptx
        if not has_result(ptx):
            firm |= read_by(ptx)
            continue
        targets = names_of(ptx.operands[:1])
        firm |= names_of(operand for operand in ptx.operands if isinstance(operand, Address))
        if ptx.guard is not None:
            firm.add(ptx.guard.register.name)
        sources = ptx.operands[1:]
        if targets.isdisjoint(firm | soft) and ptx.opcode != "atom":
            continue
        chosen = _chosen(ptx)
        soft |= names_of(sources[:chosen])
        rest = names_of(sources[chosen:])
        if targets.isdisjoint(firm) and ptx.opcode != "atom":
            soft |= rest
        else:
            firm |= rest
    return frozenset(soft - firm)


def _chosen(ptx: Instruction) -> int:
    """Return how many of the first sources an instruction may take no notice of."""
    if ptx.opcode == "selp":
        return 2
    if ptx.opcode in ("and", "or") and ptx.types == ("pred",):
        return 2
    return 3 if ptx.opcode in ("setp", "set") and len(ptx.operands) > 3 else 0
