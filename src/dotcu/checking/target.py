"""TARGET, as every command takes it: a file or a module, with `:name` for one operator."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from dotcu.checking.results import TrialId
from dotcu.checking.subject import Subject
from dotcu.errors import UsageError, quoted
from dotcu.operator import Operator, Overload
from dotcu.tracebacks import as_user_error

_PREFIX = "_dotcu_target_"
"""The prefix of a file's module name: json.py must not replace the real json."""

_TRACEBACK = "For the whole traceback, run the command again with DOTCU_DEBUG=1."


def resolve(target: str, *, verb: str = "check") -> list[tuple[str, Operator]]:
    """The operators that a target names, with their Python names, in the order of their definition.

    Args:
        target: `ops.py`, `package.module`, or either with `:name`.
        verb: The command that asks, for the line to type.

    Raises:
        UsageError: There is no such file, module or operator; answered with the nearest name. Or it
            cannot be imported; answered with the line at fault.
    """
    place, _, name = target.partition(":")
    found = operators(_module(place))
    if not found:
        raise UsageError(
            f"{place} defines no operator.\nA function becomes one with @dotcu.op; TARGET names the file or "
            "module that has it."
        )
    if not name:
        return found
    chosen = [(python_name, operator) for python_name, operator in found if python_name == name]
    if not chosen:
        names = [python_name for python_name, _ in found]
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0) or names
        raise UsageError(
            f"{place} has no operator {name!r}; it has {', '.join(names)}.\n"
            f"Type: dotcu {verb} {quoted(place)}:{nearest[0]}"
        )
    return chosen


def operators(module: ModuleType) -> list[tuple[str, Operator]]:
    """The operators among a module's names, each under its function's own name if it has that."""
    unique: dict[str, tuple[str, Operator]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Operator) and (value.qualified_name not in unique or name == value.__name__):
            unique[value.qualified_name] = (name, value)
    return list(unique.values())


def function(named: str) -> Callable[..., Any]:
    """The callable of a file or module that a name such as `ops.py:fn` or `package.module:fn` stands for.

    A file that was loaded before is not loaded again, since its operators would be defined twice.

    Raises:
        UsageError: There is no such file, module or callable; answered with the nearest name.
    """
    place, _, name = named.rpartition(":")
    module = sys.modules.get(_PREFIX + Path(place).stem)
    if module is None or module.__file__ is None or Path(module.__file__) != Path(place).resolve():
        module = _module(place)
    found = getattr(module, name, None)
    if callable(found):
        return cast("Callable[..., Any]", found)
    names = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0)
    raise UsageError(
        f"{place} has no function {name!r}.\nName one that it defines."
        + (f" Did you mean {place}:{nearest[0]}?" if nearest else "")
    )


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix == ".py" or path.is_file():
        return _from_file(path)
    with as_user_error(UsageError, f"{place} cannot be imported", _TRACEBACK):
        if not _exists(place):
            raise UsageError(
                f"there is no file and no importable module {place!r}.\n"
                "TARGET is a file such as ops.py, or a module such as dotcu.gallery."
            )
        return importlib.import_module(place)


def _exists(name: str) -> bool:
    """Return whether there is a module of that name. Imports the packages that it is in, which may fail."""
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            return False
        raise  # a package that it is in is there, and imports something that is not


def _from_file(path: Path) -> ModuleType:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file.\nSee what it is: ls -ld {quoted(path)}")
    if not path.is_file():
        names = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1)
        see = f"See what is there: ls {quoted(path.parent)}"
        meant = f"Did you mean {path.parent / close[0]}?" if close else see
        raise UsageError(f"there is no file {path}.\n{meant}")
    if path.suffix != ".py":
        raise UsageError(
            f"{path} is not a Python file, so it has no operators to check.\n"
            "Name the file that loads it and defines operators with @dotcu.op."
        )
    spec = importlib.util.spec_from_file_location(_PREFIX + path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with as_user_error(UsageError, f"{path} cannot be imported", _TRACEBACK), _importing(module, path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importing(module: ModuleType, folder: Path) -> Iterator[None]:
    """Let a file import those next to it, as `python FILE` does, and be found by its name unless it fails."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    sys.modules[module.__name__] = module
    try:
        yield
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise
    finally:
        with suppress(ValueError):  # the file may have taken it away itself
            sys.path.remove(entry)


def operators_of(op: Any) -> list[Operator]:
    """Return the argument of `check` as a list of at least one operator, each once.

    Raises:
        UsageError: It is something else.
    """
    given = list(op) if isinstance(op, Iterable) and not isinstance(op, (str, bytes)) else [op]
    wrong = [item for item in given if not isinstance(item, Operator)]
    if given and not wrong:
        return list(dict.fromkeys(given))
    got = f"got {wrong[0]!r}" if wrong else "got none"
    hint = f"\nFor a file or a module, type: dotcu check {quoted(op)}" if isinstance(op, str) else ""
    name = "ns::name"
    if isinstance(op, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        one = op if isinstance(op, torch._ops.OpOverload) else getattr(op, op.overloads()[0])
        got, name = f"got {op!r}", str(one).replace(".", "::", 1).removesuffix(".default")
    raise UsageError(
        f"An operator is required, or a list of operators ({got}).\n"
        "A function becomes an operator with @dotcu.op. For one that a library registered, use "
        f'dotcu.op.existing("{name}").{hint}'
    )


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Return the device that kernels run on: the GPU where there is one, or the one asked for.

    Raises:
        UsageError: That is not here, or is none that kernels run on.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device("cpu" if device == "simulator" else device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device={device!r}: give 'cuda' or 'simulator'.") from error
    if place.type not in ("cuda", "cpu"):
        raise UsageError(f"device={str(device)!r}: kernels run on 'cuda' or in the 'simulator'.")
    if place.type == "cpu":
        return place
    if not torch.cuda.is_available():
        raise UsageError(
            "device='cuda': torch sees no CUDA GPU here.\nUse device='simulator', or see `dotcu doctor`."
        )
    if (place.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={str(device)!r}: torch sees {torch.cuda.device_count()} here, counted from 'cuda:0'."
        )
    return torch.device("cuda", torch.cuda.current_device() if str(place) == "cuda" else place.index)


# ---------------------------------- where another process finds an operator: the other direction of target.py


def target_of(overload: Overload) -> str | None:
    """A target that gives the operator of an overload in a fresh process with this one's `sys.path`.

    Returns:
        `package.module:name` or `/path/ops.py:name`. None if there is none: the operator is of
        `__main__`, was made in a function, or is not what its module has by that name any more.
    """
    module = sys.modules.get(overload.__module__)
    if module is None or (place := _place(module)) is None:
        return None
    of = (name for name, operator in operators(module) if overload in operator.overloads.values())
    return next((f"{place}:{name}" for name in of), None)


def _place(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or not file or not Path(file).is_file():
        return None
    if module.__name__.startswith(_PREFIX):
        return None if ":" in file else file
    spec = _fresh_spec(module.__name__)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != Path(file).resolve():
        return None
    return module.__name__


def _fresh_spec(name: str) -> ModuleSpec | None:
    """Return what an import finds where nothing is imported yet; `find_spec` returns what is imported."""
    package, path = name.rpartition(".")[0], None
    if package:
        parent = _fresh_spec(package)
        if parent is None or parent.submodule_search_locations is None:
            return None
        path = parent.submodule_search_locations
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next(filter(None, specs), None)


WORKER = "dotcu.checking.running:serve"
"""The function that takes requests in a worker."""


@dataclass(frozen=True, kw_only=True)
class TrialRequest:
    """Trials of one overload, for a worker.

    Attributes:
        target: Where a fresh process finds the overload's operator: `ops.py:scale_add`.
        overload: Its qualified name.
        level: A `Level`, as its number.
        trials: They are run in the order of the plan.
        threads: How many threads torch may use on the CPU.
        workers: How many share the budget of its operator.
        bare: Make one bare call instead, for compute-sanitizer to watch.
    """

    target: str
    overload: str
    device: str
    level: int
    seed: int
    trials: tuple[TrialId, ...]
    threads: int
    workers: int = 1
    bare: bool = False


def request_for(subject: Subject) -> TrialRequest | None:
    """Return a request for trials of a subject, so far none; None if a fresh process cannot find it."""
    target = target_of(subject.overload)
    if target is None:
        return None
    return TrialRequest(
        target=target,
        overload=subject.name,
        device=str(subject.device),
        level=int(subject.level),
        seed=subject.seed,
        trials=(),
        threads=torch.get_num_threads(),
    )
