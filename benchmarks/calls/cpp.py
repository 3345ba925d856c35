"""The C++ contenders: cpp/, built by torch.utils.cpp_extension for this GPU alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from calls.work import (
    ALPHA,
    CPP,
    DIGITS,
    LAUNCHES,
    WEIGHTS,
    Call,
    Contender,
    Inputs,
    Once,
    scaled,
    scaled_by_tensor,
    summed,
    weighed,
)

FOLDER = Path(__file__).parent / "cpp"
FLAGS = ["-O3", "-DNDEBUG"]  # what setuptools passes; cpp_extension.load on its own does not optimize

CPP_RECORDING = "C++ with autograd, recording"
CPP_NO_GRAD = "C++ with autograd, no_grad"
CPP_INFERENCE = "C++ TORCH_LIBRARY, inference_mode"
CPP_THREE = "C++ TORCH_LIBRARY, 3 arguments"
CPP_TEN = "C++ TORCH_LIBRARY, 10 arguments"
CPP_EIGHT = "C++ TORCH_LIBRARY, 8 launches"
CPP_CLONE = "C++ TORCH_LIBRARY, clone and launch"
CPP_READ = "C++ TORCH_LIBRARY, read a value and launch"


def build() -> Any:
    """Compile and load; a build that torch has kept is loaded at once."""
    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
    sources = [str(FOLDER / name) for name in ("operators.cpp", "operators.cu")]
    module = cpp_extension.load("call_overhead_cpp", sources, extra_cflags=FLAGS, extra_cuda_cflags=FLAGS)
    torch.library.register_fake("call_overhead_cpp::add", lambda a, b: torch.empty_like(a))
    return module


module = Once(build)


def operator(name: str) -> Any:
    """An operator of the extension, as `torch.ops` has it."""
    module()
    return getattr(torch.ops.call_overhead_cpp, name)


def packet(name: str, inputs: Inputs) -> Call:
    """A call of torch.ops.call_overhead_cpp.NAME on two tensors."""
    op, a, b = operator(name), inputs.a, inputs.b
    return lambda: op(a, b)


def overload(inputs: Inputs) -> Call:
    """A call of torch.ops.call_overhead_cpp.add.default."""
    op, a, b = operator("add").default, inputs.a, inputs.b
    return lambda: op(a, b)


def pybind(inputs: Inputs) -> Call:
    """A call of the same function, past the dispatcher."""
    op, a, b = module().add, inputs.a, inputs.b
    return lambda: op(a, b)


def with_leaf(inputs: Inputs) -> Call:
    """A call of the operator that has an autograd kernel, on a tensor that requires a gradient."""
    op, a, b = operator("add_autograd"), inputs.leaf, inputs.b
    return lambda: op(a, b)


def three(inputs: Inputs) -> Call:
    """A call with three arguments."""
    op, a, b = operator("scale_add"), inputs.a, inputs.b
    return lambda: op(a, b, ALPHA)


def ten(inputs: Inputs) -> Call:
    """A call with ten arguments."""
    op, a, b, c = operator("weigh"), inputs.a, inputs.b, inputs.c
    (i, j, k, l), (x, y, z) = DIGITS, WEIGHTS  # noqa: E741
    return lambda: op(a, b, c, i, j, k, l, x, y, z)


def reading(inputs: Inputs) -> Call:
    """A call that reads a value of a tensor."""
    op, a, b, alpha = operator("scale_add_by_tensor"), inputs.a, inputs.b, inputs.alpha
    return lambda: op(a, b, alpha)


def contender(name: str, make: Callable[[Inputs], Call], **more: Any) -> Contender:
    return Contender(name=name, make=make, **more)


CONTENDERS = (
    contender(CPP, partial(packet, "add")),
    contender("C++ TORCH_LIBRARY, .default", overload),
    contender("C++ TORCH_LIBRARY, no checks, no guard", partial(packet, "add_bare")),
    contender("C++ TORCH_LIBRARY, same with empty_cuda", partial(packet, "add_barest")),
    contender("C++ by pybind11", pybind),
    contender(CPP_RECORDING, with_leaf, records=True),
    contender(CPP_NO_GRAD, with_leaf, mode=torch.no_grad),
    contender(CPP_INFERENCE, partial(packet, "add"), mode=torch.inference_mode),
    contender(CPP_THREE, three, want=scaled),
    contender(CPP_TEN, ten, want=weighed),
    contender(
        CPP_EIGHT, partial(packet, "add_eight_times"), want=partial(summed, LAUNCHES), launches=LAUNCHES
    ),
    contender(CPP_CLONE, partial(packet, "add_to_clone"), launches=2),
    contender(CPP_READ, reading, want=scaled_by_tensor, launches=2),
)
