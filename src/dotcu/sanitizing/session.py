"""`sanitize()`: the simulator, with what other packages need to launch in it, around any Python code."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar, overload

from dotcu.errors import EnvironmentFault, FindingError, SimulationError
from dotcu.kernel.simulated_memory import active_run, capability_of
from dotcu.kernel.simulation import DEFAULT_ARCH, simulate
from dotcu.sanitizing.cuda_as_cpu import GPU, cuda_on_cpu, replaced
from dotcu.simulator import CHECKS, Run

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("dotcu")


@contextmanager
def collecting(arch: str, seed: int | None, checks: Collection[str], cuda_as_cpu: bool) -> Iterator[Run]:
    """Simulate what a block launches on CPU tensors, by any language of `ADAPTERS`, and collect findings."""
    outer = active_run()
    with ExitStack() as stack:
        if find_spec("triton") is not None:
            adapter = _import_triton()
            stack.enter_context(_without_benchmarks())
            if cuda_as_cpu:
                place = {"get_active_torch_device": lambda driver: GPU}
                stack.enter_context(replaced(adapter.TritonDriver, place))
        run = stack.enter_context(simulate(arch, "collect", seed, checks))
        if cuda_as_cpu:
            stack.enter_context(cuda_on_cpu(capability_of(arch)))
        yield run
    if outer is not None:
        outer.launches.update(run.launches)


@contextmanager
def _raising(arch: str, seed: int | None, checks: Collection[str], cuda_as_cpu: bool) -> Iterator[Run]:
    __tracebackhide__ = True  # pytest does not show this frame
    error: Exception | None = None
    with collecting(arch, seed, checks, cuda_as_cpu) as run:
        try:
            yield run
        except Exception as raised:
            error = raised
    if run.findings:
        raise FindingError(*run.findings) from error
    if error is not None:
        raise error
    if not run.launches:
        raise SimulationError(
            "No kernel was launched, so nothing was checked.\n"
            "sanitize() needs a kernel of Triton, Numba, TileLang, cuTile or dotcu on CPU tensors.\n"
            'For code that asks for "cuda", type: dotcu.sanitize(cuda_as_cpu=True)'
        )


@overload
def sanitize(function: F, /) -> F: ...
@overload
def sanitize(
    *, arch: str = ..., seed: int | None = ..., checks: Collection[str] = ..., cuda_as_cpu: bool = ...
) -> Any: ...
def sanitize(
    function: Callable[..., Any] | None = None,
    /,
    *,
    arch: str = DEFAULT_ARCH,
    seed: int | None = None,
    checks: Collection[str] = CHECKS,
    cuda_as_cpu: bool = False,
) -> Any:
    """Run a test's kernels in the simulator, and fail with all that it finds: a decorator, or a context.

        @dotcu.sanitize                         # or @dotcu.sanitize(arch="sm_90")
        def test_softmax(): ...

        with dotcu.sanitize(seed=1) as run: ...

    It covers kernels of Triton, Numba, TileLang, cuTile and dotcu that are launched on CPU tensors, in the
    thread of the test.

    Args:
        function: The function that is decorated.
        arch: As in `dotcu.simulate`, as are the next two.
        seed: The order of warps and atomics.
        checks: Those that are on.
        cuda_as_cpu: Let the code create its tensors on "cuda": they are on the CPU.

    Raises:
        FindingError: There are findings; `.findings` has all of them.
        SimulationError: Nothing was launched.
        EnvironmentFault: Triton is installed, and too old.
    """
    context = _raising(arch, seed, checks, cuda_as_cpu)
    return context if function is None else context(function)


def _import_triton() -> Any:
    """Import Triton, so that `simulate()` takes its kernels, and return the module that does so."""
    triton = import_module("triton")
    try:
        return import_module("dotcu.kernel.languages.triton_kernels")
    except (ImportError, AttributeError) as error:
        raise EnvironmentFault(
            f"Triton {getattr(triton, '__version__', '')} is installed, which dotcu cannot use: {error}.\n"
            "Required: Triton 3.7 or later.\n"
            "Type: pip install --upgrade triton"
        ) from error


@contextmanager
def _without_benchmarks() -> Iterator[None]:
    """Let Triton's benchmarks end at once: the simulator has no time to measure."""
    testing = import_module("triton.testing")

    def call_once(
        fn: Callable[[], Any],
        *settings: Any,
        quantiles: Collection[float] | None = None,
        return_mode: str = "",
        **others: Any,
    ) -> float | list[float]:
        """Call what is measured once, and return no time: NaN."""
        fn()
        if quantiles is not None and len(quantiles) > 1:
            return [math.nan] * len(quantiles)
        return [math.nan] if return_mode == "all" else math.nan

    def run(mark: Any, *settings: Any, **others: Any) -> None:
        """Leave out a table or a plot of times."""
        name = getattr(mark.fn, "__name__", "a function")
        _log.warning("left out the benchmark %s: the simulator measures no time", name)

    names = [name for name in vars(testing) if name.startswith("do_bench")]
    with replaced(testing, dict.fromkeys(names, call_once)), replaced(testing.Mark, {"run": run}):
        yield
