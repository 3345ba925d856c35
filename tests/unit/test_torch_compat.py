"""What dotcu uses of torch that is private: that it is there, and what happens where it is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dotcu
from dotcu import torch_compat
from dotcu.torch_compat import LATER, PRIVATE

SOURCE = Path(dotcu.__file__).parent


@pytest.mark.parametrize("row", PRIVATE, ids=lambda row: row.path)
def test_this_torch_has_the_name(row: torch_compat.PrivateName) -> None:
    """A failure here is no fault by itself: `without` says what users of this torch then have."""
    assert torch_compat.find(row.path) is not None, row.without


@pytest.mark.slow
@pytest.mark.parametrize("row", LATER, ids=lambda row: row.path)
def test_this_torch_has_the_name_once_it_is_imported(row: torch_compat.PrivateName) -> None:
    assert torch_compat.find(row.path) is not None, row.without


def test_each_row_says_why_and_what_happens_without() -> None:
    for row in (*PRIVATE, *LATER):
        assert row.path.startswith("torch.")
        assert row.reason
        assert row.without
    assert len({row.path for row in PRIVATE}) == len(PRIVATE)


@pytest.mark.parametrize("name", ["torch.no_such_module.name", "torch._C.no_such_name", "torch._C._no.name"])
def test_a_name_that_is_not_there_is_none(name: str) -> None:
    assert torch_compat.find(name) is None


NAMES_OF_TORCH = re.compile(
    r"torch\._C\b|_cdata\b|_dispatch_keys\(|\._op\b|sys\.meta_path|co_code\b.*tensor|torch\._ops\._|torch\._library"
)
ELSEWHERE = {
    "benchmark", "checking", "inspection", "profiling", "cpp", "shipping", "tuning", "watching",
    "notebook",
}  # fmt: skip
"""Parts whose use of torch's private names a user's calls do not depend on."""


def modules() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0]
        if part not in ELSEWHERE and path.name != "torch_compat.py":
            yield path


def test_no_other_module_of_a_call_uses_a_private_name_of_torch() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in modules()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NAMES_OF_TORCH.search(line) and not line.lstrip().startswith(("#", '"', "'"))
        if "sys.meta_path" not in line or path.parent.name != "languages"  # it waits for no module of torch
    ]
    assert not found, "\n".join(found)


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def test_what_watches_a_thread_is_false_while_nothing_does() -> None:
    watchers = {
        "dispatch_modes": Mode(),
        "function_modes": torch.overrides.TorchFunctionMode(),
        "dual_level": torch.autograd.forward_ad.dual_level(),
    }
    for name, block in watchers.items():
        assert not getattr(torch_compat, name)()
        with block:
            assert getattr(torch_compat, name)()
        assert not getattr(torch_compat, name)()
    seen: list[bool] = []
    torch.func.vmap(lambda x: (seen.append(torch_compat.transforms()), x)[1])(torch.ones(2))
    assert seen == [True]
    assert not torch_compat.transforms()


def test_without_a_name_something_may_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_compat._function("torch._C.no_such_name", 1)() == 1
    monkeypatch.delattr(torch.autograd.forward_ad, "_current_level")
    assert torch_compat.dual_level(), "so each tensor is asked"


def test_without_dispatch_keys_each_property_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from dotcu.kernel.arguments import memory

    monkeypatch.setattr(torch_compat, "_dispatch_keys", lambda tensor: None)
    assert memory.is_plain(torch.ones(4))
    for odd in (torch.ones(4, dtype=torch.complex64).conj(), torch.empty(4, device="meta")):
        assert not memory.is_plain(odd)
    assert torch_compat.trace_wrapper(torch.ones(4)) is None


def test_two_views_share_a_storage_and_two_tensors_do_not() -> None:
    x = torch.ones(4)
    assert torch_compat.storage_of(x) == torch_compat.storage_of(x[2:])
    assert torch_compat.storage_of(x) != torch_compat.storage_of(x.clone())
