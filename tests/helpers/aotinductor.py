"""AOTInductor packages whose model calls an operator, and the program without Python that runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dotcu.cpp import tools

_SOURCE = Path(__file__).parents[1] / "unit" / "shipping" / "operator_library" / "aoti.cpp"
_EXPORT = """
import sys
import torch
sys.path.insert(0, {root!r})
import {module}


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.{module}.{name}(x, 3.0) + 1


exported = torch.export.export(Model(), (torch.ones(300, device={device!r}),))
torch._inductor.aoti_compile_and_package(exported, package_path={path!r})
"""


def package(root: Path, operator: str, folder: Path, *, device: str) -> Path:
    """Export a model, 3 x + 1 by an operator of a project whose package has the operator's namespace."""
    module, _, name = operator.partition("::")
    path = folder / "model.pt2"
    text = _EXPORT.format(root=str(root), module=module, name=name, device=device, path=str(path))
    subprocess.run([sys.executable, "-c", text], check=True)
    return path


def program(compiler: tools.HostCompiler, folder: Path) -> Path:
    """Compile aoti.cpp against torch's libraries."""
    parts = tools.find_torch()
    library = parts.folder / "lib"
    cuda = ["-ltorch_cuda", "-lc10_cuda"] if (library / "libtorch_cuda.so").exists() else []
    words = [
        *compiler.words, *parts.compile_words(), "-O0", "-o", folder / "aoti", _SOURCE, f"-L{library}",
        f"-Wl,-rpath,{library}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", *cuda, "-ldl",
    ]  # fmt: skip
    subprocess.run([str(word) for word in words], check=True)
    return folder / "aoti"
