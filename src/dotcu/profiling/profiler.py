"""`dotcu profile`: one call of each operator under Nsight Compute, or timed if that is not possible."""

from __future__ import annotations

import linecache
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from dotcu.checking.target import resolve, resolve_device
from dotcu.errors import EnvironmentFault, UsageError, quoted
from dotcu.files import read_file
from dotcu.operator import Operator
from dotcu.profiling import ncu
from dotcu.profiling.report import KernelProfile, OperatorProfile, ProfileReport, kernel_profiles
from dotcu.profiling.worker import ProfiledCall, ProfileRequest


def profile(
    target: str,
    *,
    shapes: str = "",
    dtype: str = "",
    device: str | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> ProfileReport:
    """Profile the operators of a target, each overload with samples on one call, in its own process.

    Args:
        target: `ops.py` or `package.module`, which may have `:name`.
        shapes: As `--shapes` takes them; by default the largest sample.
        dtype: By default the operator's first.
        device: As torch names it; by default the current GPU.
        folder: For reports and traces; by default the working directory.
        seed: Of random inputs.

    Raises:
        UsageError: There is no such file, module, operator, device, dtype or folder.
        OperatorError: A call fails.
        EnvironmentFault: There is no GPU.

    Note:
        Overwrites reports of the same operator and case in the folder.
    """
    operators = resolve(target, verb="profile")
    gpu, folder = _gpu(device, target), folder or Path()
    if not folder.is_dir():
        raise UsageError(
            f"reports cannot be saved in {folder}: there is no such folder.\nType: mkdir -p {quoted(folder)}"
        )
    file, tool = target.partition(":")[0], ncu.find()
    profiles = []
    for name, operator in operators:
        for overload in sampled(operator):
            request = ProfileRequest(
                target=f"{file}:{name}", shapes=shapes, dtype=dtype, device=str(gpu), seed=seed,
                mode="counters", overload=overload, reply="",
            )  # fmt: skip
            profiles.append(_profile(request, folder, tool))
    return ProfileReport(profiles=tuple(profiles))


def sampled(operator: Operator) -> list[str]:
    """Return the overloads that have samples of their own; the default one, which reports it, without any."""
    names = [name for name, overload in operator.overloads.items() if overload.has_samples]
    return names or [""]


def _gpu(device: str | None, target: str) -> torch.device:
    missing = (device or "cuda").startswith("cuda") and not torch.cuda.is_available()
    gpu = torch.device("cpu") if missing else resolve_device(device)
    if gpu.type != "cuda":
        why = "torch sees none here" if missing else f"{device} is not one"
        raise EnvironmentFault(
            f"profiling needs a GPU, and {why}.\n"
            "Without one, see bounds on the time of a call, and the code of its kernels:\n"
            f"    dotcu bench {quoted(target)} --device simulator\n    dotcu inspect {quoted(target)}"
        )
    index: int | None = gpu.index
    return torch.device("cuda", torch.cuda.current_device() if index is None else index)


def _profile(request: ProfileRequest, folder: Path, tool: Path | None) -> OperatorProfile:
    with tempfile.TemporaryDirectory(prefix="dotcu-profile-") as temporary:
        request = replace(request, reply=str(Path(temporary, "reply.json")))
        refusal = ncu.expected_refusal(request.target, tool)
        if tool is not None and refusal is None:
            draft = Path(temporary, "draft.ncu-rep")
            call = ncu.collect(tool, draft, request)
            if isinstance(call, ProfiledCall):
                return _counted(call, _keep(draft, folder / f"{_name(call)}.ncu-rep"), request, tool)
            refusal = ncu.refused(request.target, tool) if call.kind == "refused" else call
        trace = Path(temporary, "trace.json")
        call = ncu.run_without_ncu(replace(request, mode="timings", trace=str(trace)))
        kept = _keep(trace, folder / f"{_name(call)}.trace.json") if trace.is_file() else ""
        return OperatorProfile(
            operator=call.operator, case=call.case, sample=call.sample, gpu=call.gpu, device=request.device,
            timings=call.timings, trace=str(kept), missing_counters=refusal,
        )  # fmt: skip


def _counted(call: ProfiledCall, report: Path, request: ProfileRequest, tool: Path) -> OperatorProfile:
    kernels = kernel_profiles(
        ncu.launches(tool, report),
        ncu.located(tool, report, ncu.instructions(tool, report)),
        kernels=call.kernels,
        native=call.native,
        files=call.files,
        text_of=lambda file, line: linecache.getline(file, line).strip(),
    )
    return OperatorProfile(
        operator=call.operator, case=call.case, sample=call.sample, gpu=call.gpu, device=request.device,
        ncu=ncu.version_of(tool), kernels=kernels, report=str(report), notes=tuple(_notes(kernels)),
    )  # fmt: skip


def _notes(kernels: tuple[KernelProfile, ...]) -> Iterator[str]:
    if len(kernels) == ncu.MAX_KERNELS:
        yield f"the call may have launched more: ncu saw the first {len(kernels)} kernels"
    if any(one.samples and not any(line.line for line in one.lines) for one in kernels if one.own):
        yield "which line an instruction comes from could not be read from the report; ncu-ui shows it"


def _name(call: ProfiledCall) -> str:
    """Return a file's name: `mylib-scale_add-float32-4096x4096`."""
    return re.sub(r"[^\w.-]+", "-", f"{call.operator}-{call.case}")


def _keep(draft: Path, path: Path) -> Path:
    """Copy a finished file to where the user looks for it.

    Raises:
        UsageError: It cannot be written there.
    """
    try:
        path.write_bytes(read_file(draft))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.\nName a writable folder: --output /tmp"
        ) from error
    return path
