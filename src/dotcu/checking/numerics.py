"""The error of a result, and its bound.

The oracle is the reference computed in float64. A result may differ from it by what its own dtype
forces: by a unit in its last place, by what a change of the inputs in their last place does to the
oracle, which grows where a result is a small difference of large terms, and by what the reference in
the operator's own dtype needs beyond that. There is no tolerance to choose, unless an operator declares one.

Three properties are compared, in this order: where NaN and infinities stand, each element, and the whole
(in the 2-norm, where errors that each element is allowed must not all have their largest size).
A complex number is two elements, its real and its imaginary part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dotcu.operator import Sample

MARGIN = 8.0
"""The allowed error as a multiple of torch's own operator's, in units of the unavoidable error."""

NORM_MARGIN = 4.0
"""The allowed error of many elements as a multiple of torch's own operator's, in the 2-norm."""

ROUNDED_MARGIN = 1.5
"""The same where a result of 16 bits is rounded once; the errors of such are 0.3 of a last place."""

MAX_BIAS = 2.0
"""The mean relative error that a result of 16 bits may have, in units of its eps: rounding has none."""

ENOUGH = 64
"""The number of elements from which on their mean error says something."""

MAX_SHARE = 0.25
"""The largest share of an element that those units may be: in 8 bits, 8 units are the whole element."""

_SINGLE = torch.finfo(torch.float32).eps

TRIALS = 8
"""The number of times that inputs are moved at random, after all were moved up and all down:
no element of many then stays where it is by chance."""

Reference = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """The expected result, and how far from it a result may be.

    Attributes:
        values: In float64.
        bounds: How far each element may be.
        norms: How far each tensor may be, in the 2-norm.
        biases: The mean relative error that each tensor may have; infinite where it is not checked.
        plain: What the reference gives in the operator's own dtype.
        zeros: Where a zero must have the sign of the reference's.
    """

    values: tuple[Tensor, ...]
    bounds: tuple[Tensor, ...]
    norms: tuple[float, ...]
    biases: tuple[float, ...]
    plain: tuple[Tensor, ...]
    zeros: tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class NumericError:
    """The worst of a result.

    Attributes:
        ratio: The largest error over its bound; a result is right if that is at most 1. NaN where
            something is not finite that must be, or the other way round.
        what: What is wrong, in words, if something is.
        where: Which output and index, in words, with the values.
    """

    ratio: float
    what: str = ""
    where: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the result is right; false for NaN."""
        return self.ratio <= 1.0

    def __str__(self) -> str:
        return f"{self.what}\n{self.where}".strip()


def outputs(result: Any) -> tuple[Tensor, ...]:
    """The tensors of an operator's result, in order."""
    if result is None:
        return ()
    if isinstance(result, Tensor):
        return (result,)
    return tuple(tensor for item in result for tensor in outputs(item))


def oracle(
    reference: Reference,
    sample: Sample,
    tolerance: float | None = None,
    *,
    floor: float = 0.0,
    trials: int = TRIALS,
    rounded_once: bool = True,
    sharp: bool = False,
    flushes: bool = False,
) -> Oracle:
    """Compute what a sample's result should be, and its bounds, where its tensors are; these are left alone.

    Args:
        tolerance: A declared one, which stands for the bounds of what is floating-point: of an element
            its own size and the root mean square of all, times this.
        floor: What one of float64 may be off relative to the largest of all, if there is a tolerance. Where
            all of a result of another dtype is below it, and so zero but for rounding, each element may be
            off by some units in the last place of the largest of all, or of 1, in float32.
        trials: How often inputs are moved at random.
        rounded_once: A result of 16 bits is to be near one that was computed in float32 and then rounded.
        sharp: Where a result of 32 bits or more jumps between the inputs and what is next to them, it is to
            be on the side of the reference in its own dtype.
        flushes: Elements of float32 may be sums by atomics, which lose what is subnormal of each addend.
    """
    plain = outputs(_call(reference, sample.map_tensors(torch.clone)))
    exact = _compute(reference, sample.map_tensors(to_double), plain)
    # the spread of each output under moved inputs: of all results one tensor is kept, or two
    most = [torch.zeros_like(value) for value in exact]
    low, high = list(exact), list(exact)
    for noise in noises(trials):
        moved = _compute(reference, sample.map_tensors(functools.partial(move, noise=noise)), plain)
        for i, other in enumerate(moved):
            if is_whole(plain[i]):
                low[i], high[i] = low[i].minimum(other), high[i].maximum(other)
            else:
                most[i] = most[i].maximum(_finite((other - exact[i]).abs_()))
    in_single = _errors_in_single(reference, sample, plain)
    largest_of_all = max([1.0, *(float(_finite(value).abs().max()) for value in exact if value.numel())])
    floor, lost = floor * largest_of_all, MARGIN * _SINGLE * largest_of_all
    values, bounds, norms, biases = [], [], [], []
    for i, (own, value) in enumerate(zip(plain, exact, strict=True)):
        jumps = torch.zeros_like(value, dtype=torch.bool)
        if sharp and (is_whole(own) or real(own).dtype.itemsize >= 4):
            jumps = _jumps(own, value, most[i])
            value = torch.where(jumps, real(own).double(), value)
        if is_whole(own):  # another integer or bool only where the inputs' last places decide it
            low[i], high[i] = torch.where(jumps, value, low[i]), torch.where(jumps, value, high[i])
            least, largest = low[i].minimum(own.double()), high[i].maximum(own.double())
            value, bound, whole = (least + largest) / 2, (largest - least) / 2, 0.0
        else:
            if tolerance is not None:
                bound, whole = _declared_limits(real(own).dtype, value, tolerance, floor)
            else:
                change = most[i].masked_fill(jumps, 0.0)
                bound, whole = _limits(real(own), value, change, in_single[i], rounded_once=rounded_once)
            if floor and own.dtype != torch.float64 and bool((_finite(value).abs() <= floor).all()):
                bound, whole = bound + lost, whole + lost * math.sqrt(value.numel())
            if flushes and real(own).dtype == torch.float32:
                small = torch.finfo(torch.float32).smallest_normal * sum(t.numel() for t in sample.tensors)
                bound, whole = bound + small, whole + small * math.sqrt(value.numel())
        values.append(value)
        bounds.append(bound)
        norms.append(whole)
        biases.append(math.inf if tolerance is not None or is_whole(own) else _most_bias(own, value, bound))
    return Oracle(
        values=tuple(values),
        bounds=tuple(bounds),
        norms=tuple(norms),
        biases=tuple(biases),
        plain=plain,
        zeros=_signed_zeros(reference, sample, plain, exact),
    )


JUMP = 1 / 16
"""The part of an element and of the root mean square of all that no last place of an input changes it by."""


def _jumps(own: Tensor, exact: Tensor, change: Tensor) -> Tensor:
    """Return where a result jumps next to the inputs; not where it may be rounded to either whole number.

    Args:
        own: The result of the reference in its own dtype.
        exact: The same in float64.
        change: How far moved inputs move it.
    """
    given = real(own).double()
    if is_whole(own):
        return (given == exact) | (own.dtype == torch.bool) | ((given - exact).abs() > 1)
    far = _far(exact)
    finite = given.isfinite() & exact.isfinite()
    return finite & ((change > far) | ((given - exact).abs() > far))


def _far(exact: Tensor) -> Tensor:
    """Return how far an element must move, at least, to have jumped."""
    return JUMP * (_finite(exact).abs() + norm(exact) / math.sqrt(max(exact.numel(), 1)))


def _errors_in_single(reference: Reference, sample: Sample, plain: Sequence[Tensor]) -> list[Tensor | None]:
    """Return torch's error in float32 for each float64 output, on the same inputs rounded to float32.

    In float64 the reference is its own oracle, and shows no error; how many last places an algorithm of
    torch's loses is the same in both. None if there is nothing to learn.
    """
    errors: list[Tensor | None] = [None] * len(plain)
    doubles = [i for i, own in enumerate(plain) if not is_whole(own) and real(own).dtype == torch.float64]
    if not doubles:
        return errors
    narrower = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    single = sample.map_tensors(lambda tensor: tensor.to(narrower.get(tensor.dtype, tensor.dtype)))
    with suppress(Exception):  # it may take float64 only
        got = outputs(_call(reference, single.map_tensors(torch.clone)))
        exact = _compute(reference, single.map_tensors(to_double), got)
        for i in doubles if len(got) == len(plain) else ():
            # no error where float32 overflows or loses places at its lower end
            size = exact[i].abs()
            errors[i] = (real(got[i]).double() - exact[i]).abs().where((size > 1e-30) & (size < 1e30), 0.0)
    return errors


def _signed_zeros(
    reference: Reference, sample: Sample, plain: Sequence[Tensor], exact: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return where the sign of a zero means something: where the result comes to it from that side.

    -x is such a case, and x + 0 is; max(x, 0) is none, nor is a sum that begins with 0 in torch itself.
    """
    near_zero = exact
    if any(not is_whole(tensor) and bool((tensor == 0).any()) for tensor in sample.tensors):
        near_zero = _compute(reference, sample.map_tensors(next_to_zero), plain)
    zeros = []
    for own, value, near in zip(plain, exact, near_zero, strict=True):
        side, as_given = near.signbit(), real(own).double()
        same = (as_given.signbit() == side) & (value.signbit() == side) & (not is_whole(own))
        zeros.append((as_given == 0) & (value == 0) & (near != 0) & same)
    return tuple(zeros)


def _declared_limits(
    dtype: torch.dtype, exact: Tensor, tolerance: float, floor: float
) -> tuple[Tensor, float]:
    """Return how far each element may be, and the whole, by the tolerance that an operator declares."""
    least = torch.finfo(dtype).smallest_normal  # it may flush what is smaller
    least = max(least, floor) if dtype == torch.float64 else least
    rms = norm(exact) / math.sqrt(max(exact.numel(), 1))
    bound = tolerance * (_finite(exact).abs() + rms) + least
    return bound, 2 * (tolerance * norm(exact) + least * math.sqrt(exact.numel()))


def _limits(
    own: Tensor, exact: Tensor, change: Tensor, in_single: Tensor | None, *, rounded_once: bool
) -> tuple[Tensor, float]:
    """Return how far each element may be, and the whole: a multiple of the error that it cannot avoid.

    That error is a unit in its last place, and what the last places of the inputs do to it. The
    multiple is what torch's own operator needs at its worst element, so a large element's error
    excuses no small one; and where that loses more than half of the digits, it excuses itself alone.
    Where most elements do, those that torch has right by luck may be as wrong as half of all are.

    A result of 16 bits that is rounded once is within half a last place of each element, so that many
    elements show an error of one or two hundredths, which the bound of each one allows.
    """
    if not own.numel():
        return torch.zeros_like(exact), 0.0
    dtype = torch.finfo(own.dtype)
    last = dtype.eps * (_finite(exact).abs() + dtype.smallest_normal)
    unit = last.maximum(change)
    error = _finite((own.double() - exact).abs())
    needed = _finite(error / unit).amax()
    if in_single is not None:
        wider = torch.finfo(torch.float32).eps / dtype.eps
        needed = needed.maximum(_finite(in_single / (unit * wider)).amax())
    all_lost = bool((error / unit).median() > dtype.eps**-0.5)
    at_least = (needed.clamp(1.0, dtype.eps**-0.5) * unit).maximum(error.median() * all_lost)
    margin = min(MARGIN, max(1.0, MAX_SHARE / dtype.eps))
    whole = min(margin, NORM_MARGIN + (MARGIN - NORM_MARGIN) / math.sqrt(own.numel()))
    lost = norm(error) if in_single is None else norm(in_single) / wider
    if rounded_once and dtype.bits == 16:
        whole = min(margin, ROUNDED_MARGIN + (MARGIN - ROUNDED_MARGIN) / math.sqrt(own.numel()))
        rounded = torch.where(change > _far(exact), unit, last)
        return margin * error.maximum(at_least), whole * max(lost, norm(rounded))
    return margin * error.maximum(at_least), whole * max(lost, norm(unit))


def _most_bias(own: Tensor, exact: Tensor, bound: Tensor) -> float:
    """Return the mean relative error that a result of 16 bits may have: by torch's own where that has one."""
    eps = torch.finfo(own.dtype).eps
    if own.dtype.itemsize > 2 or own.is_complex() or eps > 0.1:
        return math.inf
    return max(MAX_BIAS * eps, 2 * abs(_bias(own.double(), exact, bound, eps)))


def _bias(got: Tensor, exact: Tensor, bound: Tensor, eps: float) -> float:
    """Return the mean relative error over elements that no cancellation and no overflow makes uncertain.

    It is zero where these are few, or where their errors vary so much that the mean says nothing.
    """
    looked_at = got.isfinite() & exact.isfinite() & (exact != 0) & (bound <= 64 * eps * exact.abs())
    errors = ((got - exact) / exact)[looked_at]
    if errors.numel() < ENOUGH:
        return 0.0
    mean, spread = float(errors.mean()), float(errors.std())
    return mean if abs(mean) * math.sqrt(errors.numel()) > 5 * spread else 0.0


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(0, 0, 0)


def norm(values: Tensor) -> float:
    """The 2-norm of what is finite, whose squares may be too large or too small for a float64."""
    values = _finite(values)
    largest = float(values.abs().max()) if values.numel() else 0.0
    return largest * float(torch.linalg.vector_norm(values / largest)) if largest else 0.0


def judge(result: Any, expected: Oracle) -> NumericError:
    """The worst error of a result, over all its outputs.

    An integer or bool must be equal, where the inputs' last places do not decide it. Where torch's own
    result is not finite, or the oracle is not, the result must be that same NaN or infinity, or right.
    """
    device = expected.plain[0].device if expected.plain else torch.device("cpu")
    actual = [tensor.to(device) for tensor in outputs(result)]
    what = mismatch(actual, expected.plain)
    if what:
        return NumericError(ratio=math.nan, what=what)
    worst = NumericError(ratio=0.0)
    for position, got in enumerate(actual):
        if not got.numel():
            continue
        look = _judge_whole if is_whole(got) else _judge_floating
        error = look(real(got), expected, position)
        if math.isnan(error.ratio):
            return error
        if error.ratio > worst.ratio:
            worst = error
    return worst


def mismatch(actual: Sequence[Tensor], plain: Sequence[Tensor]) -> str:
    """Return the difference in number, dtype or shape from the reference's results, as text."""
    if not actual or len(actual) != len(plain):
        return f"it gives {len(actual)} tensors, its reference {len(plain)}"
    for i, (got, want) in enumerate(zip(actual, plain, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {i} is {describe(got)}, its reference gives {describe(want)}"
    return ""


def describe(tensor: Tensor) -> str:
    """A tensor's dtype and shape: `float32[3, 4]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _judge_whole(got: Tensor, expected: Oracle, position: int) -> NumericError:
    plain, bound = expected.plain[position], expected.bounds[position]
    distance = (got.double() - expected.values[position]).abs()
    wrong = (got != plain) & ~((bound > 0) & (distance <= bound))
    if not bool(wrong.any()):
        return NumericError(ratio=0.0)
    flat = int(torch.where(wrong, distance, -1.0).argmax())
    what = f"{int(wrong.sum())} of {got.numel()} elements are wrong"
    return NumericError(ratio=math.inf, what=what, where=_where(got, plain, flat, position))


def _judge_floating(got: Tensor, expected: Oracle, position: int) -> NumericError:
    dtype, bound, value = torch.finfo(got.dtype), expected.bounds[position], expected.values[position]
    got, plain = got.double(), real(expected.plain[position]).double()
    lost_sign = expected.zeros[position] & (got == 0) & (got.signbit() != plain.signbit())
    unlike_kind = _not_finite_alike(got, plain, value, bound, dtype.max)
    for wrong, are in (
        (unlike_kind, "are not finite where they must be, or finite where not"),
        (lost_sign, "are zero with the wrong sign"),
    ):
        if bool(wrong.any()):
            where = _where(got, value, int(wrong.flatten().int().argmax()), position)
            what = f"{int(wrong.sum())} of {got.numel()} elements {are}"
            return NumericError(ratio=math.nan, what=what, where=where)
    distance = (got - value).abs()
    ratio = torch.where(distance == 0, 0.0, distance / bound)
    ratio = torch.where(~got.isfinite() | (~value.isfinite() & (got == plain)), 0.0, ratio)
    flat = int(ratio.nan_to_num(nan=torch.inf).argmax())
    where, element = _where(got, value, flat, position), float(ratio.flatten()[flat])
    if not element <= 1.0:
        count = f"{int((~(ratio <= 1.0)).sum())} of {got.numel()} elements"
        what = f"{count} are wrong; the largest error is {_times(element)} the tolerance"
        return NumericError(ratio=element, what=what, where=where)
    error, limit = norm(distance[got.isfinite() & value.isfinite()]), expected.norms[position]
    whole = 0.0 if error == 0 or math.isinf(limit) else error / limit if limit else math.inf
    if not whole <= 1.0:
        times = f"{_times(whole)} the tolerance, in the 2-norm"
        what = f"output {position} as a whole is wrong: its error is {times}"
        return NumericError(ratio=whole, what=what, where=where)
    most = expected.biases[position]
    bias = 0.0 if math.isinf(most) else _bias(got, value, bound, dtype.eps)
    if not abs(bias) <= most:
        what = f"output {position} is too {'large' if bias > 0 else 'small'} by {abs(bias):.1%} on average"
        return NumericError(ratio=abs(bias) / most, what=what, where=where)
    return NumericError(ratio=max(element, whole))


def _times(ratio: float) -> str:
    """Return a ratio in three digits, without an exponent up to a billion: `22,400,000 times`."""
    return f"{float(f'{ratio:.3g}'):,.0f} times" if 1000 <= ratio < 1e9 else f"{ratio:.3g} times"


def _not_finite_alike(got: Tensor, plain: Tensor, value: Tensor, bound: Tensor, largest: float) -> Tensor:
    """Find where a result is NaN or infinite and must not be, or the other way round.

    It may be what torch's own is or what the oracle is. Next to the largest number of its dtype, either
    side of it may be right.
    """
    alike = (got == plain) | (got.isnan() & (plain.isnan() | value.isnan())) | (got == value)
    right = ((got - value).abs() <= bound) | (got.isfinite() & plain.isfinite())
    size, side = value.abs(), got.sign() == value.sign()
    return ~(alike | right | (side & (size + bound >= largest) & (size - bound <= 2 * largest)))


def _where(got: Tensor, value: Tensor, flat: int, position: int) -> str:
    return f"output {position}{values_at(flat, got=got, expected=value)}"


def index_of(flat: int, shape: torch.Size) -> list[int]:
    """The index of an element, of its number in a row of all."""
    return [int(i) for i in np.unravel_index(flat, shape)]  # torch's imports SymPy


def values_at(flat: int, **tensors: Tensor) -> str:
    """An element's index, and its value in each of some tensors: `[3, 4]: got 1.0, expected 2.0`."""
    values = ", ".join(f"{name} {tensor.flatten()[flat].item()}" for name, tensor in tensors.items())
    return f"{index_of(flat, next(iter(tensors.values())).shape)}: {values}"


def unlike(got: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float | None = None) -> str:
    """Say how tensors differ; empty if they do not.

    Args:
        tolerance: How far apart they may be, relative and absolute; by default torch.testing's.
    """
    try:
        torch.testing.assert_close(list(got), list(expected), rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def _compute(reference: Reference, sample: Sample, plain: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The reference's results in float64; if a shape depends on values that were moved, the plain one."""
    results = outputs(_call(reference, sample))
    pairs = zip(results, plain, strict=True)
    return tuple(real(got if got.shape == own.shape else own).double() for got, own in pairs)


def _call(reference: Reference, sample: Sample) -> Any:
    return reference(*sample.args, **sample.kwargs)


# ------------------------------- tensors in float64: as they are, moved in their last place, and next to zero

Noise = Callable[[Tensor], Tensor | float]
"""Numbers from -1 to 1, one for each element of a tensor, on its device; or one for all."""


def is_whole(tensor: Tensor) -> bool:
    """Return whether it holds integers or bools."""
    return not tensor.is_floating_point() and not tensor.is_complex()


def real(tensor: Tensor) -> Tensor:
    """The tensor; a complex one as real numbers, with a last dimension for both parts."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def to_double(tensor: Tensor) -> Tensor:
    """A copy of the tensor in float64; of a complex one, in complex128."""
    if is_whole(tensor):
        return tensor.clone()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64, copy=True)


def noises(trials: int = TRIALS) -> list[Noise]:
    """Return functions that move inputs: all up, all down, then some times each element at random."""
    generators: dict[torch.device, torch.Generator] = {}

    def random(like: Tensor) -> Tensor:
        if like.device not in generators:
            generators[like.device] = torch.Generator(like.device).manual_seed(0)
        generator = generators[like.device]
        numbers = torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)
        return numbers.mul_(2).sub_(1)

    return [lambda like: 1.0, lambda like: -1.0, *[random] * trials]


def move(tensor: Tensor, noise: Noise) -> Tensor:
    """The tensor in float64, each element moved by up to one unit in the last place of its own dtype."""
    return _changed(tensor, lambda parts: parts * (1 + torch.finfo(tensor.dtype).eps * noise(parts)))


def next_to_zero(tensor: Tensor) -> Tensor:
    """The tensor in float64, each zero a hair on its own side of it: squares of that are zero again."""
    hair = torch.tensor(1e-300, dtype=torch.float64)
    return _changed(tensor, lambda parts: parts.where(parts != 0, hair.to(parts.device).copysign(parts)))


def _changed(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    if is_whole(tensor):
        return tensor.clone()
    changed = change(real(to_double(tensor)))
    return torch.view_as_complex(changed) if tensor.is_complex() else changed


# ------ whether results too large for an oracle are near enough to what the reference gives in the same dtype

CHUNK = 2**27
"""The number of elements that are compared at once."""

UNITS = 8.0
"""The error that a floating-point number may have, in units in the last place."""


def difference(got: tuple[Tensor, ...], expected: tuple[Tensor, ...], added: int) -> str:
    """The first difference, in words; empty if there is none.

    Args:
        added: How many numbers there are that may have been added up, over all elements.
    """
    what = mismatch(got, expected) if got or expected else ""
    if what:
        return what
    for position, (a, b) in enumerate(zip(got, expected, strict=True)):
        flat = first_difference(a, b, added)
        if flat is not None:
            return _where(a, b, flat, position)
    return ""


def first_difference(got: Tensor, expected: Tensor, added: int) -> int | None:
    """The flat index of the first element that is wrong.

    Args:
        added: As for `difference`.
    """
    terms = max(1, added // max(got.numel(), 1))
    start = 0
    for a, b in zip(got.reshape(-1).split(CHUNK), expected.reshape(-1).split(CHUNK), strict=True):
        wrong = a != b if is_whole(a) else ~_close(real(a), real(b), terms)
        if a.is_complex():
            wrong = wrong.any(-1)
        if bool(wrong.any()):
            return start + int(wrong.int().argmax())
        start += a.numel()
    return None


def _close(got: Tensor, expected: Tensor, terms: int) -> Tensor:
    """Return where numbers are near enough, or both NaN. Infinity counts as next to the largest number."""
    wide = torch.float64 if got.dtype == torch.float64 else torch.float32
    largest = torch.finfo(got.dtype).max
    a, b = got.to(wide).clamp(-largest, largest), expected.to(wide).clamp(-largest, largest)
    finite = expected.to(wide).nan_to_num(0, 0, 0)
    scale = b.nan_to_num(0).abs() + finite.double().square().mean().sqrt().to(wide)
    lost = UNITS * torch.finfo(got.dtype).eps + math.sqrt(terms) * torch.finfo(wide).eps
    return ((a - b).abs() <= lost * scale) | (a == b) | (a.isnan() & b.isnan())
