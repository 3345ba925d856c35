"""What can be timed: a call of an operator, or a bare callable; each with what judges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dotcu.benchmark.referee import OverloadReferee, Referee
from dotcu.benchmark.work import Work, work_of
from dotcu.benchmark.workloads.bare import Bare
from dotcu.benchmark.workloads.refresh import Refresh, Refreshing
from dotcu.checking.subject import Subject
from dotcu.operator import Sample


class Thing(Protocol):
    """What timing needs of what is timed."""

    @property
    def referee(self) -> Referee:
        """What says whether results are right."""

    @property
    def mutates(self) -> bool:
        """Whether a call changes arguments that it reads."""

    def refresh(self, sets: Sequence[Sample]) -> Refreshing:
        """What gives sets of inputs other values."""

    def work(self, sample: Sample, result: Any) -> Work | None:
        """What a call has to do; None where nobody says."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorCalls:
    """Calls of one overload in one of its dtypes."""

    subject: Subject
    dtype: torch.dtype

    @property
    def referee(self) -> Referee:
        """The operator's reference."""
        return OverloadReferee(subject=self.subject, dtype=self.dtype)

    @property
    def mutates(self) -> bool:
        """Whether a call changes arguments that it reads; what it only writes it finds as it left it."""
        signature = self.subject.overload.signature
        return not set(signature.mutates) <= set(signature.outs)

    def refresh(self, sets: Sequence[Sample]) -> Refreshing:
        """What gives sets of inputs other values."""
        return Refresh(self.subject, sets)

    def work(self, sample: Sample, result: Any) -> Work:
        """As the operator's `work` says; without one, every tensor once."""
        return work_of(self.subject.overload, sample, result)


@dataclass(frozen=True, kw_only=True, eq=False)
class BareCalls:
    """Calls of a callable without arguments."""

    bare: Bare

    @property
    def referee(self) -> Referee:
        """The callable's reference."""
        return self.bare.referee

    @property
    def mutates(self) -> bool:
        """Not as far as anybody knows: it has no arguments."""
        return False

    def refresh(self, sets: Sequence[Sample]) -> Refreshing:
        """What spoils its outputs."""
        return self.bare.refresh

    def work(self, sample: Sample, result: Any) -> Work | None:
        """What was said of it: of so many bytes, half are read and half are written."""
        if not (self.bare.bytes or self.bare.flops):
            return None
        read = -(-self.bare.bytes // 2)
        return Work(
            read_bytes=read, written_bytes=self.bare.bytes - read, flops=self.bare.flops,
            dtype=self.bare.dtype, declared=True,
        )  # fmt: skip
