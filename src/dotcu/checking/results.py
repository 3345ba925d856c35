"""Trials, the pieces of work of a check, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from dotcu.checking.cases.samples import Case, case_name, short
from dotcu.errors import CompileError, FindingError
from dotcu.serialize import from_plain
from dotcu.tracebacks import describe, is_user_file, own_fault, root_of, user_line, with_frames

if TYPE_CHECKING:
    from dotcu.checking.subject import Subject


@dataclass(frozen=True, kw_only=True)
class TrialId:
    """The identity of a trial. `str()` of it is the name that `--only` takes.

    Attributes:
        overload: The qualified name: `mylib::scale_add.out`.
        kind: What is done: `call`, or the name of a check.
        dtype: Of its case, such as `float32`; empty without one.
        sample: The place of the author's sample among those of the dtype.
        variant: How the call was derived of the sample, and what is done with it; empty for the sample.
    """

    overload: str = ""
    kind: str = ""
    dtype: str = ""
    sample: int | None = None
    variant: str = ""

    @property
    def case(self) -> str:
        """The name without overload and kind: `float32-s0-n33`."""
        return case_name(self.dtype, self.sample, self.variant)

    def __str__(self) -> str:
        return "/".join(filter(None, (self.overload, self.kind, self.case)))


class _Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="outcome"):
    """The result of one check in one trial. The code that runs the trial fills in `trial` and `seconds`.

    Attributes:
        check: A name out of `catalogue.CHECKS`; that of the trial's kind if the trial leaves it empty.
        seconds: The duration of the whole trial.
    """

    check: str = ""
    trial: TrialId = TrialId()
    seconds: float = 0.0


class Passed(_Result, frozen=True, kw_only=True, tag="passed"):
    """The check found nothing wrong.

    Attributes:
        note: A remark for the reader.
        refusal: The error by which the operator refused a call that it may refuse; empty if it took the call.
        ratio: The worst error over its bound, where there is one.
    """

    note: str = ""
    refusal: str = ""
    ratio: float | None = None

    @staticmethod
    def refused(error: BaseException, *, check: str = "") -> Passed:
        """Return the result of a call that may be refused, and was, by an error that says so."""
        message = str(error).strip().partition("\n")[0]
        return Passed(check=check, refusal=f"{type(error).__name__}: {message}")


class Failed(_Result, frozen=True, kw_only=True, tag="failed"):
    """The check found something wrong.

    Attributes:
        reason: What is wrong, in one line.
        evidence: The values that show it, on lines of their own; may be empty.
        place: The line of the user's code at fault, such as `ops.cu:12`; empty if there is none.
        kind: An error's type, the kind of a finding, or `WRONG_VALUES`; empty for other faults.
        reproduce: The line that runs this case again; filled in by the code that runs the plan.
    """

    reason: str
    evidence: str = ""
    place: str = ""
    kind: str = ""
    reproduce: str = ""

    @staticmethod
    def raised(reason: str, error: BaseException, told: str = "", *, check: str = "") -> Failed:
        """Return the failure that an error is.

        Args:
            reason: Unless dotcu itself is at fault.
            told: The evidence; by default the description of the error.
        """
        if bug := own_fault(error):
            reason = f"dotcu itself is at fault: {type(bug).__name__}"
            return Failed(check=check, reason=reason, evidence=with_frames(bug), kind=type(bug).__name__)
        root = root_of(error)
        place, kind = user_line(root), type(root).__name__
        if isinstance(root, FindingError):
            finding, kind = root.finding, root.finding.kind
            place = f"{finding.file}:{finding.line}" if finding.line and is_user_file(finding.file) else ""
        elif isinstance(root, CompileError):
            errors = (each for each in root.diagnostics if each.severity == "error" and each.line)
            place = next((f"{each.file}:{each.line}" for each in errors if is_user_file(each.file)), place)
        return Failed(check=check, reason=reason, evidence=told or describe(error), place=place, kind=kind)


class Skipped(_Result, frozen=True, kw_only=True, tag="skipped"):
    """The check did not run, for a reason.

    Attributes:
        left_out: True if the time of a quick check did not suffice.
    """

    reason: str
    left_out: bool = False


WRONG_VALUES = "wrong-values"
"""The kind of a failure that is a difference from the reference's values."""

CheckResult: TypeAlias = Passed | Failed | Skipped


def result_of(values: Any) -> CheckResult:
    """Return the result that `serialize.plain` was given."""
    return from_plain(tuple[CheckResult], [values])[0]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A piece of work.

    Attributes:
        checks: The checks that it gives results of. An error that it raises counts against the first.
        run: Does the work. Yields at most one result for each check.
    """

    id: TrialId
    checks: tuple[str, ...]
    run: Callable[[], Iterable[CheckResult]]

    @property
    def overload(self) -> str:
        """The qualified name of the overload."""
        return self.id.overload

    @property
    def kind(self) -> str:
        """The kind of the trial: `call`, or the name of a check."""
        return self.id.kind


def trial_id(subject: Subject, kind: str, case: Case | None, variant: str = "") -> TrialId:
    """Return the identity of a trial of a case, or of none; a variant of the trial follows the case's own."""
    if case is None:
        return TrialId(overload=subject.name, kind=kind, variant=variant)
    return TrialId(
        overload=subject.name,
        kind=kind,
        dtype=short(case.dtype),
        sample=case.number,
        variant="-".join(filter(None, (case.variant, variant))),
    )


def trial(
    subject: Subject,
    check: str,
    look: Callable[..., CheckResult | None],
    case: Case | None = None,
    *args: Any,
    variant: str = "",
) -> Trial:
    """Return a trial of one check.

    Args:
        look: Returns its result, or None for none. It is called with the subject, the case if there is one,
            and `args`; and not called for a case that there is not.
    """
    given = (subject, *args) if case is None else (subject, case, *args)

    def run() -> Iterator[CheckResult]:
        if case is None or subject.takes(case):
            result = look(*given)
            if result is not None:
                yield result

    return Trial(id=trial_id(subject, check, case, variant), checks=(check,), run=run)


def skipped(subject: Subject, check: str, why: str) -> Trial:
    """Return a trial that does nothing but say why a check was not done."""
    return trial(subject, check, lambda subject: Skipped(reason=why))


# ---------------------------------------------------------------- how long a trial may take, in a worker

START_S = 300.0
"""The most seconds to import the target and plan its trials in a worker: imports may compile files."""

LIMIT_S = 120.0
"""The most seconds of one trial of most kinds."""


def limit_s(kind: str) -> float:
    """The most seconds of a trial of a kind: torch's compiler and gigabytes of data take longer."""
    return {"compile": 300.0, "large": 180.0}.get(kind, LIMIT_S)
