"""`autocast`: in a region of torch.autocast a call gives what it gives outside of one, or what its rule says.

torch casts what its own operators in a body take, and so may hand a kernel another dtype than it asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.samples import Case, short
from dotcu.checking.memory import same_bits
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import floating
from dotcu.errors import EnvironmentFault, FindingError, UsageError
from dotcu.operator import Sample
from dotcu.tracebacks import describe, one_line

CHECK = "autocast"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Those that a rule for autocast may cast to."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial of the first floating dtype that has a sample with elements."""
    case = next(filter(None, map(subject.smallest, floating(subject))), None)
    if case is None:
        yield skipped(subject, CHECK, "no sample of a floating dtype without empty tensors")
    else:
        yield trial(subject, CHECK, _look, case)


def _look(subject: Subject, case: Case) -> CheckResult:
    """Compare a call in a region of autocast with calls outside of one."""
    try:
        wanted = {"its own dtype": _call(subject, case, case.make())}
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return Skipped(reason=f"a plain call fails: {one_line(error)}")
    if subject.overload.autocasts:
        wanted = dict(_by_rule(subject, case))
    region = torch.autocast(subject.device.type, torch.bfloat16)
    try:
        with region:
            got = _call(subject, case, case.make())
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:
        reason = f"it fails under torch.autocast with {type(error).__name__}"
        return Failed.raised(reason, error, f"{describe(error)}\n{_REMEDY}")
    differences = {how: _difference(subject, got, expected) for how, expected in wanted.items()}
    if "" in differences.values() or not differences:
        return Passed()
    if not subject.overload.autocasts:
        again = _call(subject, case, case.make())
        if _difference(subject, again, wanted["its own dtype"]):
            return Skipped(reason="a plain call gives other results each time, which other checks report")
    how, evidence = next(iter(differences.items()))
    reason = f"it gives other results under torch.autocast than in {how}"
    return Failed(
        reason=reason, evidence=evidence if subject.overload.autocasts else f"{evidence}\n{_REMEDY}"
    )


_REMEDY = (
    "torch casts what torch's operators in the body take. Compute there as outside of the region:\n"
    "with torch.autocast(x.device.type, enabled=False): ..."
)


def _call(subject: Subject, case: Case, sample: Sample) -> tuple[Tensor, ...]:
    with subject.seeded(case.name), subject.place():
        return subject.call(sample)


def _by_rule(subject: Subject, case: Case) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield what the call gives for inputs that are cast, by the dtype, as far as the body takes that."""
    for dtype in DTYPES:
        cast = case.make().map_tensors(partial(_cast, dtype))
        try:
            yield short(dtype), _call(subject, case, cast)
        except (FindingError, UsageError, EnvironmentFault):
            raise
        except Exception:  # the rule casts to another dtype
            continue


def _cast(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    casts = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if casts else tensor


def _difference(subject: Subject, got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str:
    if same_bits(got, expected):
        return ""
    kinds = [", ".join(map(numerics.describe, tensors)) for tensors in (got, expected)]
    if kinds[0] != kinds[1]:
        return f"It gives {kinds[0]}, outside of it {kinds[1]}."
    if subject.is_deterministic:
        return numerics.unlike(got, expected, 0.0) or "The signs of zeros, or NaNs, differ."
    return numerics.unlike(got, expected)
