"""The modes and the state of torch around a call: they change nothing in it, and it changes nothing in them.

torch.autocast casts what torch's operators in a body take, and so may hand a kernel another dtype than the
caller gave: in a region of it a call gives what it gives outside of one, or what its rule says.

A call gives the same with gradients and without, in inference mode, and for a parameter. After it, torch's
settings are as they were, and so are the random numbers, unless the operator is declared to draw them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
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


def plan(subject: Subject) -> Iterator[Trial]:
    """Two trials of the smallest call of the first dtype."""
    case = subject.smallest(subject.overload.dtypes[0])
    if case is not None and (subject.has_body or subject.launches):
        yield trial(subject, "determinism", _gives_the_same, case, variant="modes")
        before = {name: get() for name, (get, _) in SETTINGS.items()}  # no trial has called it yet
        yield trial(subject, "inputs", _leaves_state, case, before, variant="state")


# ------------------------------------------------------------------ modes


def _gives_the_same(subject: Subject, case: Case) -> CheckResult:
    """Compare a call in each mode with one without gradients."""
    if subject.declares(torch.Tag.nondeterministic_bitwise):
        return Skipped(reason="declared nondeterministic by a tag")
    modes: dict[str, tuple[TorchMode, TensorChange]] = {
        "torch.inference_mode()": (torch.inference_mode, _as_is)
    }
    if not subject.overload.signature.mutates:  # which takes nothing that requires a gradient
        modes |= {
            "torch.enable_grad()": (torch.enable_grad, _as_is),
            "torch.enable_grad(), of tensors that require one": (torch.enable_grad, _requiring),
            "torch.enable_grad(), of parameters": (torch.enable_grad, _parameter),
        }
    try:
        expected = _called(subject, case, torch.no_grad, _as_is)
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return Skipped(reason=f"a plain call fails: {one_line(error)}")
    for name, (mode, change) in modes.items():
        try:
            got = _called(subject, case, mode, change)
        except (FindingError, UsageError, EnvironmentFault):
            raise
        except Exception as error:
            return Failed.raised(f"it fails under {name}", error)
        if same_bits(got, expected):
            continue
        if not same_bits(_called(subject, case, torch.no_grad, _as_is), expected):
            return Skipped(reason="a plain call gives other results each time, which other checks report")
        return Failed(
            reason=f"it gives other results under {name} than under torch.no_grad()",
            evidence=numerics.unlike(got, expected, 0.0) or "The signs of zeros, or NaNs, differ.",
        )
    return Passed()


TorchMode = Callable[[], AbstractContextManager[object]]
TensorChange = Callable[[Tensor], Tensor]


def _called(subject: Subject, case: Case, mode: TorchMode, change: TensorChange) -> tuple[Tensor, ...]:
    sample = case.make().map_tensors(change)
    with subject.seeded(case.name), subject.place(), mode():
        result = subject.overload(*sample.args, **sample.kwargs)
    with torch.no_grad():  # what torch made in inference mode is no part of a comparison
        return tuple(tensor.detach().clone() for tensor in subject.gives(sample, result))


def _as_is(tensor: Tensor) -> Tensor:
    return tensor


def _requiring(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor


def _parameter(tensor: Tensor) -> Tensor:
    return torch.nn.Parameter(tensor.detach()) if tensor.is_floating_point() else tensor


# ------------------------------------------------------------------ state


def _leaves_state(subject: Subject, case: Case, before: Mapping[str, Any]) -> CheckResult:
    """Call from two seeds, and compare what the process had before with what it has then.

    Args:
        before: The settings before the first call of the operator: a second one may change nothing.
    """
    draws = subject.declares(torch.Tag.nondeterministic_seeded)
    try:
        first, second = (_after_call(subject, case, seed) for seed in (1, 2))
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return Skipped(reason=f"the call fails: {one_line(error)}")
    finally:
        changed = [name for name, (get, _) in SETTINGS.items() if get() != before[name]]
        for name in changed:
            SETTINGS[name][1](before[name])
    if changed:
        return Failed(
            reason=f"it changes a setting of the whole process: {', '.join(changed)}",
            evidence="Leave settings to those who call. Where a body needs one, set it back in a `finally`.",
        )
    for name, (was, now) in first.items():
        if now != was and now == second[name][1]:
            return Failed(
                reason=f"it sets the seed of {name}, for all that draws numbers after it",
                evidence="Draw from a generator of its own: torch.Generator(x.device).manual_seed(seed).",
            )
        if now != was and not draws:
            return Failed(
                reason=f"it draws random numbers of {name}, and does not declare it",
                evidence="Declare it: tags=(torch.Tag.nondeterministic_seeded,)",
            )
    return Passed()


def _after_call(subject: Subject, case: Case, seed: int) -> dict[str, tuple[object, object]]:
    """Make a call, and return the states of the random numbers before it and after it, which are put back."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([subject.device] if subject.on_gpu else []), subject.place():
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            sample, before = case.make(), _numbers(subject)
            subject.call(sample)
            after = _numbers(subject)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
    return {name: (before[name], after[name]) for name in before}


def _numbers(subject: Subject) -> dict[str, object]:
    """Return the states of the random numbers, as values to compare."""
    of_numpy: Any = np.random.get_state()
    gpu = {"CUDA": torch.cuda.get_rng_state(subject.device).numpy().tobytes()} if subject.on_gpu else {}
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": (of_numpy[1].tobytes(), *of_numpy[2:]),
        "Python": random.getstate(),
        **gpu,
    }


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _deterministic() -> tuple[bool, bool]:
    enabled = torch.are_deterministic_algorithms_enabled()
    return enabled, torch.is_deterministic_algorithms_warn_only_enabled()


SETTINGS: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch.set_default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch.set_grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch.set_num_threads": (torch.get_num_threads, torch.set_num_threads),
    "torch.set_float32_matmul_precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "torch.use_deterministic_algorithms": (_deterministic, _set_deterministic),
    "torch.autograd.set_detect_anomaly": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
}
"""Settings of torch that a call leaves alone: what returns each, and what puts it back."""


# ---------------------------------------------------------------- autocast

AUTOCAST_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Those that a rule for autocast may cast to."""


def plan_autocast(subject: Subject) -> Iterator[Trial]:
    """A trial of the first floating dtype that has a sample with elements."""
    case = next(filter(None, map(subject.smallest, floating(subject))), None)
    if case is None:
        yield skipped(subject, "autocast", "no sample of a floating dtype without empty tensors")
    else:
        yield trial(subject, "autocast", _same_under_autocast, case)


def _same_under_autocast(subject: Subject, case: Case) -> CheckResult:
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
    for dtype in AUTOCAST_DTYPES:
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
