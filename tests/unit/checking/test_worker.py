"""A worker runs the trials that it is asked for, and says before it ends that the GPU is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dotcu import process
from dotcu.checking import attendant, worker
from dotcu.checking.catalogue import Level
from dotcu.checking.protocol import Request

FILE = """
import sys
import torch
from torch import Tensor
import dotcu

print("printed by the module")

@dotcu.op("{name}::same")
def same(x: Tensor) -> Tensor:
    print("printed by the body", sys.stdin.read())
    return x.clone()

same.reference(torch.clone)

@same.samples
def _(device, dtype):
    for n in (3, 2):
        yield dotcu.Sample(torch.ones(n, device=device, dtype=dtype))
"""


@pytest.fixture
def request_of(tmp_path: Path, request: pytest.FixtureRequest) -> Request:
    namespace = f"worker_{abs(hash(request.node.name))}"
    path = tmp_path / f"{namespace}.py"
    path.write_text(FILE.format(name=namespace))
    return Request(
        target=f"{path}:same", overload=f"{namespace}::same", device="cpu", level=Level.QUICK, seed=0,
        trials=(f"{namespace}::same/call/float32-s1",), threads=1,
    )  # fmt: skip


def serve(request: Request) -> tuple[bool, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []
    return worker.serve(request, told.append), told


def kinds(told: list[dict[str, Any]]) -> list[str]:
    return [next(iter(answer)) for answer in told]


def test_the_trials_that_are_named_are_run_and_no_others(request_of: Request) -> None:
    alive, told = serve(request_of)
    assert alive
    (name,) = request_of.trials
    assert told[0] == {"begin": name}
    assert told[-2:] == [{"end": name}, {"done": True}]
    results = [answer["result"] for answer in told[1:-2]]
    assert {result["trial"] for result in results} == {name}
    assert "numerics" in {result["check"] for result in results}
    json.dumps(told)


def test_a_lost_gpu_ends_the_worker(request_of: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "unusable", lambda device: f"{device} is lost")
    alive, told = serve(request_of)
    assert not alive
    assert kinds(told)[0] == "begin"
    assert told[-1] == {"unusable": "cpu is lost"}
    assert "end" not in kinds(told)


def test_an_overload_that_is_not_there_is_a_usage_error(request_of: Request) -> None:
    values = {**vars(request_of), "overload": "other::name"}
    alive, told = serve(Request(**values))
    assert alive
    ((kind, message),) = [answer["raise"] for answer in told]
    assert kind == "UsageError"
    assert "other::name" in message


def test_the_cpu_is_always_usable() -> None:
    assert worker.unusable(torch.device("cpu")) == ""


def test_a_fault_that_torch_finds_makes_a_gpu_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    why = worker.unusable(torch.device("cuda", 0))
    assert "AcceleratorError: CUDA error: an illegal memory access was encountered" in why
    assert "Compile with" not in why


def test_a_worker_speaks_through_its_stdout_and_nobody_else_does(request_of: Request) -> None:
    with process.started(attendant.command()) as child:
        child.tell(request_of.to_json())
        told = []
        while "done" not in (told[-1] if told else {}):
            line = child.line(120)
            assert line is not None, child.last_words()
            told.append(json.loads(line))
        assert kinds(told)[0] == "begin"
        child.hush()
        assert child.line(30) is None, "it ends when nobody can ask any more"
        assert child.status() == 0
        assert "printed by the module" in child.last_words()
        assert "printed by the body" in child.last_words()
