"""Configurations of an operator: what its author declares, and the look-up of the tuned one at a call.

The look-up measures nothing. It depends on the call, the GPU and the file that `dotcu tune` wrote, alone:
all ranks of a job choose the same.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dotcu.errors import UsageError
from dotcu.kernel import cuda
from dotcu.kernel.config import limits
from dotcu.kernel.launch_policy import (
    LaunchPolicy,
    LaunchRecorder,
    Scope,
    current_scope,
    observing_every_call,
    scope_variable,
)
from dotcu.kernel.shape_queries import capability, forget_choices
from dotcu.operator import tuned
from dotcu.operator.schema import OperatorBody
from dotcu.operator.tuned import CallKey, TunedEntry, TunedGpu, TunedValue

_log = logging.getLogger("dotcu")

MAX_KEPT = 4096
"""Look-ups that an operator keeps for a GPU; one more clears them."""

Generator = Callable[[], Iterable[Any]]
When = Callable[..., bool]


@dataclass(kw_only=True, eq=False)
class TriedConfiguration:
    """A configuration that is tried in place of the tuned one, and the calls that ask for one.

    Attributes:
        of: Whose configuration.
        configuration: The one to use; None for the author's default.
        keys: What was asked for so far, with the author's default for each.
        unfit: True once a call came that the configuration does not fit, by the author's `when`.
        observes: False where keys are not asked for, and shapes alone need no configuration.
    """

    of: Configurations
    configuration: Any
    keys: dict[CallKey, Any] = field(default_factory=dict)
    unfit: bool = False
    observes: bool = True


_attempt: ContextVar[TriedConfiguration | None] = ContextVar("dotcu_configuration_attempt", default=None)


class Configurations:
    """The configurations that an operator's author declares, and those of its tuned file.

    Args:
        name: The operator's qualified name.
        body: Its body, whose module has the file beside it.
        generate: Yields the configurations, the default first.
        when: Takes a configuration and a call's key, as `configuration` gets it; returns whether they fit.
        exact: Sizes count as they are, and an entry for these alone; of a number, so many first ones.
    """

    def __init__(
        self, name: str, body: OperatorBody, generate: Generator, when: When | None = None, *,
        exact: bool | int = False,
    ) -> None:  # fmt: skip
        self.name, self.body, self.generate, self.when = name, body, generate, when
        self.exact = math.inf if exact is True else exact
        self.file = tuned.file_of(body)
        self._kept: dict[int, dict[tuple[Any, ...], Any]] = {}  # by GPU
        self._tables: dict[TunedGpu, dict[CallKey, Any]] | None = None
        self.of_call = self._look_up()

    @functools.cached_property
    def space(self) -> tuple[Any, ...]:
        """Every configuration, in the order of its declaration, each once; the first is the default.

        Raises:
            UsageError: There is none, or one is not a frozen value with names.
        """
        values = tuple(dict.fromkeys(map(self._frozen, self.generate())))
        if not values:
            raise UsageError(
                f"{self.name}: its configurations yield none, and the first one is its default.\n"
                "Yield one at least, for any GPU: yield Tile(rows=64, warps=4)"
            )
        return values

    def _frozen(self, value: Any) -> Any:
        values = values_of(value)
        if values and all(isinstance(each, (bool, int, float, str)) for each in values.values()):
            return value
        raise UsageError(
            f"{self.name}: a configuration is a NamedTuple or a frozen dataclass of numbers, bools and text, "
            f"got {value!r}.\nDeclare it so: class Tile(NamedTuple): rows: int; warps: int"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a configuration's values."""
        return tuple(dict.fromkeys(name for value in self.space for name in values_of(value)))

    @functools.cached_property
    def digest(self) -> str:
        """The digest of the operator, its configurations and its sources."""
        others = (self.generate,) if self.when is None else (self.generate, self.when)
        exact = f"exact={self.exact}"  # a call of `configurations` is in no source that is hashed
        return tuned.digest_of(self.body, *others, exact)

    def _look_up(self) -> Callable[..., Any]:
        """Make `of_call`: a closure, for it runs at every call of a body."""
        last: tuple[Scope | None, dict[tuple[Any, ...], Any]] = (None, {})  # together, for other threads
        kept, find, scope_now = self._kept, self._find, current_scope

        def configuration(*key: Any, default: Any = None) -> Any:
            """Return the configuration of a call: the tuned one of the nearest key, else the default.

            Args:
                *key: What of the call matters: sizes, dtypes, bools, text. A tensor stands for its dtype and
                    sizes. Whole numbers are rounded up to a power of two: 1000 to 1024.
                default: In place of the first declared one, where none is tuned: what a rule for all sizes
                    says. Then an entry counts for keys of its own bucket alone.
            """
            nonlocal last
            of, found_by_key = last
            scope = scope_now()
            try:
                if scope is not of:
                    if scope.gpu is None or not scope.keeps:
                        raise KeyError
                    last = scope, (found_by_key := kept.setdefault(scope.gpu, {}))
                found = found_by_key[key]
            except (KeyError, TypeError):  # TypeError: of what cannot be hashed, such as a symbol
                found = find(scope, key, default)
            if found is not None:
                return found
            return self.space[0] if default is None else default

        return configuration

    def _find(self, scope: Scope, key: tuple[Any, ...], default: Any) -> Any:
        attempt = _attempt.get()
        if attempt is not None and attempt.of is self and attempt.observes:
            asked = _key_of(_flat(key), self.exact)
            attempt.keys[asked] = self.space[0] if default is None else default
            tried = attempt.configuration
            if tried is None or self.fits(tried, key):
                return tried
            attempt.unfit = True
            return None
        if scope.policy is LaunchPolicy.SKIP and scope.recording is None:  # for shapes alone
            return None
        if attempt is not None and attempt.of is self and attempt.configuration is not None:
            return attempt.configuration if self.fits(attempt.configuration, key) else None
        found = None
        if self.tables():
            look = self._nearest if default is None and not self.exact else self._own
            found = look(gpu_at_hand(scope.gpu), key)
        of_tensors = any(isinstance(part, torch.Tensor) for part in key)
        if scope.gpu is not None and scope.keeps and not of_tensors:
            kept = self._kept.setdefault(scope.gpu, {})
            if len(kept) >= MAX_KEPT:
                kept.clear()
            kept[key] = found
        return found

    def fits(self, configuration: Any, key: tuple[Any, ...]) -> bool:
        """Return whether a configuration fits a call, by the author's `when`."""
        return self.when is None or bool(self.when(configuration, *key))

    def _nearest(self, gpu: TunedGpu, key: tuple[Any, ...]) -> Any:
        """Return the tuned configuration of the nearest key on a GPU or its nearest relative."""
        asked = _key_of(_flat(key), self.exact)
        for relative in relatives(gpu, self.tables()):
            table = self.tables()[relative]
            near = [(distance(asked, other), other) for other in table]
            for apart, other in sorted(near, key=lambda each: (each[0], str(each[1]))):
                if apart < math.inf and self.fits(table[other], key):
                    return table[other]
        return None

    def _own(self, gpu: TunedGpu, key: tuple[Any, ...]) -> Any:
        """Return the tuned configuration of a call's own key on a GPU or its nearest relative."""
        asked = _typed(_key_of(_flat(key), self.exact))
        for relative in relatives(gpu, self.tables()):
            for own, configuration in self.tables()[relative].items():
                if _typed(own) == asked and self.fits(configuration, key):
                    return configuration
        return None

    def tables(self) -> Mapping[TunedGpu, Mapping[CallKey, Any]]:
        """Return the tuned configurations by GPU and key, read once; what does not fit is left out."""
        if self._tables is None:
            self._tables = self._read()
        return self._tables

    def _read(self) -> dict[TunedGpu, dict[CallKey, Any]]:
        if self.file is None or not self.file.is_file():
            return {}
        try:
            of_file = tuned.read(self.file).operators.get(self.name, ())
        except UsageError as error:
            _log.warning("Defaults are used in place of tuned configurations: %s", error)
            return {}
        tables: dict[TunedGpu, dict[CallKey, Any]] = {}
        left_out: dict[str, None] = {}
        for entry in of_file:
            if why := self.misfit(entry):
                left_out[why] = None
            else:
                tables.setdefault(entry.on, {})[entry.key] = self.with_values(entry.configuration)
        for why in left_out:
            _log.warning("%s, %s: %s. Tune again, or see: dotcu tune --stale", self.file.name, self.name, why)
        return tables

    def misfit(self, entry: TunedEntry) -> str:
        """Return why an entry of a file is left out; empty if it is used."""
        if entry.digest != self.digest:
            return "its sources have changed since it was tuned, so it is left out"
        if self.with_values(entry.configuration) is None:
            shown = values_text(entry.configuration)
            return f"{shown} is none of the declared configurations, so it is left out"
        return ""

    def with_values(self, values: Mapping[str, TunedValue]) -> Any:
        """Return the declared configuration with some values by name; None if there is none."""
        return next((each for each in self.space if values_of(each) == values), None)

    def forget(self) -> None:
        """Read the file again at the next look-up."""
        self._forget_found()
        self._tables = None

    @contextmanager
    def trying(self, configuration: Any) -> Iterator[TriedConfiguration]:
        """Use a configuration for every call on this thread until the block ends; None for the default.

        Yields:
            The keys of the calls that ask for one, and whether it fits them.
        """
        attempt = TriedConfiguration(of=self, configuration=configuration)
        self._forget_found()
        token = _attempt.set(attempt)
        try:
            with observing_every_call():
                yield attempt
        finally:
            _attempt.reset(token)
            self._forget_found()

    @contextmanager
    def using(self, configuration: Any) -> Iterator[None]:
        """Use a configuration in a body until the block ends; None for the tuned one. Nothing is kept."""
        attempt = TriedConfiguration(of=self, configuration=configuration, observes=False)
        token, scope_token = _attempt.set(attempt), scope_variable.set(replace(current_scope(), keeps=False))
        try:
            yield
        finally:
            scope_variable.reset(scope_token)
            _attempt.reset(token)

    def _forget_found(self) -> None:
        """Drop what was found for calls, here and by layout."""
        for kept in self._kept.values():
            kept.clear()
        forget_choices()


def values_of(configuration: Any) -> dict[str, Any]:
    """Return the values of a configuration by name; empty if it is not a frozen value with names."""
    if isinstance(configuration, tuple) and hasattr(configuration, "_asdict"):
        values: dict[str, Any] = configuration._asdict()
        return values
    if dataclasses.is_dataclass(configuration) and configuration.__hash__ is not None:
        return {each.name: getattr(configuration, each.name) for each in dataclasses.fields(configuration)}
    return {}


def values_text(values: Mapping[str, TunedValue]) -> str:
    """Return the values of a configuration as text: `block=256 items=4`."""
    return " ".join(f"{name}={value}" for name, value in values.items())


# ------------------------------------------------------------------ keys


def bucket(size: int) -> int:
    """Return a size rounded up to a power of two."""
    return size if size <= 1 else 1 << (size - 1).bit_length()


def _flat(key: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts of a key: of a tensor its dtype and sizes."""
    for part in key:
        if isinstance(part, torch.Tensor):
            yield from (part.dtype, *part.shape)
        elif isinstance(part, (tuple, list)):
            yield from _flat(part)
        elif part is None or isinstance(part, (bool, str, float, int, torch.SymInt, torch.dtype)):
            yield part
        else:
            raise UsageError(
                f"configuration() takes tensors, sizes, dtypes, bools and text, got {part!r}.\n"
                "Pass what of the call matters: scale.configuration(x.dtype, x.shape[0])"
            )


def _is_size(part: Any) -> bool:
    return isinstance(part, (int, torch.SymInt)) and not isinstance(part, bool)


def _key_of(parts: Iterable[Any], exact: float) -> CallKey:
    """Return parts as a key: the first sizes as they are, others by their bucket."""
    key: list[TunedValue] = []
    sizes = 0
    for part in parts:
        if _is_size(part):
            key.append(_size(part, current_scope().recording, is_exact=sizes < exact))
            sizes += 1
        else:
            plain = float(part) if isinstance(part, torch.SymFloat) else part
            key.append(plain if isinstance(plain, (bool, str, float)) else _name(plain))
    return tuple(key)


def _typed(key: CallKey) -> tuple[tuple[type, TunedValue], ...]:
    """Return a key whose True is not equal to 1."""
    return tuple((type(part), part) for part in key)


def _size(size: Any, recording: LaunchRecorder | None, *, is_exact: bool) -> int:
    """Return what a size counts as; of a symbol in a recorded body, which then holds for that alone."""
    plain = int(size) if recording is None else recording.hint(size)
    count = plain if is_exact else bucket(plain)
    if recording is not None:
        assert size == count if is_exact or count <= 1 else count // 2 < size <= count  # which is a guard
    return count


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.").lower()


def distance(one: CallKey, other: CallKey) -> float:
    """Return how far two keys are apart, in doublings of their sizes; infinite if they differ otherwise."""
    if len(one) != len(other):
        return math.inf
    apart = 0.0
    for a, b in zip(one, other, strict=True):
        if type(a) is int and type(b) is int:
            apart += abs(a.bit_length() - b.bit_length())
        elif type(a) is not type(b) or a != b:
            return math.inf
    return apart


# ------------------------------------------------------------------ GPUs


@functools.cache
def _gpu(index: int) -> TunedGpu:
    found = torch.cuda.get_device_properties(index)
    return TunedGpu(
        capability=f"{found.major}.{found.minor}",
        multiprocessors=found.multi_processor_count,
        name=found.name,
    )


def gpu_at_hand(index: int | None) -> TunedGpu:
    """Return the GPU of an index; for None the one that the simulator stands for."""
    if index is not None and cuda.available():
        return _gpu(index)
    major, minor = capability("cpu")
    count = limits(major, minor).multiprocessors
    return TunedGpu(capability=f"{major}.{minor}", multiprocessors=count, name="simulator")


def relatives(gpu: TunedGpu, known: Iterable[TunedGpu]) -> list[TunedGpu]:
    """Return the GPUs of the same capability, the nearest by the number of multiprocessors first."""
    alike = [other for other in known if other.capability == gpu.capability]
    return sorted(alike, key=lambda o: (abs(o.multiprocessors - gpu.multiprocessors), o.name != gpu.name, o))


def entry_for(gpu: TunedGpu, entries: Iterable[TunedEntry]) -> TunedGpu | None:
    """Return the GPU whose entries a GPU uses; None if it uses the defaults."""
    return next(iter(relatives(gpu, {entry.on for entry in entries})), None)
