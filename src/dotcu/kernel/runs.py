"""`simulate()`: which run of the simulator takes the launches of this thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

from dotcu.compile.target import Target
from dotcu.errors import UsageError
from dotcu.simulator import CHECKS

if TYPE_CHECKING:
    from dotcu.simulator import Run

DEFAULT_ARCH = "sm_80"
OLDEST = (7, 5)

_active: ContextVar[Run | None] = ContextVar("dotcu_run", default=None)


def active_run() -> Run | None:
    """The run of the `simulate()` block that this thread is in, None outside."""
    return _active.get()


def capability_of(arch: str) -> tuple[int, int]:
    """The compute capability that an architecture's name stands for."""
    target = Target.parse(arch)
    return target.major, target.minor


@contextmanager
def simulate(
    arch: str = DEFAULT_ARCH,
    on_finding: Literal["raise", "collect"] = "raise",
    seed: int | None = None,
    checks: Collection[str] = CHECKS,
) -> Iterator[Run]:
    """Run operators on CPU tensors in the simulator, and gather what it finds and counts.

    Args:
        arch: The architecture that kernels are compiled for.
        on_finding: "raise" stops at the first finding with a `FindingError`; "collect" goes on.
        seed: Shuffles which warps run ahead of others, and the order in which atomics that meet at
            one address take effect; None keeps all warps in step.
        checks: Which of "bounds" (and alignment), "init" (reads of what nothing wrote), "race" and
            "barrier" are on. A faulty access is left out in any case.

    Yields:
        The run: `.findings`, `.counters`.

    Note:
        It holds for this thread and task. CUDA tensors still go to their GPU. What `torch.empty`
        allocates inside counts as unwritten until something writes it.
    """
    from dotcu.kernel.allocations import tracking_allocations
    from dotcu.simulator import Run

    if capability_of(arch) < OLDEST:
        raise UsageError(f'arch is "sm_75" or newer, which the compiler has code for, got {arch!r}.')
    if on_finding not in ("raise", "collect"):
        raise UsageError(f'on_finding is "raise" or "collect", got {on_finding!r}.')
    if isinstance(checks, str) or not CHECKS.issuperset(checks):
        raise UsageError(f"checks are some of {sorted(CHECKS)}, got {checks!r}.")
    run = Run(arch=arch, on_finding=on_finding, seed=seed, checks=frozenset(checks))
    token = _active.set(run)
    try:
        with tracking_allocations():
            yield run
    finally:
        _active.reset(token)
