"""What is called instead of what torch made for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.autograd import forward_ad

from dotcu.replay.arguments import Fallback
from dotcu.replay.portable.calm import (
    autocast,
    callbacks,
    deterministic,
    function_mode,
    thread,
    thread_keys,
)  # fmt: skip
from dotcu.replay.portable.outcome import ASIDE, MISS
from dotcu.replay.portable.overload import Overload

_held = 0


def hold(by: int) -> None:
    """Count up or down who wants every call to take its ordinary path, on every thread."""
    global _held
    _held += by


class Entry:
    """Calls an operator: by a plan where one fits, else as torch does.

    Attributes:
        fallback: What torch made for the operator.
    """

    def __init__(self, overloads: Sequence[Overload], fallback: Fallback, autocasts: bool) -> None:
        self.fallback = fallback
        self.__module__ = fallback.__module__  # which a class has too, so that no look-up would miss it
        self._overloads = tuple(overloads)
        self._autocasts = autocasts
        self._calm = thread_keys()
        # Of several overloads torch may have to choose, so that every call is bound to each of them.
        self._only = overloads[0] if len(overloads) == 1 else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            _held
            or function_mode()
            or callbacks()
            or deterministic()
            or forward_ad._current_level >= 0
            or not ((keys := thread.words[0]) == self._calm.usual or keys == self._calm.inference)
            or (self._autocasts and autocast())
        ):
            return self.fallback(*args, **kwargs)
        only = self._only
        if only is None or kwargs or len(args) > only.most:
            return self._bound(args, kwargs)
        result = only.kept.latest(*args)
        if result is MISS:
            return self._bound(args, kwargs)
        return self.fallback(*args) if result is ASIDE else result

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the one overload that takes these arguments as they are."""
        chosen = None
        for overload in self._overloads:
            values = overload.bind(args, kwargs)
            another = chosen is not None if values else self._only is None and overload.might(args, kwargs)
            if another:
                return self.fallback(*args, **kwargs)  # torch knows which comes first
            chosen = (overload, values) if values else chosen
        if chosen is None:
            return self.fallback(*args, **kwargs)
        overload, values = chosen
        return overload.call(values, self.fallback, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "fallback"), name)

    def __hash__(self) -> int:
        """That of the fallback: torch hashes an operator by what it calls."""
        return hash(self.fallback)
