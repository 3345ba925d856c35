"""What profiling found: a value that prints itself, and has a plain form for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from dotcu import report_base
from dotcu.profiling import rendering
from dotcu.profiling.kernel import KernelProfile
from dotcu.profiling.order import Answer, Timing
from dotcu.profiling.running import Refusal

VERSION = 1
"""Of the JSON form; docs/profile.md has its keys."""


@dataclass(frozen=True, kw_only=True)
class OperatorProfile:
    """One call of one operator.

    Attributes:
        device: As torch names it.
        ncu: The version of Nsight Compute; empty where it is not used or does not tell.
        kernels: In the order of their launches; empty without counters.
        timings: Where there are no counters.
        report: The `.ncu-rep` file; empty without counters.
        trace: The Chrome trace; empty with counters.
        refusal: Why there are no counters; None where there are.
        notes: What else there is to say.
    """

    operator: str
    case: str
    sample: str
    gpu: str
    device: str
    ncu: str
    kernels: tuple[KernelProfile, ...] = ()
    timings: tuple[Timing, ...] = ()
    report: str = ""
    trace: str = ""
    refusal: Refusal | None = None
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(answer: Answer, **more: Any) -> OperatorProfile:
        """A profile of a call that was made."""
        return OperatorProfile(
            operator=answer.operator, case=answer.case, sample=answer.sample, gpu=answer.gpu, **more
        )


@dataclass(frozen=True, kw_only=True)
class ProfileReport(report_base.Report):
    """What `dotcu profile` found. `str()` of it is what the command prints."""

    profiles: tuple[OperatorProfile, ...]

    @property
    def counted(self) -> bool:
        """Whether every operator has figures of Nsight Compute's."""
        return all(profile.refusal is None for profile in self.profiles)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values; its `version` changes when their meaning does."""
        return {
            "version": VERSION,
            "counted": self.counted,
            "profiles": [report_base.values(_profile(profile)) for profile in self.profiles],
        }

    def __rich__(self) -> RenderableType:
        return rendering.table(self)


def _profile(profile: OperatorProfile) -> dict[str, Any]:
    kernels = [
        asdict(kernel) | {"bound": kernel.bound, "limiters": kernel.limiters} for kernel in profile.kernels
    ]
    return asdict(profile) | {"kernels": kernels}
