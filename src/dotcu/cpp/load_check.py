"""A worker loads a new library before this process does: torch ends a process for a wrong registration."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dotcu.errors import CompileError
from dotcu.files import read_text
from dotcu.workers import Worker, WorkerCrash

NAMESPACE = re.compile(r"^[ \t]*(?:STABLE_)?TORCH_LIBRARY\s*\(\s*(\w+)\s*,", re.MULTILINE)
_KEY = re.compile(r"^[ \t]*(?:STABLE_)?TORCH_LIBRARY_IMPL\s*\(\s*\w+\s*,\s*(\w+)\s*,", re.MULTILINE)
_DISPATCH_KEYS = {
    "CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "Meta",
    "PrivateUse1", "PrivateUse2", "PrivateUse3", "QuantizedCPU", "QuantizedCUDA", "SparseCPU",
    "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA", "NestedTensorCPU", "NestedTensorCUDA", "MkldnnCPU",
    "Vulkan", "BackendSelect", "Python", "Functionalize", "Conjugate", "Negative", "ZeroTensor",
    "ADInplaceOrView", "Autograd", "AutogradOther", "AutogradCPU", "AutogradCUDA", "AutogradXLA",
    "AutogradMPS", "AutogradXPU", "AutogradMeta", "AutogradHPU", "AutogradPrivateUse1",
    "AutogradNestedTensor", "Tracer", "AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS",
    "AutocastPrivateUse1", "FuncTorchBatched", "FuncTorchVmapMode", "Batched", "CatchAll",
    "CompositeImplicitAutograd", "CompositeImplicitAutogradNestedTensor", "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional", "Undefined",
}  # fmt: skip
"""The keys that are registered for. Source: c10/core/DispatchKey.h, torch 2.13."""

_LIMIT_S = 120.0
_WHAT = re.compile(r"what\(\):\s*(.+?)(?=\s*(?:Exception raised from|frame #\d|\(originally)|\Z)", re.DOTALL)
"""The message of the exception that ended a process."""

_FRAME = re.compile(
    r"^(?:frame #\d+|Exception raised from|Fatal Python error| *File \"[^\"]+\", line).*\n?", re.MULTILINE
)


def require_loadable(worker: Worker, library: Path, sources: Sequence[Path]) -> None:
    """Have a worker load a library after those that this process has loaded by other means.

    Args:
        worker: Runs `load_in_worker` of `load`.
        sources: Those that the library was compiled from.

    Raises:
        CompileError: The worker died of it.
    """
    torch: Any = sys.modules.get("torch")
    others = sorted(torch.ops.loaded_libraries) if torch is not None else []
    worker.send([*(other for other in others if Path(other).name != library.name), str(library)])
    taken: list[str] | None = None
    try:
        taken = worker.receive(_LIMIT_S)
        worker.receive(_LIMIT_S)
    except WorkerCrash as crash:
        if taken is not None:  # else it died of another one, or could not be started
            raise _refusal(library.name, crash, sources, taken) from None


def _refusal(name: str, crash: WorkerCrash, sources: Sequence[Path], taken: Sequence[str]) -> CompileError:
    match = _WHAT.search(crash.evidence)
    said = (match[1] if match else _FRAME.sub("", crash.evidence)).strip()
    texts = [read_text(path, "replace") for path in sources]
    hints = "".join(f"{hint}\n" for text in texts for hint in _hints(text, taken))
    return CompileError(
        f"{name} compiles, but Python crashes when it loads it: {crash.reason}.\n"
        + (f"{said}\n" if said else "")
        + hints
        + "Correct its registrations: schemas, names, dispatch keys, namespaces. A global variable whose "
        "constructor throws has the same effect.",
        log=crash.evidence,
    )


def _hints(text: str, taken: Sequence[str]) -> Iterator[str]:
    for key in sorted(set(_KEY.findall(text)) - _DISPATCH_KEYS):
        by_name = {known.lower(): known for known in sorted(_DISPATCH_KEYS)}
        near = difflib.get_close_matches(key.lower(), by_name, n=3) or ["cpu", "cuda", "meta"]
        yield f"{key} is no dispatch key of torch. Near it: {', '.join(by_name[name] for name in near)}."
    for name in sorted(set(NAMESPACE.findall(text)).intersection(taken)):
        yield (
            f"The namespace {name} has operators already, and the macro makes a new one: choose another, "
            "or add to that one by the macro whose name ends in _FRAGMENT."
        )
