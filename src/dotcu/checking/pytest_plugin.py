"""A test for every trial, in a user's own tests. Three lines, for example in tests/test_ops.py:

    import mylib.ops
    from dotcu.checking import checks
    test_ops = checks(mylib.ops)

pytest loads this module wherever dotcu is installed, so it imports neither torch nor what needs it
until there is something to check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from dotcu.checking.catalogue import Level
from dotcu.errors import DotcuError, UsageError

if TYPE_CHECKING:
    from dotcu.checking.results import CheckResult, Trial
    from dotcu.checking.running import TrialWorker
    from dotcu.checking.subject import Subject
    from dotcu.operator import Operator

    Work = tuple[Subject, Trial] | DotcuError  # of one test: a trial and its subject, or why there is none

_OPTIONS = ("device", "level", "seed")
_WORKER: pytest.StashKey[TrialWorker] = pytest.StashKey()


def checks(
    target: Operator | Iterable[Operator] | ModuleType,
    *,
    device: str | None = None,
    level: str = "quick",
    seed: int = 0,
) -> Callable[..., None]:
    """Make a test function that pytest runs for every trial of the operators, each under its own name.

    Args:
        target: An operator, several, or a module that has some.
        device: As in `dotcu.check`, as are the next two; `--dotcu-device` and its like go before them.
        level: `quick`, `standard` or `full`.
        seed: What random numbers start from.

    Raises:
        UsageError: There is no operator, or no such level.
    """
    from dotcu.checking.planning import resolve_level

    resolve_level(level)
    operators, options = _operators(target), {"device": device, "level": level, "seed": seed}

    def test(dotcu_case: Any, request: pytest.FixtureRequest) -> None:
        _test(dotcu_case, request.node)

    test.dotcu_checks = (operators, options)  # type: ignore[attr-defined]
    test.place_as = _placed(sys._getframe(1))  # type: ignore[attr-defined]  # where pytest says that it is
    return test


def _operators(target: Any) -> list[Operator]:
    from dotcu.checking.target import operators, operators_of

    if not isinstance(target, ModuleType):
        return operators_of(target)
    found = [operator for _, operator in operators(target)]
    if not found:
        raise UsageError(
            f"{target.__name__} defines no operator.\n"
            "A function becomes one with @dotcu.op; give checks() the module that has it."
        )
    return found


def _placed(frame: FrameType) -> FunctionType:
    """A function that is at a frame's line."""
    code = (lambda: None).__code__
    return FunctionType(code.replace(co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno), {})


# ------------------------------------------------------------------ what pytest calls


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that go before those of `checks`."""
    group = parser.getgroup("dotcu", "checks of dotcu's operators")
    levels = [level.name.lower() for level in Level]
    group.addoption("--dotcu-device", metavar="DEVICE", help="cuda or simulator")
    group.addoption("--dotcu-level", choices=levels, help="the level; default: that of checks(), or quick")
    group.addoption("--dotcu-seed", type=int, metavar="N", help="the seed of random numbers")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, also under --strict-markers."""
    config.addinivalue_line(
        "markers",
        "dotcu_sanitize(arch, seed, checks, cuda_as_cpu): run the test's kernels, Triton's among them, in "
        "the simulator, and fail with what it finds; the arguments are those of dotcu.sanitize",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test with the marker in the simulator."""
    marker = pyfuncitem.get_closest_marker("dotcu_sanitize")
    if marker is None:
        return (yield)
    from dotcu.sanitizing import sanitize
    from dotcu.tracebacks import describe

    try:
        with sanitize(**marker.kwargs):
            return (yield)
    except DotcuError as error:
        found, cause = str(error), error.__cause__
    more = f"\nThe test raised {describe(cause)}" if cause is not None else ""
    pytest.fail(found + more, pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each trial."""
    found = getattr(metafunc.function, "dotcu_checks", None)
    if found is not None:
        operators, options = found
        cases = list(_cases(operators, options | _given_options(metafunc.config)))
        metafunc.parametrize("dotcu_case", [work for _, work in cases], ids=[name for name, _ in cases])


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process that trials ran in."""
    if _WORKER in config.stash:
        config.stash[_WORKER].close()


def _given_options(config: pytest.Config) -> dict[str, Any]:
    options = {name: config.getoption(f"dotcu_{name}") for name in _OPTIONS}
    return {name: value for name, value in options.items() if value is not None}


# ------------------------------------------------------------------ the tests


def _cases(operators: list[Operator], options: dict[str, Any]) -> Iterator[tuple[str, Work]]:
    """Yield the name and the work of a test for each trial; where there can be none, of one that fails."""
    from dotcu.checking.planning import plan, subjects_of
    from dotcu.checking.report import nothing_tried

    try:
        subjects = subjects_of(operators, **options)
    except DotcuError as error:
        yield "plan", error
        return
    for subject in subjects:
        try:
            trials = list(plan(subject))
            if not any(map(subject.given, subject.overload.dtypes)):
                raise UsageError(f"{subject.name}: {nothing_tried(subject.name)}")
        except DotcuError as error:
            yield _test_name(f"{subject.name}/plan"), error
        else:
            yield from ((_test_name(str(trial.id)), (subject, trial)) for trial in trials)


def _test_name(trial: str) -> str:
    """A trial's name as `-k` and a shell take it: `mylib.scale_add.call.float32-s0`."""
    return trial.replace("::", ".").replace("/", ".")


def _test(work: Work, item: pytest.Item) -> None:
    if isinstance(work, DotcuError):
        pytest.fail(str(work), pytrace=False)
    from dotcu.checking.running import TrialWorker

    subject, trial = work
    worker = item.config.stash.setdefault(_WORKER, TrialWorker())
    try:
        results = worker.run(subject, trial)
    except DotcuError as error:  # for example, the machine lacks something
        pytest.fail(str(error), pytrace=False)
    item.user_properties.append(("trial", str(trial.id)))
    _judge(results, item)


def _judge(results: list[CheckResult], item: pytest.Item) -> None:
    """Note the results, for JUnit, and let the test fail or be skipped if they say so."""
    import msgspec

    from dotcu.checking.checker import by_node
    from dotcu.checking.report import failure_text
    from dotcu.checking.results import Failed, Passed

    options = {f"--dotcu-{name}": value for name, value in _given_options(item.config).items()}
    failed, skipped = [], []
    for result in results:
        if isinstance(result, Passed):
            error = "" if result.ratio is None else f"error: {100 * result.ratio:.2g} % of the tolerance"
            refusal = result.refusal and f"refused: {result.refusal}"
            text = ", ".join(filter(None, ("passed", error, refusal, result.note)))
        elif isinstance(result, Failed):
            text = f"failed: {result.reason}"
            again = msgspec.structs.replace(result, reproduce=by_node(item.nodeid, options))
            failed.append(failure_text(again))
        else:
            text = f"skipped: {result.reason}"
            skipped.append(f"{result.check}: {result.reason}")
        item.user_properties.append((result.check, text))
    if failed:
        pytest.fail("\n".join(failed), pytrace=False)
    if len(skipped) == len(results):
        pytest.skip("; ".join(skipped) or "nothing was checked")
