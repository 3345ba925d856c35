"""Reports made by hand, for the tests of what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dotcu.checking.report import CheckedOverload, CheckReport
from dotcu.checking.trial import Failed, Outcome, Passed, Result, Skipped

NAME = "mylib::scale"


def result(check: str, outcome: Outcome, case: int = 0, overload: str = NAME) -> Result:
    return Result(overload=overload, check=check, trial=f"{overload}/call/float32-s{case}", outcome=outcome)


def named(check: str, outcome: Outcome, case: str) -> Result:
    """A result of the call with a case of that name."""
    return Result(overload=NAME, check=check, trial=f"{NAME}/call/{case}", outcome=outcome)


def passed(check: str, *, cases: int = 1, overload: str = NAME, **told: Any) -> list[Result]:
    return [result(check, Passed(**told), case, overload) for case in range(cases)]


def failed(
    check: str, *, cases: int = 1, reason: str = "it is wrong", evidence: str = "", overload: str = NAME
) -> list[Result]:
    """Shortfalls; `#` in the reason stands for the number of the case."""
    return [
        result(
            check,
            Failed(reason=reason.replace("#", str(case)), evidence=evidence, reproduce=f"again {case}"),
            case,
            overload,
        )
        for case in range(cases)
    ]


def skipped(check: str, why: str, *, cases: int = 1) -> list[Result]:
    return [result(check, Skipped(reason=why), case) for case in range(cases)]


def report(*results: Iterable[Result], **told: Any) -> CheckReport:
    """A report on one overload, unless told."""
    given: dict[str, Any] = {
        "device": "simulator",
        "level": "quick",
        "seed": 0,
        "overloads": (CheckedOverload(name=NAME, dtypes=("float32",)),),
    }
    return CheckReport(results=tuple(one for some in results for one in some), **given | told)
