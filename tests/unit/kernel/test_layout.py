"""Where torch keeps what a guarded call must see."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest
import torch

from dotcu.kernel import layout, native

pytestmark = pytest.mark.skipif(bool(native.missing()), reason=native.missing() or "the native part is there")


def test_it_is_found_the_same_wherever_it_is_looked_for() -> None:
    expected = native._found().values
    assert not native.missing()
    for mode in (torch.inference_mode, torch._C._AutoDispatchBelowAutograd, torch.no_grad):
        with mode():
            found = layout.in_a_calm_thread(lambda: layout.locate(native.library().tls_words))
        assert found == {name: expected[name] for name in found}


def test_the_first_look_may_come_from_below_autograd() -> None:
    script = """
import torch
from dotcu.kernel import native
with torch._C._AutoDispatchBelowAutograd(), torch.inference_mode():
    assert not native.missing()
assert native._found().values["rest"] == list(native.library().tls_words())
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_ordinary_and_inference_tensors_are_told_apart_from_others() -> None:
    keys = layout.plain_keys(torch.device("cpu"))
    (ordinary,), (inference,) = keys["plain_keys"], keys["inference_keys"]
    assert ordinary != inference
    assert layout._keys(torch.nn.Parameter(torch.empty(2))) == ordinary
    assert layout._keys(torch.empty(2, dtype=torch.complex64).conj()) not in (ordinary, inference)


def test_what_autograd_and_autocast_change_of_a_thread_is_told_apart() -> None:
    found = native._found().values
    (inference,), (autograd,) = found["inference_included"], found["autograd_excluded"]
    included, excluded = found["autocast"]
    assert inference
    assert autograd
    assert included | excluded
    assert not included & inference
    assert not excluded & autograd
    read = native.library().tls_words
    with torch._C._AutoDispatchBelowAutograd():
        below = layout.in_a_calm_thread(read)
        here = read()
    assert [*below] == found["rest"], "a new thread is at rest"
    assert here[1] & autograd == autograd


def test_a_place_points_to_the_memory_that_views_share() -> None:
    place, base = native._found().values["storage"], torch.empty(4)
    assert layout._word(base._cdata + place) == layout._word(base[1:]._cdata + place)
    assert layout._word(base._cdata + place) != layout._word(torch.empty(4)._cdata + place)


def test_what_is_not_in_one_place_is_no_layout() -> None:
    with pytest.raises(layout.NoLayout, match="dispatch keys are found in 26 places"):
        layout._place_of("dispatch keys are", [], layout._keys)  # every place would do
    with pytest.raises(layout.NoLayout, match="storage is found in 0 places"):
        layout._place_of("storage is", [torch.empty(2)], lambda tensor: 12345)
    with pytest.raises(layout.NoLayout, match="Python object"):
        layout._impl_place([])


def test_a_state_that_does_not_show_what_it_must_is_no_layout() -> None:
    with pytest.raises(layout.NoLayout, match="cannot be read"):
        layout._state(lambda: None)
    with pytest.raises(layout.NoLayout, match="does not show inference mode"):
        layout._state(lambda: (0, 0))  # a state that never changes cannot be it
    blind = {"inference": (1, 7), "below": (0, 7)}

    def without_modes() -> tuple[int, int]:
        if torch.is_inference_mode_enabled():
            return blind["inference"]
        return blind["below"] if _below_autograd() else (0, 0)

    with pytest.raises(layout.NoLayout, match="does not show a dispatch mode"):
        layout.in_a_calm_thread(lambda: layout._state(without_modes))


def _below_autograd() -> bool:
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)


def test_a_device_without_an_allocator_and_a_library_without_a_function_are_named() -> None:
    with pytest.raises(layout.NoLayout, match="torch has no _empty_strided_meta"):
        layout.allocator("meta")
    with pytest.raises(layout.NoLayout, match="torch has no dotcu_none_such"):
        layout.symbols(ctypes.CDLL(torch._C.__file__), [("none", "dotcu_none_such")])
