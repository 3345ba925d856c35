"""Which cases a level tries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.derived import EVERY_SIZE, bases, choose, few_dtypes
from dotcu.checking.catalogue import Level
from helpers.derivable_operators import operator, subject

F32, F64, F16, I8 = torch.float32, torch.float64, torch.float16, torch.int8


def added(a: Tensor, b: Tensor, *, block_size: int = 256) -> Tensor:
    return a + b


def reference(a: Tensor, b: Tensor, **launch: int) -> Tensor:
    return a + b


def pair(*shape: int) -> dotcu.Sample:
    return dotcu.Sample(torch.ones(shape), torch.ones(shape))


def names(level: Level, *samples: dotcu.Sample, dtypes: tuple[torch.dtype, ...] = (F32,)) -> list[str]:
    made = operator(added, *samples, reference=reference, dtypes=dtypes)
    return [case.name for case in choose(subject(made, level))]


def test_the_given_samples_are_tried_in_every_dtype_at_every_level() -> None:
    for level in Level:
        tried = set(names(level, pair(3), pair(), pair(0), dtypes=(F32, F64, F16)))
        assert tried >= {f"{dtype}-s{i}" for dtype in ("float32", "float64", "float16") for i in range(3)}


def test_quick_derives_from_the_first_and_the_narrowest_dtype() -> None:
    assert few_dtypes((F32, F64, F16, I8, torch.uint8)) == (F32, I8)
    assert few_dtypes((I8,)) == (I8,)
    tried = names(Level.QUICK, pair(3), dtypes=(F32, F64, F16))
    assert {name.split("-")[0] for name in tried if "-n33" in name} == {"float32", "float16"}


def test_quick_tries_the_faults_that_are_common() -> None:
    tried = names(Level.QUICK, pair(40))
    for word in ("n0", "n1", "n31", "n32", "n33", "0d", "sliced", "offset-1", "nan", "inf", "minus-zero"):
        assert f"float32-s0-{word}" in tried
    assert {"float32-s0-2d-transposed", "float32-s0-4d-channels-last"} <= set(tried)


def test_standard_derives_in_every_dtype() -> None:
    tried = names(Level.STANDARD, pair(3), dtypes=(F32, F64, F16))
    assert {name.split("-")[0] for name in tried if "-n33" in name} == {"float32", "float64", "float16"}


def test_below_full_each_dtype_that_is_derived_in_has_every_case() -> None:
    level = Level.STANDARD
    tried = names(level, pair(40, 24), dtypes=(F32, F16))
    words = {
        dtype: {n.partition("-")[2] for n in tried if n.startswith(dtype)} for dtype in ("float32", "float16")
    }
    assert words["float32"] == words["float16"] == {n.partition("-")[2] for n in names(level, pair(40, 24))}
    assert {"s0-40as257", "s0-24as1009"} <= words["float32"]


def test_full_tries_a_second_block_in_each_dtype() -> None:
    dtypes = (F32, F64, F16, torch.bfloat16)
    tried = names(Level.FULL, pair(40, 24), dtypes=dtypes)
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        assert {f"{dtype}-s0-40as257", f"{dtype}-s0-24as257"} <= set(tried)


def test_full_tries_every_offset_and_each_argument_alone() -> None:
    tried = set(names(Level.FULL, pair(40)))
    assert tried >= {f"float32-s0-offset-{n}" for n in range(1, 16)}
    assert {"float32-s0-sliced-a", "float32-s0-sliced-b", "float32-s0-denormal", "float32-s0-n4099"} <= tried


def test_full_tries_each_side_of_a_blocks_size() -> None:
    sample = dotcu.Sample(torch.ones(3), torch.ones(3), block_size=96)
    assert {"float32-s0-n95", "float32-s0-n96", "float32-s0-n97"} <= set(names(Level.FULL, sample))


def test_full_derives_from_each_structure_once() -> None:
    tried = names(Level.FULL, pair(3), pair(4), pair(3, 4))
    assert {name.split("-")[1] for name in tried if name.endswith("-nan")} == {"s0", "s2"}


def test_nothing_is_derived_from_what_is_empty_or_has_no_dimension() -> None:
    one = subject(operator(added, pair(), pair(0), pair(5), reference=reference))
    assert [case.name for case in bases(one, F32)] == ["float32-s2"]
    assert names(Level.FULL, pair(), pair(0)) == ["float32-s0", "float32-s1"]


def test_a_name_stands_for_one_case() -> None:
    tried = names(Level.FULL, pair(3), pair(2, 3), dtypes=(F32, F16))
    assert len(set(tried)) == len(tried)


def test_the_same_seed_gives_the_same_calls() -> None:
    made = operator(added, pair(5), reference=reference)
    one, again = (choose(subject(made, Level.QUICK)) for _ in range(2))
    for a, b in zip(one, again, strict=True):
        assert a.name == b.name
        for x, y in zip(a.sample.tensors, b.sample.tensors, strict=True):
            assert torch.equal(x.nan_to_num(7), y.nan_to_num(7))
            assert x.stride() == y.stride()


def test_full_deals_cases_among_the_dtypes_so_that_each_two_properties_meet() -> None:
    dtypes = {"float32": F32, "float64": F64, "float16": F16, "bfloat16": torch.bfloat16}
    tried = names(Level.FULL, pair(40, 24), dtypes=tuple(dtypes.values()))
    sized = [re.fullmatch(r"(\w+)-s0-(\d+)as(\d+)(-offset-\d+)?", name) for name in tried]
    sizes = [(m[1], m[2], int(m[3]), bool(m[4])) for m in sized if m]
    edges = {n + side: (n, side) for n in (16, 32, 64, 128, 256, 512, 1024) for side in (-1, 0, 1)}
    met = [(dtype, symbol, *edges[n], misaligned) for dtype, symbol, n, misaligned in sizes if n in edges]
    powers, sides, symbols = {n for n, _ in edges.values()}, {-1, 0, 1}, {"40", "24"}
    assert {(d, s, n) for d, s, n, _, _ in met} == set(product(dtypes, symbols, powers))
    assert {(d, side) for d, _, _, side, _ in met} == set(product(dtypes, sides))
    assert {(d, odd) for d, _, _, _, odd in met} == set(product(dtypes, (False, True)))
    assert {(n, odd) for _, _, n, _, odd in met} == set(product(powers, (False, True)))
    assert {(side, odd) for _, _, _, side, odd in met} == set(product(sides, (False, True)))
    fitting = [n for n in EVERY_SIZE if n < 65537]  # beyond that it is too much work for the simulator
    assert {(s, n) for _, s, n, _ in sizes} >= set(product(symbols, fitting))

    layouts = {
        "transposed",
        "sliced",
        "rows-sliced",
        "expanded",
        "offset-1",
        "4d-channels-last",
        "4d-permuted",
    }
    values = {"normal", "spread", "large", "tiny", "denormal", "inf", "nan", "minus-zero", "zeros"}
    for dtype in dtypes:
        assert {f"{dtype}-s0-{word}" for word in layouts | values} <= set(tried)
    alone = {tuple(m.groups()) for name in tried if (m := re.fullmatch(r"\w+-s0-([a-z-]+)-([ab])", name))}
    assert alone >= set(product({"transposed", "sliced", "rows-sliced", "expanded"}, "ab"))
    assert len(tried) < len(dtypes) * len(names(Level.FULL, pair(40, 24))) / 2


def test_full_deals_the_structures_of_calls_among_the_dtypes() -> None:
    tried = names(Level.FULL, pair(3), pair(3, 4), pair(2, 3, 4), dtypes=(F32, F64))
    assert {tuple(name.split("-")[:2]) for name in tried if name.endswith("-nan")} == {
        ("float32", "s0"), ("float64", "s0"), ("float64", "s1"), ("float32", "s2")
    }  # fmt: skip


def test_quick_tries_what_is_rarer_in_the_first_dtype_alone() -> None:
    tried = names(Level.QUICK, pair(40), dtypes=(F32, F64, F16))
    for word in ("4d-outer-swapped", "ties", "largest", "n4099", "3d"):
        assert {name.split("-")[0] for name in tried if name.endswith(f"-{word}")} == {"float32"}


def test_a_call_of_several_shapes_comes_with_one_dimension_more_and_one_less() -> None:
    made = operator(scaled_rows, dotcu.Sample(torch.ones(6, 8), torch.ones(8)), reference=scaled_rows)
    shapes = {
        case.name.removeprefix("float32-s0-"): [tuple(t.shape) for t in case.sample.tensors]
        for case in choose(subject(made, Level.QUICK))
    }
    assert shapes["deeper"] == [(2, 6, 8), (8,)]
    assert shapes["flatter"] == [(8,), (8,)]


def scaled_rows(x: Tensor, weight: Tensor) -> Tensor:
    return x * weight


def summed(xs: Sequence[Tensor], ys: Sequence[Tensor], alpha: float) -> Tensor:
    return torch.stack([x.sum() + alpha * y.sum() for x, y in zip(xs, ys, strict=True)])


def test_lists_come_in_other_lengths_together() -> None:
    lists = [torch.ones(3), torch.ones(4)], [torch.ones(3), torch.ones(4)]
    made = operator(summed, dotcu.Sample(*lists, 0.5), reference=summed)
    lengths = {
        case.name.removeprefix("float32-s0-"): [len(value) for value in case.sample.args[:2]]
        for case in choose(subject(made, Level.QUICK))
    }
    assert lengths["list-of-1"] == [1, 1]
    assert lengths["list-of-17"] == [17, 17]


def test_some_values_are_equal_to_a_number_of_the_call() -> None:
    lists = [torch.zeros(300)], [torch.zeros(300)]
    made = operator(summed, dotcu.Sample(*lists, 0.5), reference=summed)
    (case,) = (c for c in choose(subject(made, Level.QUICK)) if c.name.endswith("-scalars"))
    assert case.sharp
    assert int((case.sample.tensors[0] == 0.5).sum()) >= 4
