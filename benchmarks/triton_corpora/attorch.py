"""Cases of attorch: modules of torch.nn, written in Triton."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from benchmarks.triton_corpora.case import Case
from torch import Tensor, nn

SOURCE = "BobMcDear/attorch"
FOLDER = "."


def module(
    name: str, *inputs: Callable[[], Tensor], settings: tuple[Any, ...] = (), tolerance: float = 1e-4
) -> Case:
    """Return the case of a module: called on inputs, with parameters that both sides share.

    Args:
        name: Its name in attorch and in torch.nn.
        inputs: Each returns an input of its call.
        settings: The arguments of its constructor.
        tolerance: As in Case.
    """

    def called(package: str, device: str, *args: Any) -> list[Tensor]:
        torch.manual_seed(1)
        layer = getattr(import_module(package), name)(*settings)
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
        layer.to(device)
        result = layer(*args)
        parameters = list(layer.parameters())
        if not parameters:
            return [result]
        upstream = torch.linspace(-1, 1, result.numel()).view(result.shape).to(device)
        return [result, *torch.autograd.grad(result, parameters, upstream, retain_graph=True)]

    return Case(
        name=name,
        inputs=lambda: [make() for make in inputs],
        library=lambda *args: called("attorch", "cuda", *args),
        plain=lambda *args: called("torch.nn", "cpu", *args),
        tolerance=tolerance,
        cuda=True,
    )


def x(*sizes: int) -> Callable[[], Tensor]:
    """Return what makes normal values that require a gradient."""
    return lambda: torch.randn(sizes or (7, 133)).requires_grad_()


def labels() -> Tensor:
    """Return seven labels of 33."""
    return torch.randint(0, 33, (7,))


ACTIVATIONS = ("Sigmoid", "LogSigmoid", "Tanh", "ReLU", "GELU", "SiLU", "ReLU6", "Hardsigmoid", "Hardtanh",
               "Hardswish", "SELU", "Mish", "Softplus", "Softsign", "Tanhshrink", "LeakyReLU", "ELU", "CELU",
               "Hardshrink", "Softshrink")  # fmt: skip

CASES = (
    *(module(name, x()) for name in ACTIVATIONS),
    module("Softmax", x(), settings=(1,)),
    module("LogSoftmax", x(), settings=(1,)),
    module("Softmin", x(), settings=(1,)),
    module("LayerNorm", x(), settings=(133,)),
    module("RMSNorm", x(), settings=(133, 1e-5)),
    module("BatchNorm1d", x(7, 33), settings=(33,), tolerance=1e-3),
    module("BatchNorm2d", x(2, 6, 5, 7), settings=(6,), tolerance=1e-3),
    module("GLU", x(7, 128)),
    module("Conv1d", x(2, 3, 17), settings=(3, 4, 3), tolerance=1e-2),
    module("Conv2d", x(2, 3, 9, 9), settings=(3, 4, 3), tolerance=1e-2),
    module("AvgPool1d", x(2, 3, 16), settings=(2,), tolerance=1e-2),
    module("AvgPool2d", x(2, 3, 8, 8), settings=(2,), tolerance=1e-2),
    module("CrossEntropyLoss", x(7, 33), labels),
    module("NLLLoss", x(7, 33), labels),
    module("MSELoss", x(), x()),
    module("L1Loss", x(), x()),
    module("SmoothL1Loss", x(), x()),
    module("HuberLoss", x(), x()),
)
