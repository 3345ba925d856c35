"""`dotcu profile`: one call of each operator under Nsight Compute, or timed where that cannot be."""

from __future__ import annotations

import linecache
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dotcu.checking.checker import resolve_device
from dotcu.checking.target import resolve
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.operator import Operator
from dotcu.profiling import lines, permission, running, tool
from dotcu.profiling.kernel import KernelProfile, profiles
from dotcu.profiling.order import Answer, Order
from dotcu.profiling.report import OperatorProfile, ProfileReport
from dotcu.profiling.running import Refusal
from dotcu.profiling.tool import Tool


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What was asked for, beside the target.

    Attributes:
        folder: Where reports and traces are kept.
    """

    shapes: str = ""
    dtype: str = ""
    device: str | None = None
    folder: Path = Path()
    seed: int = 0


def profile(target: str, wanted: Wanted | None = None) -> ProfileReport:
    """Profile the operators of a target, each overload with samples on one call, in a process of its own.

    Args:
        target: `ops.py` or `package.module`, which may have `:name`.
        wanted: By default the largest sample of the first dtype, and files in the working directory.

    Raises:
        UsageError: There is no such file, module, operator, device, dtype or folder.
        OperatorError: A call fails.
        EnvironmentFault: There is no GPU.

    Note:
        Overwrites reports of the same operator and case in the folder.
    """
    return ProfileReport(profiles=tuple(each(target, wanted or Wanted())))


def each(target: str, wanted: Wanted) -> Iterator[OperatorProfile]:
    """The profiles as they are done; `profile` has what is raised."""
    found = resolve(target, verb="profile")
    device = _device(wanted.device, target)
    if not wanted.folder.is_dir():
        raise UsageError(
            f"reports cannot be kept in {wanted.folder}: there is no such folder.\n"
            f"Type: mkdir -p {wanted.folder}"
        )
    place, ncu = target.partition(":")[0], tool.find()
    for name, operator in found:
        for overload in sampled(operator):
            yield _one(f"{place}:{name}", overload, device, wanted, ncu)


def sampled(operator: Operator) -> list[str]:
    """The overloads that have samples of their own; where none has, the default one, which tells of that."""
    names = [name for name, overload in operator.overloads.items() if overload.has_samples]
    return names or [""]


def _device(given: str | None, target: str) -> torch.device:
    lacking = (given or "cuda").startswith("cuda") and not torch.cuda.is_available()
    device = torch.device("cpu") if lacking else resolve_device(given)
    if device.type != "cuda":
        why = "torch sees none here" if lacking else f"{given} is none"
        raise EnvironmentFault(
            f"profiling needs a GPU, and {why}.\n"
            "Without one, see what a call would cost at best, and what its kernels are made of:\n"
            f"    dotcu bench {target} --device simulator\n    dotcu inspect {target}"
        )
    index: int | None = device.index
    return torch.device("cuda", torch.cuda.current_device() if index is None else index)


def _one(
    target: str, overload: str, device: torch.device, wanted: Wanted, ncu: Tool | None
) -> OperatorProfile:
    with tempfile.TemporaryDirectory(prefix="dotcu-profile-") as folder:
        order = Order(
            target=target, shapes=wanted.shapes, dtype=wanted.dtype, device=str(device), seed=wanted.seed,
            how="counters", overload=overload, answer=str(Path(folder, "answer.json")),
        )  # fmt: skip
        refusal = expected(ncu, target)
        if ncu is not None and refusal is None:
            draft = Path(folder, "draft.ncu-rep")
            found = running.collect(ncu.path, draft, order)
            if isinstance(found, Answer):
                return _counted(found, draft, order, wanted, ncu)
            refusal = explained(found, target, ncu)
        return _timed(order, wanted, refusal, Path(folder, "trace.json"))


def expected(ncu: Tool | None, target: str) -> Refusal | None:
    """Why there will be no counters, where that can be told beforehand."""
    if ncu is None:
        what = "Nsight Compute is not installed: there is no `ncu` on PATH, in CUDA_HOME or /opt/nvidia"
        return Refusal(why="missing", what=what, ways=tool.HOW_TO_GET)
    found = permission.look()
    if found.hopeless:
        return Refusal(why="refused", what=found.told, ways=permission.ways_out(target, ncu.path))
    return None


def explained(refusal: Refusal, target: str, ncu: Tool) -> Refusal:
    """A refusal of ncu's, with why and with ways out where the system did not permit it."""
    if refusal.why != "refused":
        return refusal
    return replace(refusal, what=permission.look().told, ways=permission.ways_out(target, ncu.path))


def _counted(answer: Answer, draft: Path, order: Order, wanted: Wanted, ncu: Tool) -> OperatorProfile:
    report = _keep(draft, wanted.folder / f"{_name(answer)}.ncu-rep")
    found = profiles(
        running.raw(ncu.path, report),
        lines.placed(ncu, report, running.source(ncu.path, report)),
        kernels=answer.kernels,
        native=answer.native,
        files=answer.files,
        text_of=lambda file, line: linecache.getline(file, line).strip(),
    )
    return OperatorProfile.of(
        answer,
        device=order.device,
        ncu=ncu.version,
        kernels=found,
        report=str(report),
        notes=tuple(_notes(found)),
    )


def _notes(found: tuple[KernelProfile, ...]) -> Iterator[str]:
    if len(found) == running.MOST_KERNELS:
        yield f"the call may have launched more: ncu saw the first {len(found)} kernels"
    if any(kernel.samples and not any(line.line for line in kernel.lines) for kernel in found if kernel.own):
        yield "which line an instruction comes from could not be read from the report; ncu-ui shows it"


def _timed(order: Order, wanted: Wanted, refusal: Refusal | None, trace: Path) -> OperatorProfile:
    answer = running.alone(replace(order, how="timings", trace=str(trace)))
    kept = _keep(trace, wanted.folder / f"{_name(answer)}.trace.json") if trace.is_file() else ""
    return OperatorProfile.of(
        answer,
        device=order.device,
        ncu="",
        timings=answer.timings,
        trace=str(kept),
        refusal=refusal,
    )


def _name(answer: Answer) -> str:
    """A file's name: `mylib-scale_add-float32-4096x4096`."""
    return re.sub(r"[^\w.-]+", "-", f"{answer.operator}-{answer.case}")


def _keep(draft: Path, path: Path) -> Path:
    """Put a finished file where the user looks for it.

    Raises:
        UsageError: It cannot be written there.
    """
    try:
        path.write_bytes(draft.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.\nName a folder that can: --output /tmp"
        ) from error
    return path
