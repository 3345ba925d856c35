"""Who says whether results are right: an operator's reference, in float64 on the same device where memory
reaches, else in the operator's own dtype; and a bare kernel's, as its author wrote it."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.case import short
from dotcu.checking.closeness import difference
from dotcu.checking.memory import NAN_BYTE
from dotcu.checking.numerics import Oracle, outputs
from dotcu.checking.precision import TRIALS, is_whole, real
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.trials.telling import one_line
from dotcu.operator import Sample

Results = tuple[Tensor, ...]

LARGE = 2**22
"""With more elements in inputs and results, inputs are moved less often: in so many, a few are enough for
what moves least."""

FEWER = 4
"""How often then."""

PIECE = 2**24
"""So many elements are compared at once."""


class Referee(Protocol):
    """What says whether results are right."""

    @property
    def device(self) -> torch.device:
        """Where results must be."""

    @property
    def why_not(self) -> str:
        """Why results cannot be compared with anything, in words; empty where they can."""

    @property
    def told(self) -> str:
        """How results were compared until now, in words, where less strictly than they should be."""

    def place(self) -> AbstractContextManager[object]:
        """What calls are made in."""

    def results(self, sample: Sample, result: Any) -> Results:
        """The tensors that a call gave: what it returned and what it wrote."""

    def written(self, sample: Sample) -> tuple[Tensor, ...]:
        """The arguments that a call may change."""

    def judge(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        """What is wrong with each of some results of one call, in words; empty where nothing is.

        Raises:
            Exception: What the reference raises.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class OverloadReferee:
    """Judges calls of an operator by its reference.

    Attributes:
        dtype: The operator's dtype that calls are of, for which it may have declared a tolerance.
    """

    subject: Subject
    dtype: torch.dtype | None
    _fallen_back: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def device(self) -> torch.device:
        """Where results must be."""
        return self.subject.device

    @property
    def why_not(self) -> str:
        """Why results cannot be compared with anything, in words; empty where they can."""
        if self.subject.reference is None:
            return "not compared with anything: the operator has no reference"
        if self.subject.declares(torch.Tag.nondeterministic_seeded):
            return "not compared with anything: the operator is declared random"
        return ""

    @property
    def told(self) -> str:
        """How results were compared until now, in words, where not in float64; empty where so."""
        return next(iter(self._fallen_back), "")

    def place(self) -> AbstractContextManager[object]:
        """What calls are made in: for CPU tensors the simulator, with poison in what bodies allocate."""
        if self.subject.on_gpu:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(self.subject.place())
        stack.enter_context(self.subject.poisoning(NAN_BYTE))
        return stack

    def results(self, sample: Sample, result: Any) -> Results:
        """The tensors that a call gave: what it returned and what it wrote."""
        return self.subject.gives(sample.args, sample.kwargs, result)

    def written(self, sample: Sample) -> tuple[Tensor, ...]:
        """The arguments that a call may change."""
        return outputs(self.subject.overload.signature.written(sample.args, sample.kwargs))

    def judge(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        """What is wrong with each of some results of one call; the inputs may be written."""
        given = self.subject.inputs(inputs)
        try:
            return self._by_oracle(given, results)
        except ReferenceCalls:
            raise
        except Exception as error:  # too little memory, say; if the reference takes nothing, that shows next
            why = _why_not_in_float64(error)
        if self.subject.on_gpu:
            gc.collect()
            torch.cuda.empty_cache()
        found = self._in_own_dtype(given, results)
        dtype = self.dtype or given.tensors[0].dtype
        self._fallen_back.append(f"compared in {short(dtype)} with wide bounds: {why}")
        return found

    def _by_oracle(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        reference: Any = self.subject.reference
        tensors = [*inputs.tensors, *(t for those in results.values() for t in those)]
        trials = TRIALS if max((t.numel() for t in tensors), default=0) <= LARGE else FEWER
        tolerance = None if self.dtype is None else self.subject.tolerance(self.dtype)
        with torch.no_grad():
            oracle = numerics.oracle(reference, inputs, tolerance, trials=trials)
            return {name: wrong(those, oracle) for name, those in results.items()}

    def _in_own_dtype(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        reference: Any = self.subject.reference
        added = max(tensor.numel() for tensor in inputs.tensors)
        with torch.no_grad():
            plain = outputs(reference(*inputs.args, **inputs.kwargs))
            return {name: difference(those, plain, added) for name, those in results.items()}


def _why_not_in_float64(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "memory does not reach for float64"
    return f"the reference fails in float64, {type(error).__name__}: {one_line(error)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class BareReferee:
    """Judges calls of a callable that has inputs of its own.

    Attributes:
        reference: Gives what the callable is to give, in whatever floating-point dtype.
        outputs: The tensors that a call writes; none where it returns them.
        added: How many numbers a call may add up.
    """

    device: torch.device
    reference: Callable[[], Any] | None
    outputs: Sequence[Tensor]
    added: int

    @property
    def why_not(self) -> str:
        """Why results cannot be compared with anything, in words; empty where they can."""
        return "" if self.reference is not None else "not compared with anything: reference= was not given"

    @property
    def told(self) -> str:
        """Nothing: results are compared as their author says."""
        return ""

    def place(self) -> AbstractContextManager[object]:
        """What calls are made in: a kernel finds the simulator by itself."""
        return nullcontext()

    def results(self, sample: Sample, result: Any) -> Results:
        """The tensors that a call gave."""
        return tuple(self.outputs) or tuple(t for t in _leaves(result) if isinstance(t, Tensor))

    def written(self, sample: Sample) -> tuple[Tensor, ...]:
        """No argument: there are none."""
        return ()

    def judge(self, inputs: Sample, results: Mapping[str, Results]) -> dict[str, str]:
        """What is wrong with each of some results; of a reference in a wider dtype, rounded to theirs."""
        assert self.reference is not None
        expected = outputs(self.reference())
        return {name: self._difference(those, expected) for name, those in results.items()}

    def _difference(self, got: Results, expected: Results) -> str:
        if not got:
            return "it gives no tensor: name those that it writes, outputs=(out,)"
        rounded = tuple(
            want.to(own.dtype) if not is_whole(want) and not is_whole(own) else want
            for want, own in zip(expected, got, strict=False)
        )
        return difference(got, rounded if len(expected) == len(got) else expected, self.added)


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, (list, tuple)):
        for item in result:
            yield from _leaves(item)
    else:
        yield result


# ------------------------------------------------------------------ against an oracle, piece by piece


def wrong(results: Results, oracle: Oracle) -> str:
    """What is wrong with results, in words; empty where the oracle's bounds hold."""
    if what := numerics.mismatch(results, oracle.plain):
        return what
    if all(tensor.numel() <= PIECE for tensor in results):
        error = numerics.judge(results, oracle)
        return "" if error.held else f"{error.what}\n{error.where}".strip()
    found = (_wrong_in_pieces(got, oracle, i) for i, got in enumerate(results))
    return next(filter(None, found), "")


def _wrong_in_pieces(got: Tensor, oracle: Oracle, position: int) -> str:
    """The same for one output, with the memory of a piece at a time."""
    own, norms = oracle.plain[position], []
    shape = (-1, 2) if own.is_complex() else (-1,)
    values, bounds = oracle.values[position].reshape(shape), oracle.bounds[position].reshape(shape)
    zeros, most = oracle.zeros[position].reshape(shape), oracle.norms[position]
    for start in range(0, got.numel(), PIECE):
        part = slice(start, start + PIECE)
        piece, plain = got.reshape(-1)[part], own.reshape(-1)[part]
        elements = Oracle(
            values=(values[part],),
            bounds=(bounds[part],),
            norms=(math.inf,),
            plain=(plain,),
            zeros=(zeros[part],),
        )
        error = numerics.judge(piece, elements)
        if not error.held:
            counted = f"counted from element {start} of output {position} on"
            return f"{error.what}, {counted}\n{error.where}".strip()
        norms.append(0.0 if is_whole(own) else numerics.norm(real(piece).double() - values[part]))
    whole = math.hypot(*norms)
    if whole <= most or is_whole(own):
        return ""
    return f"output {position} as a whole is off by {whole:.3g}, in the 2-norm; {most:.3g} is allowed"
