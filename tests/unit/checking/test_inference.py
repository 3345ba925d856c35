"""`dotcu check --shardings`: what is found by trying, and how it is declared."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import dotcu.gallery
from dotcu.checking.inference import FoundSharding, infer, write
from dotcu.checking.subject import Subject
from dotcu.cli import main
from dotcu.operator import Operator
from helpers.derivable_operators import operator

OPS = """
import torch
from torch import Tensor

import dotcu.gallery


@dotcu.op("{namespace}::twice")
def twice(x: Tensor) -> Tensor:
    return x + x


@twice.overload("Scalar")
def times(x: Tensor, factor: float) -> Tensor:
    return x * factor


twice.reference(lambda x: 2 * x)
times.reference(lambda x, factor: x * factor)
twice.samples(lambda device, dtype: [dotcu.Sample(torch.randn(4, 5, device=device, dtype=dtype))])
times.samples(lambda device, dtype: [dotcu.Sample(torch.randn(4, 5, device=device, dtype=dtype), 3.0)])
"""
_names = (f"inferred{i}" for i in itertools.count())


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    path = tmp_path / "ops.py"
    path.write_text(OPS.replace("{namespace}", next(_names)))
    return path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("ops_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words: str) -> object:
    """Run a command in this process, and return its exit code."""
    with pytest.raises(SystemExit) as caught:
        main.main(words)
    return caught.value.code


def found(op: Operator) -> FoundSharding:
    (one,) = infer([Subject(overload=op, device=torch.device("cpu"))])
    return one


def test_what_holds_is_found_and_said_in_the_shortest_words() -> None:
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def norm(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return x / x.norm(dim=-1, keepdim=True) * weight, x.norm(dim=-1)

    factors = dotcu.Sample(torch.randn(4, 5), torch.randn(5, 6))
    of_product = found(operator(product, factors, reference=product))
    assert set(of_product.holds) == {"a:0 -> 0", "b:1 -> 1", "a:1 b:0 -> sum"}
    samples = [dotcu.Sample(torch.randn(*shape, 7), torch.randn(7)) for shape in ((4,), (3, 5))]
    of_norm = found(operator(norm, *samples, reference=norm))
    assert of_norm.holds == ("x:rows -> rows, rows",)
    assert "nothing; add sharding=" in str(of_norm)


def test_what_arguments_decide_is_told_by_the_number_of_samples() -> None:
    def along(x: Tensor, dim: int) -> Tensor:
        return x.softmax(dim)

    samples = [dotcu.Sample(torch.randn(4, 5), dim) for dim in (0, 1, 1)]
    one = found(operator(along, *samples, reference=along))
    assert one.holds == ()
    assert one.sometimes == {"x:1 -> 1": (1, 3), "x:0 -> 0": (2, 3)}
    assert "write a function" in one.suggestion


def test_a_declared_function_that_fails_is_reported_beside_what_holds() -> None:
    def twice(x: Tensor) -> Tensor:
        return 2 * x

    op = operator(twice, dotcu.Sample(torch.randn(4, 5)), reference=twice)
    op.sharding(lambda x: ["x:0 -> 0"] * x.numel())
    one = found(op)
    assert one.holds == ("elementwise",)
    (broken,) = one.broken
    assert broken.startswith("the function raises AttributeError: a function of shardings asks")


def test_equal_parts_are_asked_for_where_others_fail() -> None:
    def of_heads(q: Tensor, k: Tensor) -> Tensor:
        if q.shape[0] % k.shape[0]:
            raise ValueError("heads of q are a multiple of those of k")
        return q + k.repeat_interleave(q.shape[0] // k.shape[0], 0)

    sample = dotcu.Sample(torch.randn(8, 3), torch.randn(4, 3))
    one = found(operator(of_heads, sample, reference=of_heads))
    assert "even q:0 k:0 -> 0" in one.holds


def test_the_command_prints_what_holds_and_writes_it_into_the_source(
    ops: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("check", str(ops), "--shardings", "--write") == 0
    said = capsys.readouterr()
    assert "holds        elementwise" in said.out
    assert "review them" in said.err
    text = ops.read_text()
    assert '::twice", sharding="elementwise")' in text
    assert 'return x * factor\n\n\ntimes.sharding("elementwise")\n' in text
    ops.write_text(re.sub(r'"\w+::', f'"{next(_names)}::', text))
    twice = loaded(ops).twice
    assert [o.declared_sharding for o in twice.overloads.values()] == ["elementwise", "elementwise"]


def test_a_wrong_declaration_ends_the_command_with_1_and_its_name(
    ops: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ops.write_text(ops.read_text().replace('::twice")', '::twice", sharding="x:0 -> sum")'))
    assert run("check", f"{ops}:twice", "--shardings") == 1
    assert "WRONG        x:0 -> sum: over 2 ranks" in capsys.readouterr().out


def test_write_alone_is_refused(
    ops: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("check", str(ops), "--write") == 2
    assert "--write goes with --shardings" in capsys.readouterr().err


def test_an_overload_of_a_changed_file_is_not_written(ops: Path) -> None:
    twice = loaded(ops).twice
    ops.write_text("\n" + ops.read_text())
    with pytest.raises(dotcu.errors.UsageError, match="has changed since twice was defined"):
        write(twice, ("elementwise",))


def test_an_operator_that_communicates_itself_is_not_tried() -> None:
    assert found(dotcu.gallery.all_reduce).reason == "it communicates over its group_name"
    assert not found(dotcu.gallery.all_reduce).holds
