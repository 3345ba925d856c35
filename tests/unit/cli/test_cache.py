"""`dotcu cache`: where, how much, what; and clearing it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dotcu import settings
from dotcu.cli import cache
from dotcu.compile import cache as store
from dotcu.compile.build import build
from dotcu.compile.options import CompileOptions
from dotcu.compile.source.source import inline_source
from dotcu.compile.target import Target
from dotcu.errors import CacheError, UsageError

KERNEL = 'extern "C" __global__ void k(float* x) { x[0] = %d; }'


@pytest.fixture(autouse=True)
def directory(tmp_path: Path) -> Iterator[Path]:
    """A cache directory that is not there yet."""
    with settings.override(cache_dir=tmp_path / "cache", cache_bytes=1 << 30):
        yield tmp_path / "cache"


def fill(count: int) -> None:
    for value in range(count):
        build(
            inline_source(KERNEL % value, name=f"k{value}.cu"),
            options=CompileOptions(),
            target=Target.parse("compute_80"),
            names=["k"],
        )


def test_a_cache_that_is_not_there_is_empty_and_is_not_made(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.command()
    assert capsys.readouterr().out == f"{directory}: 0 entries, 0 B of at most 1.0 GiB\n"
    assert not directory.exists()


def test_entries_are_counted_and_listed_last_used_first(capsys: pytest.CaptureFixture[str]) -> None:
    fill(2)
    cache.command(list_entries=True)
    head, first, second, _, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["source", "target", "size", "used", "names"]
    assert first.startswith("k1.cu")
    assert second.startswith("k0.cu")
    assert "compute_80" in first
    assert "just now" in first
    assert "2 entries" in total


def test_the_list_as_json_adds_up(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(1)
    cache.command(list_entries=True, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    (entry,) = shown["list"]
    assert (shown["version"], shown["entries"], shown["directory"]) == (1, 1, str(directory))
    assert entry["size_bytes"] == shown["size_bytes"] > 0
    assert Path(entry["path"]).is_dir()


def test_clearing_removes_every_entry_and_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    fill(2)
    cache.command(clear=True)
    assert capsys.readouterr().out == "removed 2 entries\n"
    assert store.entries() == []


def test_listing_and_clearing_at_once_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--list and --clear"):
        cache.command(list_entries=True, clear=True)


@pytest.mark.parametrize("below", ["", "below"])
def test_a_cache_directory_that_is_a_file_is_a_fault(directory: Path, below: str) -> None:
    directory.write_text("")
    with settings.override(cache_dir=directory / below), pytest.raises(CacheError, match="DOTCU_CACHE_DIR="):
        cache.command()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "just now"), (59, "just now"), (60, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")],
)
def test_age(seconds: float, text: str) -> None:
    assert cache._age(seconds) == text


def test_an_entry_that_was_last_used_an_hour_ago_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    fill(1)
    (entry,) = store.entries()
    os.utime(entry["path"], (time.time() - 3700,) * 2)
    cache.command(list_entries=True)
    assert "1 h ago" in capsys.readouterr().out
