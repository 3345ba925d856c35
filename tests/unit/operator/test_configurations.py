"""Configurations of an operator: declared, looked up, read from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.errors import UsageError
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.operator import tuned
from dotcu.operator.configurations import Configurations, bucket, distance, relatives
from dotcu.operator.tuned import TunedEntry, TunedFile, TunedGpu

kernels = dotcu.load_inline(r"""
template <typename T, int ITEMS>
__global__ void twice(const T* x, T* out, int n) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    for (int i = first; i < first + ITEMS; ++i)
        if (i < n) out[i] = 2 * x[i];
}
""")


class Tile(NamedTuple):
    block: int
    items: int


@dotcu.op("test_configurations::twice")
def twice(x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    tile = twice.configuration(x.dtype, n)
    grid = dotcu.cdiv(n, tile.block * tile.items)
    kernels.twice[x.dtype, tile.items](x, out, n, grid=grid, block=tile.block)
    return out


@twice.configurations
def _() -> Iterator[Tile]:
    yield Tile(128, 1)
    for block in (32, 64):
        for items in (1, 2):
            yield Tile(block, items)


SIMULATED = TunedGpu(capability="8.0", multiprocessors=108, name="simulator")


def entry(*key: Any, gpu: TunedGpu = SIMULATED, block: int = 64, items: int = 2, **more: Any) -> TunedEntry:
    assert twice.tunable is not None
    figures = {"median_us": 3.0, "over_runner_up": 1.0, "over_default": 1.5, "digest": twice.tunable.digest}
    return TunedEntry(
        gpu=gpu.name, capability=gpu.capability, multiprocessors=gpu.multiprocessors, key=key,
        configuration={"block": block, "items": items}, **{**figures, **more},
    )  # fmt: skip


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Configurations]:
    """The operator's configurations, with a file that a test may write."""
    assert twice.tunable is not None
    space, before = twice.tunable, twice.tunable.file
    space.file = tmp_path / "ops.tuned.toml"
    space.forget()
    yield space
    space.file = before
    space.forget()


def write(space: Configurations, *entries: TunedEntry) -> None:
    assert space.file is not None
    TunedFile().with_entries(space.name, entries).write(space.file)
    space.forget()


def launched(x: Tensor) -> str:
    """Call, and return the launch as kernel and block."""
    from dotcu.kernel.launch import listening_for_kernels

    requests: list[Any] = []
    with dotcu.simulate(), listening_for_kernels(requests.append):
        assert torch.equal(twice(x), 2 * x)
    return f"{requests[0].kernel} {requests[0].config.block[0]}"


def test_without_a_file_the_first_is_used(space: Configurations) -> None:
    assert launched(torch.randn(100)) == "twice<float, 1> 128"
    assert twice.configuration(torch.float32, 100, default=Tile(32, 2)) == Tile(32, 2)


def test_the_tuned_one_of_the_nearest_size_is_used(space: Configurations) -> None:
    write(space, entry("float32", 64), entry("float32", 65536, block=32, items=1), entry("float16", 64))
    assert launched(torch.randn(100)) == "twice<float, 2> 64"
    assert launched(torch.randn(40_000)) == "twice<float, 1> 32"
    assert twice.configuration(torch.float64, 64) == Tile(128, 1)


def test_beside_a_rule_for_all_sizes_an_entry_counts_for_its_own_bucket(space: Configurations) -> None:
    write(space, entry("float32", 64))
    rule = Tile(32, 1)
    with dotcu.simulate():
        assert twice.configuration(torch.float32, 60, default=rule) == Tile(64, 2)
        assert twice.configuration(torch.float32, 100, default=rule) == rule


def test_exact_sizes_count_as_they_are(space: Configurations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "exact", True)
    write(space, entry("float32", 100))
    assert launched(torch.randn(100)) == "twice<float, 2> 64"
    assert launched(torch.randn(101)) == "twice<float, 1> 128"
    with space.trying(None) as tried:
        launched(torch.randn(99))
    assert list(tried.keys) == [("float32", 99)]


def test_a_configuration_is_tried_in_place_of_the_tuned_one(space: Configurations) -> None:
    write(space, entry("float32", 64))
    with space.trying(Tile(32, 2)) as tried:
        assert launched(torch.randn(100)) == "twice<float, 2> 32"
    assert tried.keys == {("float32", 128): Tile(128, 1)}
    with space.trying(None):
        assert launched(torch.randn(100)) == "twice<float, 1> 128"


def test_some_sizes_are_exact_and_others_count_by_their_bucket(
    space: Configurations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "exact", 1)
    write(space, entry("float32", 100, 4096))
    with dotcu.simulate():
        sizes = (100, 4096), (100, 2049), (100, 2048), (99, 4096), (128, 4096)
        found = [twice.configuration(torch.float32, *each) == Tile(64, 2) for each in sizes]
    assert found == [True, True, False, False, False]


def test_for_shapes_alone_no_size_is_looked_at(space: Configurations) -> None:
    write(space, entry("float32", 64))
    with entering_scope(LaunchPolicy.SKIP, operator="x"):
        assert twice.configuration(torch.float32, 64) == Tile(128, 1)


def test_it_is_traced_by_torch_compile(space: Configurations) -> None:
    write(space, entry("float32", 64))
    with dotcu.simulate():
        compiled = torch.compile(twice, fullgraph=True, dynamic=True, backend="aot_eager")
        for n in (5, 100):
            x = torch.randn(n)
            assert torch.equal(compiled(x), 2 * x)


def test_a_constraint_skips_what_does_not_fit_a_call() -> None:
    def whole(tile: Tile, n: int) -> bool:
        return n % tile.items == 0

    def tiles() -> Iterator[Tile]:
        yield from (Tile(32, 1), Tile(32, 2))

    of = Configurations("a::b", twice.body, tiles, whole)
    of._tables = {SIMULATED: {(64,): Tile(32, 2)}}
    assert of.of_call(64) == Tile(32, 2)
    assert of.of_call(63) == Tile(32, 1)


def test_keys_take_tensors_sizes_and_text() -> None:
    of = Configurations("a::b", twice.body, lambda: [Tile(1, 1)])
    with of.trying(None) as tried:
        of.of_call(torch.empty(3, 100), True, None, "rows", torch.Size([5]), 0.5)
    assert list(tried.keys) == [("float32", 4, 128, True, "none", "rows", 8, 0.5)]
    with of.trying(None), pytest.raises(UsageError, match="takes tensors, sizes, dtypes"):
        of.of_call({1, 2})


@dataclass
class Mutable:
    rows: int = 1


def test_a_space_is_of_frozen_values_with_names() -> None:
    def space(*values: Any) -> tuple[Any, ...]:
        return Configurations("a::b", twice.body, lambda: values).space

    assert space(Tile(1, 2), Tile(1, 2)) == (Tile(1, 2),)
    with pytest.raises(UsageError, match="yield none, and the first one is its default"):
        space()
    for wrong in (3, (1, 2), Mutable(), Tile(1, [2])):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="NamedTuple or a frozen dataclass"):
            space(wrong)


def test_asking_without_a_declaration_says_what_to_declare() -> None:
    @dotcu.op("test_configurations::bare")
    def bare(x: Tensor) -> Tensor:
        bare.configuration(x)
        return torch.empty_like(x)

    with dotcu.simulate(), pytest.raises(UsageError, match=r"@bare\.configurations"):
        bare(torch.randn(3))


@pytest.mark.parametrize(("size", "counts_as"), [(0, 0), (1, 1), (2, 2), (3, 4), (4096, 4096), (4097, 8192)])
def test_sizes_count_by_powers_of_two(size: int, counts_as: int) -> None:
    assert bucket(size) == counts_as


def test_keys_are_apart_by_doublings() -> None:
    assert distance(("float32", 64, 1), ("float32", 256, 1)) == 2
    assert distance(("float32", 64), ("float16", 64)) == float("inf")
    assert distance((True, 64), (1, 64)) == float("inf")


def test_a_gpu_takes_its_nearest_relative_of_the_same_capability() -> None:
    h100, h20, a100 = (TunedGpu(capability=c, multiprocessors=n, name=c + str(n)) for c, n in
                       (("9.0", 132), ("9.0", 78), ("8.0", 108)))  # fmt: skip
    at_hand = TunedGpu(capability="9.0", multiprocessors=114, name="NVIDIA H100 PCIe")
    assert relatives(at_hand, [h20, a100, h100]) == [h100, h20]


# ------------------------------------------------------------------ the file


def test_a_file_is_sorted_and_reads_back(space: Configurations) -> None:
    first, second = entry("float32", 64, driver='5"8\\0'), entry("float32", 1024)
    write(space, second, first)
    assert space.file is not None
    text = space.file.read_text()
    assert text.index("64]") < text.index("1024]")
    assert tuned.read(space.file).operators[space.name] == (first, second)
    write(space, first, second)
    assert space.file.read_text() == text


def test_a_link_to_a_shared_file_stays_one(tmp_path: Path) -> None:
    shared, link = tmp_path / "shared.toml", tmp_path / "ops.tuned.toml"
    shared.write_text("")
    link.symlink_to(shared)
    TunedFile().write(link)
    assert link.is_symlink()
    assert tuned.read(shared) == TunedFile()


def test_of_two_entries_for_one_place_the_later_stays() -> None:
    old, new = entry("f", 1, date="2026-01-01"), entry("f", 1, date="2026-02-01", block=32)
    for pair in ((old, new), (new, old)):
        assert tuned.joined((), pair) == (new,)


BROKEN = {
    "half written": lambda text: text[: len(text) // 2],
    "too deep": lambda text: text + "deep = " + "[" * 5000 + "]" * 5000 + "\n",
    "of a later format": lambda text: text.replace("format = 1", "format = 2"),
    "a text for a number": lambda text: text.replace("median_us = 3.0", 'median_us = "3"'),
    "without a digest": lambda text: text.replace("digest =", "digits ="),
    "no text": lambda text: "\0",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_left_out_and_said_once(
    how: str, space: Configurations, caplog: pytest.LogCaptureFixture
) -> None:
    write(space, entry("float32", 64))
    assert space.file is not None
    space.file.write_text(BROKEN[how](space.file.read_text()))
    space.forget()
    for _ in range(2):
        assert launched(torch.randn(100)) == "twice<float, 1> 128"
    assert len([r for r in caplog.records if "ops.tuned.toml" in r.getMessage()]) == 1
    with pytest.raises(UsageError, match=r"ops\.tuned\.toml"):
        tuned.read(space.file)


def test_a_stale_file_is_left_out_and_said_once(
    space: Configurations, caplog: pytest.LogCaptureFixture
) -> None:
    write(space, entry("float32", 64, digest="another"))
    for _ in range(2):
        assert launched(torch.randn(100)) == "twice<float, 1> 128"
    assert [r.getMessage() for r in caplog.records if "have changed since" in r.getMessage()] != []
    assert len(caplog.records) == 1


def test_an_edited_configuration_is_left_out(space: Configurations, caplog: pytest.LogCaptureFixture) -> None:
    write(space, entry("float32", 64, block=48), entry("float32", 65536))
    assert launched(torch.randn(100)) == "twice<float, 2> 64"
    assert "is none of the declared configurations" in caplog.text


def test_a_digest_follows_the_functions_and_kernels_that_a_body_names() -> None:
    names: dict[str, Any] = {"__name__": "a", "kernels": kernels, "MOST": 4}
    exec("def helper(): return MOST\ndef body(): return helper() + kernels", names)
    before = tuned.digest_of(names["body"])
    assert tuned.digest_of(names["body"]) == before
    names["MOST"] = 5
    changed = tuned.digest_of(names["body"])
    names["MOST"] = (Tile(32, 1), Tile(64, 1))
    table = tuned.digest_of(names["body"])
    names["MOST"] = (Tile(32, 1), Tile(64, 2))
    edited = tuned.digest_of(names["body"])
    names["kernels"] = dotcu.load_inline("__global__ void other() {}")
    assert len({before, changed, table, edited, tuned.digest_of(names["body"])}) == 5


def test_an_entry_is_left_out_once_its_sizes_count_otherwise(
    space: Configurations, caplog: pytest.LogCaptureFixture
) -> None:
    def declared(exact: bool | int) -> Configurations:
        found = Configurations(space.name, space.body, space.generate, exact=exact)
        found.file = space.file
        return found

    assert len({declared(exact).digest for exact in (False, 1, 2, True)}) == 4
    write(space, entry("float32", 64))
    assert declared(exact=False).tables()
    assert not declared(exact=True).tables()
    assert "have changed since" in caplog.text


def test_entries_of_another_gpu_are_not_used(space: Configurations) -> None:
    hopper = replace(SIMULATED, capability="9.0", multiprocessors=132)
    write(space, entry("float32", 64, gpu=hopper))
    assert launched(torch.randn(100)) == "twice<float, 1> 128"
    with dotcu.simulate(arch="sm_90"):
        assert twice.configuration(torch.float32, 64) == Tile(64, 2)
