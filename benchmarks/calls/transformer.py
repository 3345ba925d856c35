"""A language model, and what trains it: with functions of dotcu's gallery, or with torch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calls import gradients
from dotcu import gallery

EAGER, COMPILED, CAPTURED = "eager", "torch.compile", "CUDA graph"
MODES = (EAGER, COMPILED, CAPTURED)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The model's sizes, and those of its batch.

    Attributes:
        tied: Whether the head's weight is that of the embedding.
        rate: The learning rate.
    """

    layers: int = 6
    width: int = 256
    heads: int = 4
    vocabulary: int = 8192
    batch: int = 2
    tokens: int = 128
    tied: bool = False
    rate: float = 1e-3


GPT2 = Sizes(layers=12, width=768, heads=12, vocabulary=50304, batch=16, tokens=1024, tied=True, rate=1e-4)
"""GPT-2 of 124 million parameters, whose vocabulary of 50,257 is padded to a multiple of 64, as usual."""


def plain_linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> Tensor:
    product = F.linear(x, weight, bias)
    return product if residual is None else residual + product


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@dataclass(frozen=True, kw_only=True)
class Functions:
    """The functions that models differ in."""

    name: str
    layer_norm: Callable[[Tensor, Tensor, Tensor], Tensor]
    cross_entropy: Callable[[Tensor, Tensor], Tensor]
    linear: Callable[..., Tensor] = plain_linear
    attention: Callable[[Tensor, Tensor, Tensor], Tensor] = causal_attention


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> Tensor:
    other = None if residual is None else residual.flatten(0, 1)
    product: Tensor = gallery.matmul(x.flatten(0, 1), weight.T, bias, other)
    return product.unflatten(0, x.shape[:2])


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, without the log-sum-exp."""
    result: Tensor = gallery.attention(q, k, v, True)[0]
    return result


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


OWN = Functions(name="dotcu", layer_norm=gallery.layer_norm, cross_entropy=gradients.cross_entropy)
TORCH = Functions(name="torch", layer_norm=gradients.layer_norm, cross_entropy=cross_entropy)
GALLERY = replace(OWN, name="dotcu with matmul and attention", linear=linear, attention=attention)


class Norm(nn.Module):
    """Layer norm, by one of the functions."""

    def __init__(self, sizes: Sizes, functions: Functions) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(sizes.width))
        self.bias = nn.Parameter(torch.zeros(sizes.width))
        self.function = functions.layer_norm

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


class Block(nn.Module):
    """Causal attention, then two layers with GELU between them, each after a norm and beside a residual."""

    def __init__(self, sizes: Sizes, functions: Functions) -> None:
        super().__init__()
        self.heads, width = sizes.heads, sizes.width
        self.before_attention, self.before_mlp = Norm(sizes, functions), Norm(sizes, functions)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.functions = functions

    def forward(self, x: Tensor) -> Tensor:
        x = self.attend(self.before_attention(x), x)
        return self.through(self.down, F.gelu(self.through(self.up, self.before_mlp(x))), x)

    def through(self, layer: nn.Linear, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Apply a linear layer, by one of the functions, and add a residual."""
        return self.functions.linear(x, layer.weight, layer.bias, residual)

    def attend(self, x: Tensor, residual: Tensor) -> Tensor:
        """Let each token look at those before it, and add a residual."""
        q, k, v = self.through(self.qkv, x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = self.functions.attention(q, k, v).transpose(1, 2).flatten(2)
        return self.through(self.project, attended, residual)


class Transformer(nn.Module):
    """Tokens and those that follow them, (B, T) each, to the loss."""

    def __init__(self, sizes: Sizes, functions: Functions) -> None:
        super().__init__()
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.place = nn.Parameter(0.02 * torch.randn(sizes.tokens, sizes.width))
        self.blocks = nn.Sequential(*(Block(sizes, functions) for _ in range(sizes.layers)))
        self.norm = Norm(sizes, functions)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        if sizes.tied:
            self.head.weight = self.embed.weight
            nn.init.normal_(self.head.weight, std=0.02)
        self.functions = functions

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        x = self.blocks(self.embed(tokens) + self.place)
        logits = self.functions.linear(self.norm(x), self.head.weight, None)
        return self.functions.cross_entropy(logits, following)


class Trainer:
    """A model and its optimizer, and one batch that it is trained on again and again.

    All trainers of the same sizes begin with the same weights and have the same batch.
    """

    def __init__(self, functions: Functions, mode: str, device: torch.device, sizes: Sizes) -> None:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            model = Transformer(sizes, functions)
            text = torch.randint(sizes.vocabulary, (sizes.batch, sizes.tokens + 1))
        self.parameters = list(model.to(device, torch.bfloat16).parameters())
        self.beginning = [parameter.detach().clone() for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=sizes.rate, fused=True, capturable=mode == CAPTURED
        )
        self.batch = text[:, :-1].to(device), text[:, 1:].to(device)
        self.loss_of: Callable[..., Tensor] = model
        if mode == COMPILED:
            self.loss_of = compiled(model, functions.name)
        self.step: Callable[[], Tensor] = self.take
        if mode == CAPTURED:
            self.step = captured(self.take)

    def take(self) -> Tensor:
        """Take one step; give the loss before it."""
        loss = self.loss_of(*self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def begin(self) -> None:
        """Go back to the first weights, in the same memory."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.beginning, strict=True):
                parameter.copy_(value)
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def losses(self, steps: int) -> list[float]:
        """Take some steps from the first weights on; give the loss before each."""
        self.begin()
        return [self.step().item() for _ in range(steps)]


def compiled(model: nn.Module, name: str) -> Callable[..., Tensor]:
    """Compile a model, apart from others of its class."""

    def loss_of(tokens: Tensor, following: Tensor) -> Any:
        return model(tokens, following)

    # Dynamo keeps what it compiled by the code object; models that share one would be tried in turn.
    loss_of.__code__ = loss_of.__code__.replace(co_name=f"loss_of_{name}")
    return torch.compile(loss_of, fullgraph=True, dynamic=False)


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Capture a step in a CUDA graph; three before it, on a stream aside, compile and allocate."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay
