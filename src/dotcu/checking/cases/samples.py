"""A call with a name, that can be made again and again with the same values in new memory."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import GeneratorType

import torch

from dotcu.checking import numerics
from dotcu.checking.memory import fresh
from dotcu.errors import OperatorError
from dotcu.operator import Overload, Sample
from dotcu.operator.samples import describe
from dotcu.tracebacks import as_user_error, file_line


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call to try.

    Attributes:
        dtype: Of the operator's dtypes, the one that it is for.
        number: The place of the author's sample among those of the dtype.
        build: Makes the arguments, the same each time: random numbers come from a generator of their own.
        variant: How dotcu derived it of that sample, such as `n33-offset-1`; empty if it is the sample.
        never: Whether there can be no such call, whatever the reference says.
        doubtful: Whether there is such a call only if its reference computes it: of indices or values that
            dotcu made, say, which a body does not look at. `Subject.takes` finds out.
        sharp: Whether a result that jumps at its values, as that of x > 0 does at 0, is to be on the
            reference's side.
        finite: Whether there is such a call only if its reference adds up finite sizes, so that no sum
            overflows, in whatever order.
    """

    dtype: torch.dtype
    number: int
    build: Callable[[], Sample | None]
    variant: str = ""
    never: bool = False
    doubtful: bool = False
    sharp: bool = False
    finite: bool = False

    @property
    def name(self) -> str:
        """Unique for an overload, without blanks and slashes: `float32-s0-transposed`."""
        return case_name(short(self.dtype), self.number, self.variant)

    @property
    def origin(self) -> str:
        """The name of the sample, of which the case may be derived: `float32-s0`."""
        return case_name(short(self.dtype), self.number, "")

    @property
    def derived(self) -> bool:
        """True if dotcu made it: then the operator may refuse it with a clear error."""
        return bool(self.variant)

    @property
    def sample(self) -> Sample:
        """The arguments. Do not pass them on: `make` returns equal ones."""
        sample = self.build()
        assert sample is not None, self.name
        return sample

    @property
    def elements(self) -> int:
        """The number of elements of all tensors; 0 if there is no such call."""
        sample = self.build()
        return sum(tensor.numel() for tensor in sample.tensors) if sample is not None else 0

    def make(self) -> Sample:
        """The arguments in new memory, of the same layout, with the same values."""
        return fresh(self.sample)

    def derive(self, word: str, build: Callable[[], Sample | None], **told: bool) -> Case:
        """Return the case of another call, derived of this one in a way that a word names."""
        variant = "-".join(filter(None, (self.variant, word)))
        return Case(dtype=self.dtype, number=self.number, build=build, variant=variant, **told)


def case_name(dtype: str, number: int | None, variant: str) -> str:
    """Return a case's name: `float32-s0-transposed`. What is empty, or None, has no part in it."""
    return "-".join(filter(None, (dtype, "" if number is None else f"s{number}", variant)))


def seed_of(name: str, seed: int) -> int:
    """Return a seed for the random numbers of a name, independent of what ran before."""
    return (zlib.crc32(name.encode()) ^ (seed * 0x9E3779B1)) & 0x7FFF_FFFF


def short(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype).removeprefix("torch.")


# --------------- the samples that a check calls an overload with, and what is wrong with a `samples` function


def samples_of(overload: Overload, device: torch.device, dtype: torch.dtype) -> Iterator[Sample]:
    """The overload's samples; for one that writes `out`, else, those of its twin, with poisoned outputs.

    Args:
        dtype: Of the floating-point inputs.
    """
    own = given(overload, device, dtype)
    twin = overload.functional
    if own or twin is None or twin.reference_function is None:
        yield from own
        return
    for sample in given(twin, device, dtype):
        # a sample on which the reference fails: the case calls it again, and has this as its failure
        yield with_outs(overload, sample) or sample


def with_outs(overload: Overload, sample: Sample) -> Sample | None:
    """The call of an overload that writes `out`, with poisoned outputs, from its twin's arguments.

    None if the reference, which says what the outputs are, fails.
    """
    assert overload.functional is not None
    assert overload.functional.reference_function is not None
    try:
        results = numerics.outputs(overload.functional.reference_function(*sample.args, **sample.kwargs))
    except (Exception, SystemExit):
        return None
    poisoned = [torch.full_like(like, torch.nan if like.is_floating_point() else 85) for like in results]
    outs = dict(zip(overload.signature.outs, poisoned, strict=False))
    return Sample(*sample.args, **{**sample.kwargs, **outs})


def given(overload: Overload, device: torch.device, dtype: torch.dtype) -> list[Sample]:
    """Return the samples that the overload's `samples` function gives, each of them verified.

    Args:
        dtype: Of the floating-point inputs.

    Raises:
        OperatorError: The function failed, gave something else, or left the dtype aside.
    """
    name = f"the samples of {overload.qualified_name}"
    required = "The function takes (device, dtype) and yields a dotcu.Sample(...) for each call to try."
    samples: list[Sample] = []
    with as_user_error(OperatorError, f"{name} failed for {dtype} on {device.type!r}", required):
        made = overload.make_samples(device, dtype)
        if not isinstance(made, Iterable):
            raise OperatorError(f"{_place(made, overload)}{name} are {made!r}.\n{required}")
        for item in made:
            if not isinstance(item, Sample):
                raise OperatorError(
                    f"{_place(made, overload)}{name} have {describe(item)}, "
                    f"which is not a dotcu.Sample.\n{required}"
                )
            if others := _others(item, dtype):
                raise OperatorError(
                    f"{_place(made, overload)}{name} for {dtype} have only {others} tensors: {item!r}.\n"
                    f"Each has a tensor of the dtype that it is asked for, otherwise {dtype} is not tested.\n"
                    "Make them with dtype=dtype."
                )
            samples.append(item)
    return samples


def _others(sample: Sample, dtype: torch.dtype) -> str:
    """The dtypes that tensors have in place of the one asked for, `float32`; empty if that is there too.

    A dtype may also be there by name, as an argument that says what the result is.
    """
    named = any(value is dtype for value in (*sample.args, *sample.kwargs.values()))
    dtypes = {tensor.dtype for tensor in sample.tensors}
    if named or dtype in dtypes:
        return ""
    return " and ".join(sorted(short(one) for one in dtypes if _kind(one) and _kind(one) == _kind(dtype)))


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "floating"
    return "" if dtype.is_complex or dtype == torch.bool else "integer"


def _place(made: object, overload: Overload) -> str:
    """Return `file:line: ` of a sample: the line that a generator is at, or the function's."""
    if isinstance(made, GeneratorType) and made.gi_frame is not None:
        return f"{file_line(made.gi_code.co_filename, made.gi_frame.f_lineno)}: "
    function = overload._samples
    code = getattr(function and inspect.unwrap(function), "__code__", None)
    return f"{file_line(code.co_filename, code.co_firstlineno)}: " if code else ""
