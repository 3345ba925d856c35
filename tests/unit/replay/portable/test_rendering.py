"""Plans as source text."""

from __future__ import annotations

import ast
import dataclasses
import textwrap
from typing import Any

import pytest
import torch

from dotcu.replay import layout
from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import ConstantKey, Field, FieldKind, NumberKey, Op, Plan, TensorKey
from dotcu.replay.portable import calm
from dotcu.replay.portable.rendering import Placed, render
from replays import INT, TENSOR, Steps, doubling, launch, plan


def text_of(made: Plan, *arguments: Argument, guarded: bool = True, **place: Any) -> str:
    placed = Placed(plan=made, arguments=arguments, operator="tests::rendered", number=3, **place)
    return render(placed, guarded=guarded).text


def on_cuda(index: int = 1) -> Plan:
    made, device = doubling(), torch.device("cuda", index)
    return dataclasses.replace(made, keys=(dataclasses.replace(made.keys[0], device=device),), device=device)


def test_a_plan_becomes_the_checks_and_the_numbers_of_it_alone() -> None:
    keys = calm.keys_text("a0")
    assert text_of(on_cuda(), TENSOR, context=77).replace(keys, "KEYS(a0)") == textwrap.dedent(
        """\
        def replay(a0=UNSET):
            try:
                if type(a0) is not TENSOR and type(a0) is not PARAMETER or a0.dtype is not torch_float32 or a0.ndim != 1: return MISS
                if a0.get_device() != 1 or not ((keys := KEYS(a0)) == PLAIN or keys == INFERENCE): return MISS
                if (a0.requires_grad) and GRADIENTS(): return MISS
                v0 = a0.numel()
                v3 = -v0
                v4 = v3 // 256
                v5 = -v4
                if v5 > 2147483647: return MISS
            except UNFIT: return MISS
            try: frame = POP()
            except IndexError: frame = NEW()
            cell, view0, config0, pointers0 = frame
            if CONTEXT(cell) or cell[0] != 77:
                PUSH(frame)
                return ELSEWHERE(1, (a0, ))
            try:
                stream = STREAM(1)
                o0 = ALLOCATE((v0, ), (1, ), torch_float32)
                at_a0 = a0.data_ptr()
                at_o0 = o0.data_ptr()
                PACK0(view0, 0, at_a0, at_o0, v0, v5, BYTES0_4, stream)
            except Exception: return ASIDE
            if v5:
                status = LAUNCH(config0, FUNCTION0, pointers0, None)
                if status: return FAILED(3, 0, status, (a0, ))
                NOTE(LAUNCHED0)
            PUSH(frame)
            return o0
        """  # noqa: E501 - as it is written
    )


def test_the_only_gpu_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    text = text_of(on_cuda(0), TENSOR, context=77)
    assert "CONTEXT" not in text
    assert "get_device" not in text


def test_keys_are_asked_of_torch_where_their_place_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> int:
        raise layout.NoLayout("a tensor's dispatch keys are found in 0 places")

    monkeypatch.setattr(layout, "key_set_place", nowhere)
    calm._place.cache_clear()
    try:
        assert "KEYS(a0)" in text_of(doubling(), TENSOR)
    finally:
        calm._place.cache_clear()


def test_below_autograd_tensors_are_not_asked_what_they_are() -> None:
    text = text_of(on_cuda(), TENSOR, guarded=False)
    assert "keys" not in text
    assert "requires_grad" not in text
    assert "a0.device != DEVICE0" in text


def test_nothing_that_a_user_wrote_is_compiled() -> None:
    hostile = '"] or __import__("os").abort() or ["'
    arguments = (Argument(name=hostile, kinds=Kinds.OTHER, default=(hostile,)),)
    steps = Steps()
    made = plan([ConstantKey(value=hostile)], steps, launches=(launch(steps, kernel=hostile),))
    text = text_of(made, *arguments, reads=(({hostile: 1}, hostile, 1),))
    assert "abort" not in text
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    assert {"DEFAULT0", "CONSTANT0", "READ0", "NAME0", "VALUE0"} <= names


def test_steps_that_nothing_uses_and_that_cannot_fail_are_left_out() -> None:
    steps = Steps()
    n = steps.add(Op.NUMEL)
    steps.add(Op.NEG, n)
    vector = TensorKey(dtype=torch.float32, dim=1, device=torch.device("cpu"))
    assert "numel" not in text_of(plan([vector], steps), TENSOR)
    steps.add(Op.MUL, n, n)
    assert "v2 = v0 * v0" in text_of(plan([vector], steps), TENSOR)


def test_only_what_can_overflow_is_checked() -> None:
    steps = Steps()
    n = steps.add(Op.INT_ARGUMENT)
    half = steps.add(Op.RSHIFT, n, steps.constant(33))
    fields = (
        Field(offset=0, kind=FieldKind.INT32, step=half),
        Field(offset=16, kind=FieldKind.INT64, step=n),
    )
    made = plan([NumberKey(is_float=False)], steps, launches=(launch(steps, *fields),))
    conditions = [line.strip() for line in text_of(made, INT).splitlines() if " < " in line or " > " in line]
    assert conditions == [f"if a0 < {-(2**63)} or a0 > {2**63 - 1}: return MISS"]
