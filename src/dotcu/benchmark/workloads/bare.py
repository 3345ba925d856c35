"""A bare kernel: a callable that makes one call, on inputs of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dotcu.benchmark.referee import BareReferee
from dotcu.benchmark.workloads.contenders import Baseline, Contender, contenders_of_bare
from dotcu.benchmark.workloads.workload import Workload
from dotcu.operator import Sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Bare:
    """What is known of a callable that is timed.

    Attributes:
        name: Of its row; that of the function, say.
        device: Where it runs.
        reference: Gives what it is to give; may be left out, and then nothing is verified.
        outputs: The tensors that it only writes; none where it returns them.
        bytes: That a call moves, 0 where nobody says; and so for `flops`.
        dtype: In which it does these, by name.
    """

    name: str
    function: Callable[[], Any]
    device: torch.device
    reference: Callable[[], Any] | None = None
    outputs: Sequence[Tensor] = ()
    bytes: int = 0
    flops: int = 0
    dtype: str = ""

    @property
    def workload(self) -> Workload:
        """Its only case, which has no arguments."""
        return Workload(
            name="as given",
            dtype=None,
            shapes=(),
            elements=max((tensor.numel() for tensor in self.outputs), default=0),
            make=lambda seed: Sample(),
            input_bytes=0,
            result_bytes=self.bytes,
        )

    @property
    def referee(self) -> BareReferee:
        """What judges it."""
        return BareReferee(
            device=self.device,
            reference=self.reference,
            outputs=self.outputs,
            added=max(self.flops, self.bytes),
        )

    @property
    def refresh(self) -> Poison:
        """What goes before each call."""
        return Poison(self.outputs)

    def contenders(self, against: Sequence[Baseline] = ()) -> list[Contender]:
        """The callable, and what it is compared with: callables without arguments, too.

        Raises:
            UsageError: A baseline is unknown.
        """
        return contenders_of_bare(self.name, self.function, self.reference, against)


class Poison:
    """Overwrites what a bare kernel writes before each call, so that a call which writes nothing shows."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._outputs = outputs

    @property
    def changes(self) -> bool:
        """No: nobody knows what a bare kernel reads."""
        return False

    def __call__(self, sample: Sample, turn: int) -> None:
        """Overwrite it, on torch's current stream."""
        for tensor in self._outputs:
            tensor.fill_(torch.nan if tensor.is_floating_point() or tensor.is_complex() else 85)

    def turn_of(self, sample: Sample) -> int:
        """None is like another."""
        return 0

    def inputs(self, turn: int) -> Sample:
        """There are none."""
        return Sample()
