"""Reports made by hand, for the tests of what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dotcu.checking.report import CheckedOverload, CheckReport
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, TrialId

NAME = "mylib::scale"


def identity(name: str) -> TrialId:
    """The identity of a trial by its name: `mylib::scale/call/float32-s0-n9`."""
    overload, kind, case = (*name.split("/"), "")[:3]
    dtype, sample, variant = (*case.split("-", 2), "", "")[:3]
    number = int(sample.removeprefix("s")) if sample else None
    return TrialId(overload=overload, kind=kind, dtype=dtype, sample=number, variant=variant)


def named(check: str, result: CheckResult, name: str) -> CheckResult:
    """A result of a trial of that name; without an overload and a kind, of a call."""
    full = name if "/" in name else f"{NAME}/call/{name}"
    return msgspec.structs.replace(result, check=check, trial=identity(full))


def bare(result: CheckResult) -> CheckResult:
    """A result without what the code that runs a trial adds to it."""
    return msgspec.structs.replace(result, check="", trial=TrialId(), seconds=0.0)


def result(check: str, outcome: CheckResult, case: int = 0, overload: str = NAME) -> CheckResult:
    return named(check, outcome, f"{overload}/call/float32-s{case}")


def passed(check: str, *, cases: int = 1, overload: str = NAME, **told: Any) -> list[CheckResult]:
    return [result(check, Passed(**told), case, overload) for case in range(cases)]


def failed(
    check: str,
    *,
    cases: int = 1,
    reason: str = "it is wrong",
    evidence: str = "",
    place: str = "",
    kind: str = "",
    overload: str = NAME,
) -> list[CheckResult]:
    """Shortfalls; `#` in the reason stands for the number of the case."""
    return [
        result(
            check,
            Failed(
                reason=reason.replace("#", str(case)),
                evidence=evidence,
                place=place,
                kind=kind,
                reproduce=f"again {case}",
            ),
            case,
            overload,
        )
        for case in range(cases)
    ]


def skipped(check: str, why: str, *, cases: int = 1) -> list[CheckResult]:
    return [result(check, Skipped(reason=why), case) for case in range(cases)]


def report(*results: Iterable[CheckResult], **told: Any) -> CheckReport:
    """A report on one overload, unless told."""
    given: dict[str, Any] = {
        "device": "simulator",
        "level": "quick",
        "seed": 0,
        "overloads": (CheckedOverload(name=NAME, dtypes=("float32",)),),
    }
    return CheckReport(results=tuple(one for some in results for one in some), **given | told)
