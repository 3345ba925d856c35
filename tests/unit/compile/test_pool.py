"""Compiles in other processes: what they leave in the cache, and what fails there."""

from __future__ import annotations

import itertools

import pytest

import dotcu
from dotcu.compile import Target, pool

_numbers = itertools.count()


def test_other_processes_compile_into_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        f'template <int N> __global__ void f(float* x) {{ static_assert(N, "{next(_numbers)}"); *x = N; }}'
    )
    kernels, target = dotcu.load_inline(source), Target.parse("sm_80")
    units = [kernels.f[number].unit for number in range(3)]  # of 0 none compiles
    wanted = [unit.inputs(target) for unit in units]
    monkeypatch.setattr(pool, "FEW", 1)
    monkeypatch.setattr(pool.os, "cpu_count", lambda: 2)
    assert set(pool.compile_ahead(wanted)) == set(wanted)
    assert [unit.code(target).object.cached for unit in units[1:]] == [True, True]
    with pytest.raises(dotcu.errors.CompileError):
        units[0].code(target)


def test_few_are_left_to_who_wants_them() -> None:
    kernels = dotcu.load_inline("__global__ void g() {}")
    assert list(pool.compile_ahead([kernels.g.unit.inputs(Target.parse("sm_80"))])) == []
