"""Names of C++, demangled."""

from __future__ import annotations

import ctypes

import pytest

from dotcu.inspection.binaries import demangle as module
from dotcu.inspection.binaries.demangle import demangle


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5scalePfi", "scale(float*, int)"),
        ("_ZN2ns4turnIdLi256EEEvPT_", "void ns::turn<double, 256>(double*)"),
        ("_ZN12_GLOBAL__N_11kEv", "(anonymous namespace)::k()"),
        ("cudaLaunchKernel", "cudaLaunchKernel"),
        ("i", "i"),  # a type's code, were it taken for a mangled name
        ("_Znonsense", "_Znonsense"),
        ("_Z\N{GREEK SMALL LETTER ALPHA}", "_Z\N{GREEK SMALL LETTER ALPHA}"),
    ],
)
def test_mangled_names_are_read_and_others_left(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


def test_without_a_cxx_library_names_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    for cached in (module.demangle, module._demangler):
        cached.cache_clear()
    try:
        assert demangle("_Z5scalePfi") == "_Z5scalePfi"
    finally:
        for cached in (module.demangle, module._demangler):
            cached.cache_clear()
