"""The native part: whether it can be used, and the layout of torch that it needs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fresh
from dotcu import settings
from dotcu.compile import toolchain
from dotcu.errors import ToolchainError
from dotcu.kernel import native
from recorded_calls import CPU, configured

needs_native = pytest.mark.skipif(
    bool(native.missing()), reason=native.missing() or "the native part is there"
)


@pytest.fixture
def there() -> Iterator[None]:
    """The native part, with nothing in it replaced; it is configured anew after the test."""
    with configured():
        yield


def test_the_native_part_serves_this_torch() -> None:
    """On a torch that is laid out in another way nothing is replayed, and all other tests of it skip."""
    if isinstance(native.library(), str):
        pytest.skip(native.library())
    if toolchain.untested_torch(torch.__version__):
        pytest.skip(toolchain.untested_torch(torch.__version__))
    assert native.missing() == ""
    assert native.prepare(CPU) == ""


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: "dotcu's native part is missing: no compiler")
    native._prepared.clear()
    assert native.prepare(CPU) == "dotcu's native part is missing: no compiler"
    assert native._prepared == {}, "it is asked again"


def test_it_can_be_turned_off() -> None:
    with settings.override(native=False):
        assert native.prepare(CPU) == "DOTCU_NATIVE=0: the native part is not used"


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("2.11.0", False), ("2.13.1+cu130", False), ("2.14.0a0+git5a4a", True), ("3.0.0", True), ("10.1", True)],
)
def test_a_torch_that_it_was_not_tried_on_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, is_newer: bool
) -> None:
    monkeypatch.setattr(toolchain, "NEWEST_TESTED_TORCH", (2, 13))
    monkeypatch.setattr(torch, "__version__", version)
    said = "dotcu's native part is not used: it was tested on torch up to 2.13, and this is torch " + version
    assert (native.missing() == said) == is_newer
    assert (native.prepare(CPU) == said) == is_newer


@pytest.mark.usefixtures("there")
def test_a_device_that_torch_cannot_allocate_on_is_named() -> None:
    assert native.prepare(torch.device("meta")) == "torch has no _empty_strided_meta"


INSIDE: dict[str, Callable[[Callable[[], None]], Any]] = {
    "fake tensors": lambda learn: _within(FakeTensorMode(), learn),
    "inference mode": lambda learn: _within(torch.inference_mode(), learn),
    "autocast": lambda learn: _within(torch.autocast("cpu", dtype=torch.bfloat16), learn),
    "vmap": lambda learn: torch.func.vmap(lambda x: (learn(), x)[1])(torch.ones(2)),
    "a trace": lambda learn: torch.jit.trace(lambda x: (learn(), x + 1)[1], torch.ones(2)),
    "a call below autograd": lambda learn: _within(torch._C._AutoDispatchBelowAutograd(), learn),
}


LEARNT = ("rest", "inference_included", "autograd_excluded", "autocast", "impl", "key_set", "storage")


def _within(context: Any, learn: Callable[[], None]) -> None:
    with context:
        learn()


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("where", INSIDE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_learnt_does_not_depend_on_who_asks_first(where: str) -> None:
    def found() -> tuple[Any, ...]:
        layout = native.torch_layout.__wrapped__()
        return tuple(layout[name] for name in LEARNT)

    want, seen = found(), []
    INSIDE[where](lambda: seen.append(found()))
    assert set(map(str, seen)) == {str(want)}


@needs_native
def test_it_is_found_the_same_wherever_it_is_looked_for() -> None:
    expected = native.torch_layout()
    assert not native.missing()
    for mode in (torch.inference_mode, torch._C._AutoDispatchBelowAutograd, torch.no_grad):
        with mode():
            found = native.in_new_thread(lambda: native.locate(native.library().dispatch_keys))
        assert found == {name: expected[name] for name in found}


@needs_native
def test_the_first_look_may_come_from_below_autograd() -> None:
    script = """
import torch
from dotcu.kernel import native
with torch._C._AutoDispatchBelowAutograd(), torch.inference_mode():
    assert not native.missing()
assert native.torch_layout()["rest"] == list(native.library().dispatch_keys())
"""
    done = fresh.run(script)
    assert done.returncode == 0, done.stderr


@needs_native
def test_ordinary_and_inference_tensors_are_reported_apart_from_others() -> None:
    keys = native.plain_keys(torch.device("cpu"))
    (ordinary,), (inference,) = keys["plain_keys"], keys["inference_keys"]
    assert ordinary != inference
    assert native._keys(torch.nn.Parameter(torch.empty(2))) == ordinary
    assert native._keys(torch.empty(2, dtype=torch.complex64).conj()) not in (ordinary, inference)


@needs_native
def test_what_autograd_and_autocast_change_of_a_thread_is_reported_apart() -> None:
    found = native.torch_layout()
    (inference,), (autograd,) = found["inference_included"], found["autograd_excluded"]
    included, excluded = found["autocast"]
    assert inference
    assert autograd
    assert included | excluded
    assert not included & inference
    assert not excluded & autograd
    read = native.library().dispatch_keys
    with torch._C._AutoDispatchBelowAutograd():
        below = native.in_new_thread(read)
        here = read()
    assert [*below] == found["rest"], "a new thread is at rest"
    assert here[1] & autograd == autograd


@needs_native
def test_a_place_points_to_the_memory_that_views_share() -> None:
    place, base = native.torch_layout()["storage"], torch.empty(4)
    assert native.word(base._cdata + place) == native.word(base[1:]._cdata + place)
    assert native.word(base._cdata + place) != native.word(torch.empty(4)._cdata + place)


@needs_native
def test_what_is_not_in_one_place_is_no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match="dispatch keys are found in 26 places"):
        native._offset_of("dispatch keys are", [], native._keys)  # every place would do
    with pytest.raises(ToolchainError, match="storage is found in 0 places"):
        native._offset_of("storage is", [torch.empty(2)], lambda tensor: 12345)
    monkeypatch.setattr(native, "_OBJECT_OFFSETS", ())
    with pytest.raises(ToolchainError, match="Python object"):
        native.locate(native.library().dispatch_keys)


@needs_native
def test_a_state_that_does_not_show_what_it_must_is_no_layout() -> None:
    with pytest.raises(ToolchainError, match="cannot be read"):
        native._state(lambda: None)
    with pytest.raises(ToolchainError, match="does not show inference mode"):
        native._state(lambda: (0, 0))  # a state that never changes cannot be it
    blind = {"inference": (1, 7), "below": (0, 7)}

    def without_modes() -> tuple[int, int]:
        if torch.is_inference_mode_enabled():
            return blind["inference"]
        return blind["below"] if _below_autograd() else (0, 0)

    with pytest.raises(ToolchainError, match="does not show a dispatch mode"):
        native.in_new_thread(lambda: native._state(without_modes))


def _below_autograd() -> bool:
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)


@needs_native
def test_a_device_without_an_allocator_and_a_library_without_a_function_are_named() -> None:
    with pytest.raises(ToolchainError, match="torch has no _empty_strided_meta"):
        native.allocator("meta")
    with pytest.raises(ToolchainError, match="torch has no dotcu_none_such"):
        native.symbols(ctypes.CDLL(torch._C.__file__), [("none", "dotcu_none_such")])
