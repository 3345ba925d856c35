from __future__ import annotations

import pytest
import torch

from dotcu.benchmark.limits import datasheet
from dotcu.benchmark.limits.datasheet import SHEETS, find, named, of_device
from dotcu.errors import UsageError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("h200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA GH200 480GB", "GH200 96GB HBM3"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("rtx-5090", "RTX 5090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
    ],
)
def test_a_gpu_is_found_by_the_names_that_drivers_and_users_give_it(spelling: str, name: str) -> None:
    found = find(spelling)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "spelling",
    [
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA L40",
        "NVIDIA A100X",
        "",
    ],
)
def test_a_gpu_with_a_similar_name_is_another_one(spelling: str) -> None:
    assert find(spelling) is None


def test_an_unknown_gpu_is_refused_with_those_that_are_known_and_the_nearest() -> None:
    with pytest.raises(UsageError, match="no datasheet") as refused:
        named("H20")
    assert "Type: --gpu 'H200'" in str(refused.value)
    assert "RTX 5090" in str(refused.value)


def test_spellings_are_unique() -> None:
    spellings = [spelling for names, _ in datasheet._TABLE for spelling in names]
    assert len({datasheet._squeezed(spelling) for spelling in spellings}) == len(datasheet._BY_NAME)
    assert len({sheet.name for sheet in SHEETS}) == len(SHEETS)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_rates_are_dense_ones(sheet: datasheet.Sheet) -> None:
    """With sparsity they would be twice as high: no tensor core does 16 times what ordinary float32 does."""
    rates, float32 = sheet.matrix_tflops, sheet.plain_tflops["float32"]
    halves = rates["float16"]
    assert 2 <= halves / float32 <= 33
    if "float8" in rates:
        assert 1.9 <= rates["float8"] / halves <= 2.1
    if "tf32" in rates:
        assert 0.24 <= rates["tf32"] / halves <= 0.51
    assert sheet.source


def test_rates_are_operations_a_clock_times_multiprocessors_times_clock() -> None:
    """By the architecture, apart from the datasheets: a wrong digit in the table shows here."""
    h200, a100, l40s, b200 = (named(name) for name in ("H200", "A100", "L40S", "B200"))
    assert h200.matrix_tflops["bfloat16"] == pytest.approx(132 * 4096 * 1.830e-3, rel=0.01)
    assert h200.plain_tflops["float32"] == pytest.approx(132 * 256 * 1.980e-3, rel=0.01)
    assert a100.matrix_tflops["bfloat16"] == pytest.approx(108 * 2048 * 1.410e-3, rel=0.01)
    assert l40s.matrix_tflops["bfloat16"] == pytest.approx(142 * 1024 * 2.520e-3, rel=0.01)
    assert b200.matrix_tflops["bfloat16"] == pytest.approx(148 * 8192 * 1.856e-3, rel=0.01)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    figures = {"L2_cache_size": 60 << 20, "memory_clock_rate": 3_201_000, "memory_bus_width": 6144}
    properties = type("Properties", (), figures)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return torch.device("cuda", 0)


def test_bandwidth_is_known_from_the_clock_and_the_bus(gpu: torch.device) -> None:
    assert datasheet.theoretical_bandwidth(gpu) == pytest.approx(4916.7, abs=0.1)


def test_a_gpu_of_this_machine_has_its_sheet_and_its_own_clocks(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    found = of_device(gpu, sm_mhz=1980)
    assert found is not None
    assert (found.name, round(found.memory_gbps)) == ("H200", 4917)
    assert found.matrix_tflops["bfloat16"] == pytest.approx(989.4 * 1980 / 1830)


def test_lower_clocks_do_not_lower_what_can_be_believed(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(datasheet, "theoretical_bandwidth", lambda device: 4000.0)
    found = of_device(gpu, sm_mhz=1000)
    assert found is not None
    assert found.matrix_tflops == dict(named("H200").matrix_tflops)
    assert found.memory_gbps == 4800


def test_a_gpu_without_a_sheet_still_has_a_bandwidth(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA X1")
    found = of_device(gpu)
    assert found is not None
    assert (found.name, round(found.memory_gbps)) == ("NVIDIA X1", 4917)
    assert not found.matrix_tflops
