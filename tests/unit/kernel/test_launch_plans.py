"""Planned launches: native code and Python come to the same verdict, and to the same bytes."""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from dotcu import settings
from dotcu.compile import Target
from dotcu.errors import ArgumentError, DotcuError, LaunchConfigError
from dotcu.kernel import cuda, launch, load_inline, native, python_launcher
from dotcu.kernel.arguments.memory import count_writes
from dotcu.kernel.arguments.pack import (
    PackingPlan,
    Placement,
    extents,
    pack,
    require_one_device,
    strided,
    tensors_in,
)
from dotcu.kernel.arguments.tensor_map import tensor_map
from dotcu.kernel.arguments.values import StructPacker
from dotcu.kernel.config import LIMITS, ArchLimits, KernelNeeds, LaunchConfig, limits, require_fit
from dotcu.kernel.faults import LaunchLabel, recent_launches, use_native_record
from dotcu.kernel.launch import LaunchPlan, LaunchPlans, _launcher, _smem_range, listening_for_kernels
from dotcu.kernel.launch_policy import (
    LaunchPolicy,
    entering_scope,
    require_seen,
    watching_launches,
)
from helpers import random_launches
from helpers.fake_gpu import CONTEXT, FUNCTION, MAP_ADDRESS, Driver, called_by_ctypes, configured

ARCH, NEEDS = limits(9, 0), KernelNeeds(registers=32)


@pytest.fixture
def driver() -> Iterator[Driver]:
    """What takes the driver's place in native code, for CPU tensors."""
    made = Driver()
    with configured(made.functions):
        yield made


@pytest.fixture(scope="module")
def plans() -> dict[str, PackingPlan]:
    module = load_inline(random_launches.SOURCE)
    code = module.echo.unit.code(Target.parse("compute_80"), simulated=True)
    return {name: code.plan(name) for name in ("echo", "rows")}


class Road:
    """One kernel that is planned for CPU tensors.

    Args:
        shapes: Block, shared memory, cluster of each plan.
    """

    def __init__(
        self,
        driver: Driver,
        plan: PackingPlan,
        shapes: list[tuple[Any, ...]] | None = None,
        launcher: Any = None,
    ) -> None:
        self.plan, self.driver, self.plans = plan, driver, LaunchPlans()
        driver.sizes = tuple(parameter.size for parameter in plan.parameters)
        self.launcher = launcher or _launcher(plan)
        blocks = [(32, 1, 1), (64, 1, 1), (16, 2, 1), (8, 2, 2), (32, 2, 1)]
        for block, smem_bytes, cluster in shapes or [(block, 0, None) for block in blocks]:
            self.add(block, smem_bytes, cluster)

    def add(self, block: Any, smem_bytes: int = 0, cluster: Any = None, most_blocks: int = 0) -> None:
        config = LaunchConfig(
            grid=(1, 1, 1), block=block, smem_bytes=smem_bytes, cluster=cluster, cooperative=most_blocks > 0
        )
        self.launcher.add(
            (block, cluster or (0, 0, 0), config.cooperative, False, 0),
            _smem_range(config, NEEDS, ARCH),
            FUNCTION,
            CONTEXT,
            most_blocks,
            cluster or (1, 1, 1),
            False,
            LaunchLabel("", "echo", config, 0),
        )

    def native(self, args: list[Any], config: dict[str, Any]) -> bool:
        shape = (config.get("smem_bytes", 0), config.get("cluster"))
        flags = (config.get("cooperative", False), config.get("programmatic", False))
        given = (tuple(args), config["grid"], config["block"], *shape, *flags, config.get("device"))
        taken: bool = self.launcher.launch(*given)
        return taken

    def judged(self, args: list[Any], config: dict[str, Any]) -> tuple[str, Any]:
        """Why Python refuses a launch, or what it makes of it."""
        try:
            return "", self.python(args, config)
        except DotcuError as error:
            return str(error), None

    def python(self, args: list[Any], config: dict[str, Any]) -> tuple[LaunchConfig, Any]:
        """What Python makes of it; raises where it does not fit."""
        require_seen("echo", tensors_in(args))
        shape = (config["block"], config.get("smem_bytes", 0), config.get("cluster"))
        flags = (bool(config.get("cooperative", False)), bool(config.get("programmatic", False)))
        read = self.plans.config("echo", config["grid"], (*shape, *flags))
        require_one_device(self.plan, args, tensors_in(args))
        require_fit("echo", read, NEEDS, ARCH)
        to = Placement(lambda tensor, name, writable: tensor.data_ptr(), lambda *_: b"", lambda *_: 0)
        packed = pack(self.plan, args, to)
        return read, packed


@pytest.fixture
def in_python(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Callable[[PackingPlan], Any]:
    """Makes the launcher that serves without native code."""
    monkeypatch.setattr(native, "is_ready", lambda: False)
    functions = called_by_ctypes(driver.functions)
    fake = python_launcher.Driver(
        context=functions["context"], launch=functions["launch"], stream=lambda index: 0, on_cpu=True
    )
    return lambda plan: python_launcher.Launcher(plan, launch._fail, fake)


@pytest.fixture(params=["native", "python"])
def made_of(
    request: pytest.FixtureRequest, driver: Driver, in_python: Callable[[PackingPlan], Any]
) -> Callable[[PackingPlan], Road]:
    """Makes a road for a plan, of native code or of the launcher in Python."""
    if request.param == "python":
        return lambda plan: Road(driver, plan, launcher=in_python(plan))
    return lambda plan: Road(driver, plan)


@pytest.mark.parametrize("seed", range(12))
def test_what_native_code_launches_python_would_launch_the_same(
    driver: Driver, plans: dict[str, PackingPlan], seed: int
) -> None:
    agree(driver, plans["echo"], seed, calls=250)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_the_roads_agree_on_a_hundred_thousand_launches(
    driver: Driver, plans: dict[str, PackingPlan], seed: int
) -> None:
    agree(driver, plans["echo"], seed, calls=2000)


@pytest.mark.parametrize("seed", range(12))
def test_what_the_launcher_in_python_takes_is_launched_the_same(
    driver: Driver, plans: dict[str, PackingPlan], seed: int, in_python: Callable[[PackingPlan], Any]
) -> None:
    agree(driver, plans["echo"], seed, calls=250, launcher=in_python(plans["echo"]))


def agree(driver: Driver, plan: PackingPlan, seed: int, calls: int, launcher: Any = None) -> None:
    drawer, road = random_launches.Drawer(seed, "cpu"), Road(driver, plan, launcher=launcher)
    out = torch.zeros(random_launches.ECHO_BYTES, dtype=torch.uint8)
    taken = 0
    for call in range(calls):
        args, config = drawer.arguments(out), drawer.config()
        driver.launches.clear()
        before = _versions(args)
        by_native = road.native(args, config)
        after = _versions(args)
        given = [type(a) if isinstance(a, torch.Tensor) else a for a in args]
        where = f"seed {seed}, call {call}: {given}, {config}"
        refusal, made = road.judged(args, config)
        if made is None:
            assert not by_native, f"{where}: native code took what Python refuses: {refusal}"
            continue
        read, packed = made
        if not by_native:
            may_be_left = launcher is not None or _may_be_left(args, config)
            assert may_be_left, f"{where}: native code left what Python takes"
            continue
        taken += 1
        expected = [(read.grid, read.block, read.smem_bytes, packed[0])] if read.blocks else []
        assert driver.launches == expected, where
        if read.blocks:
            count_writes(packed[1])
        assert _difference(after, before) == _difference(_versions(args), after), where
    assert taken > calls // (6 if launcher is None else 12)  # else the drawing is at fault


def _versions(args: list[Any]) -> list[int]:
    return [tensor._version for tensor in tensors_in(args) if not tensor.is_inference()]


def _difference(after: list[int], before: list[int]) -> list[int]:
    return [now - then for now, then in zip(after, before, strict=True)]


def _may_be_left(args: list[Any], config: dict[str, Any]) -> bool:
    """Return whether native code may leave to Python what Python takes: flags, a device, a cluster."""
    flags = [config.get(name, False) for name in ("cooperative", "programmatic")]
    others = [config.get(name) for name in ("device", "cluster")]
    return any(flag is not False for flag in flags) or any(other is not None for other in others)


class Pair(ctypes.Structure):
    _fields_ = (("x", ctypes.py_object), ("n", ctypes.c_int))


class Plain(ctypes.Structure):
    _fields_ = (("x", ctypes.c_void_p), ("n", ctypes.c_int))


def test_structs_and_lists_of_tensors_are_left_to_python(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_inline("""
        struct Pair { float* x; int n; };
        __global__ void within(Pair pair, float* out) { out[0] = pair.x[pair.n]; }
        __global__ void listed(float* const* xs, float* out) { out[0] = xs[0][0]; }
    """)
    code = module.within.unit.code(Target.parse("compute_80"), simulated=True)
    x, config = torch.zeros(4), {"grid": 1, "block": 32}
    within, listed = Road(driver, code.plan("within")), Road(driver, code.plan("listed"))
    for value in ({"x": x, "n": 3}, Pair(x, 3)):
        assert not within.native([value, x], config)
        _, packed = within.python([value, x], config)
        assert packed[0][0][:12] == x.data_ptr().to_bytes(8, "little") + b"\3\0\0\0"
        assert packed[1] == (x, x)
    assert not listed.native([[x, x], x], config)
    assert driver.launches == []
    asked: list[str] = []
    monkeypatch.setattr(torch.Tensor, "__repr__", lambda *_, **__: asked.append("repr") or "")
    for value in ({"x": x, "n": 3}, namedtuple("Both", "x n")(x, 3), [x], {"x": [x]}, (x,)):
        assert not within.native([value, x], config)
    with pytest.raises(ArgumentError, match="got list of 1 values"):
        within.python([[x], x], config)
    monkeypatch.setattr(StructPacker, "pack", lambda *_: asked.append("pack"))
    assert not within.native([{"x": x, "n": 3}, x], config)
    monkeypatch.undo()
    assert asked == []
    driver.sizes = (16, 8)
    assert within.native([Plain(x.data_ptr(), 3), x], config), "what is bytes already needs no Python"
    assert driver.launches[0][3][0] == bytes(Plain(x.data_ptr(), 3))


def test_a_strided_tensor_takes_the_place_of_its_strides(
    driver: Driver, plans: dict[str, PackingPlan]
) -> None:
    road, x = Road(driver, plans["rows"]), torch.ones(4, 6).t()
    out = torch.zeros(64, dtype=torch.uint8)
    args, config = [out, strided(x), 5], {"grid": 1, "block": 32}
    assert road.native(args, config)
    assert driver.launches[0][3] == road.python(args, config)[1][0]
    for wrong in ([out, strided(x)], [out, strided(x[0]), 5], [out, strided(x), 5, 6], [strided(out), x, 5]):
        assert not road.native(wrong, config)


def test_a_launch_counts_its_writes_and_is_among_the_last_ones(
    driver: Driver, plans: dict[str, PackingPlan], made_of: Callable[[PackingPlan], Road]
) -> None:
    road = made_of(plans["rows"])
    use_native_record(native.library())
    out, x = torch.zeros(64, dtype=torch.uint8), torch.ones(8)
    with entering_scope(LaunchPolicy.BODY, operator="tests::rows"):
        assert road.native([out, x, 1, 2, 3], {"grid": (3, 2), "block": 64, "smem_bytes": 48})
        assert out._version == 0, "the schema of an operator says what its body writes"
    config = "grid=(3, 2, 1), block=(64, 1, 1), smem_bytes=48"
    assert str(recent_launches()[0]) == f"echo of tests::rows on cuda:0 with {config}"
    assert road.native([out, x, 1, 2, 3], {"grid": (3, 2), "block": 64, "smem_bytes": 48})
    assert (out._version, x._version) == (1, 0)
    with torch.inference_mode():
        made_there = torch.zeros(64, dtype=torch.uint8)
    assert road.native([made_there, x, 1, 2, 3], {"grid": 1, "block": 64}), "it has no version to count"


def test_an_empty_grid_launches_nothing(
    driver: Driver, plans: dict[str, PackingPlan], made_of: Callable[[PackingPlan], Road]
) -> None:
    road = made_of(plans["rows"])
    out, x = torch.zeros(64, dtype=torch.uint8), torch.ones(8)
    assert road.native([out, x, 1, 2, 3], {"grid": (0, 3), "block": 64})
    assert not road.native([out, x, 1, 2, 3.5], {"grid": (0, 3), "block": 64})
    assert not driver.launches
    assert out._version == 0


def test_what_the_driver_refuses_is_an_error_with_the_launch(
    driver: Driver, plans: dict[str, PackingPlan]
) -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    road = Road(driver, plans["rows"])
    driver.status = 99_999  # of no driver: to explain one takes a driver
    out, x = torch.zeros(64, dtype=torch.uint8), torch.ones(8)
    with pytest.raises(
        DotcuError,
        match=r"Launching echo on cuda:0 with grid=\(2, 1, 1\), block=\(64, 1, 1\), smem_bytes=48 ",
    ):
        road.native([out, x, 1, 2, 3], {"grid": 2, "block": 64, "smem_bytes": 48})
    assert out._version == 0


def test_a_thread_without_the_context_enters_and_leaves_it(
    driver: Driver, plans: dict[str, PackingPlan]
) -> None:
    road = Road(driver, plans["rows"])
    driver.current = 0
    out, x = torch.zeros(64, dtype=torch.uint8), torch.ones(8)
    assert road.native([out, x, 1, 2, 3], {"grid": 2, "block": 64})
    assert len(driver.launches) == 1
    assert not driver.stack


def test_a_cluster_and_a_cooperative_grid_keep_their_limits(
    driver: Driver, plans: dict[str, PackingPlan]
) -> None:
    road = Road(driver, plans["rows"], [((64, 1, 1), 0, (2, 1, 1))])
    road.add((128, 1, 1), most_blocks=10)
    args = [torch.zeros(64, dtype=torch.uint8), torch.ones(8), 1, 2, 3]
    assert road.native(args, {"grid": 4, "block": 64, "cluster": 2})
    assert not road.native(args, {"grid": 5, "block": 64, "cluster": 2})
    cooperative = {"block": 128, "cooperative": True}
    assert road.native(args, {"grid": 10, **cooperative})
    assert not road.native(args, {"grid": 11, **cooperative})
    assert not road.native(args, {"grid": 10, **cooperative, "smem_bytes": 16})  # fewer blocks may fit


def test_a_launch_has_the_attributes_of_its_plan(driver: Driver, plans: dict[str, PackingPlan]) -> None:
    road = Road(driver, plans["rows"], [((64, 1, 1), 0, (2, 1, 1)), ((64, 1, 1), 0, None)])
    config = LaunchConfig(grid=(1, 1, 1), block=(128, 1, 1))
    label = LaunchLabel("", "echo", config, 0)
    no_cluster, smem = (0, 0, 0), _smem_range(config, NEEDS, ARCH)
    for threads, cooperative, has_attribute in ((96, True, True), (128, False, False), (160, True, False)):
        shape = ((threads, 1, 1), no_cluster, cooperative, True, 0)
        road.launcher.add(shape, smem, FUNCTION, CONTEXT, 0, (2, 1, 1), has_attribute, label)
    args = [torch.zeros(64, dtype=torch.uint8), torch.ones(8), 1, 2, 3]
    expected: list[tuple[dict[str, Any], dict[int, tuple[int, ...]]]] = [
        ({"block": 64, "cluster": 2}, {4: (2, 1, 1)}),
        ({"block": 64}, {}),
        ({"block": 96, "cooperative": True, "programmatic": True}, {2: (1, 0, 0), 6: (1, 0, 0)}),
        ({"block": 128, "programmatic": True}, {}),  # before sm_90; its cluster is the kernel's own
        ({"block": 160, "cooperative": True, "programmatic": True}, {2: (1, 0, 0)}),
    ]
    for shape, attributes in expected * 2:
        assert road.native(args, {"grid": 2, **shape})
        assert driver.attributes == attributes
    assert not road.native(args, {"grid": 3, "block": 128, "programmatic": True})


def test_one_plan_takes_every_size_of_shared_memory_up_to_the_limit(
    driver: Driver, plans: dict[str, PackingPlan]
) -> None:
    road = Road(driver, plans["rows"], [((64, 1, 1), 1024, None)])
    args = [torch.zeros(64, dtype=torch.uint8), torch.ones(8), 1, 2, 3]
    sizes = [0, 16, 1024, 49153, ARCH.smem_block_bytes]
    for smem_bytes in sizes:
        assert road.native(args, {"grid": 1, "block": 64, "smem_bytes": smem_bytes})
    assert [smem_bytes for _, _, smem_bytes, _ in driver.launches] == sizes
    for smem_bytes in (-1, ARCH.smem_block_bytes + 1, 1 << 32, 1 << 63):
        assert not road.native(args, {"grid": 1, "block": 64, "smem_bytes": smem_bytes})
    assert len(driver.launches) == len(sizes)


@pytest.mark.parametrize("arch", LIMITS.values(), ids=lambda arch: str(arch.capability))
def test_a_block_with_the_most_shared_memory_fits_where_a_block_without_fits(arch: ArchLimits) -> None:
    for threads in (32, 1024):
        for registers in (32, 255):
            needs = KernelNeeds(registers=registers, static_smem_bytes=100)
            config = LaunchConfig(grid=(1, 1, 1), block=(threads, 1, 1))
            least, most = _smem_range(config, needs, arch)
            verdicts = [
                _refusal(replace(config, smem_bytes=size), needs, arch) for size in (least, most, most + 1)
            ]
            assert verdicts[0] == verdicts[1]
            assert "bytes of shared memory per block" in verdicts[2]


def _refusal(config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits) -> str:
    try:
        require_fit("k", config, needs, arch)
    except LaunchConfigError as error:
        return str(error)
    return ""


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of torch 2.11
def test_what_must_see_a_launch_leaves_it_to_python(
    driver: Driver, plans: dict[str, PackingPlan], made_of: Callable[[PackingPlan], Road]
) -> None:
    road = made_of(plans["rows"])
    out, x, config = torch.zeros(64, dtype=torch.uint8), torch.ones(8), {"grid": 1, "block": 64}
    args = [out, x, 1, 2, 3]

    def taken() -> bool:
        return road.native(args, config)

    assert taken()
    with _Mode():
        assert not taken()
    with watching_launches(), listening_for_kernels(lambda intended: None):
        assert not taken()
    with torch.profiler.profile():
        assert not taken()
    for place in (LaunchPolicy.SKIP, LaunchPolicy.REFUSE):
        with entering_scope(place):
            assert not taken()
    with settings.override(launch_blocking=True):
        assert not taken()
    with forward_ad.dual_level():
        args[1] = forward_ad.make_dual(x, torch.ones(8))
        assert not taken()
        args[1] = x
    with torch.inference_mode(), torch.autocast("cpu"), torch.device("cpu"):
        assert taken()
    traces: list[bool] = []
    for above_autograd in (False, True):
        make_fx(lambda x: (traces.append(taken()), x + 1)[1], pre_dispatch=above_autograd)(x)
    assert traces == [False, False]
    assert taken()


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated")
def test_a_jit_trace_leaves_a_launch_to_python(
    driver: Driver, plans: dict[str, PackingPlan], made_of: Callable[[PackingPlan], Road]
) -> None:
    road, traces = made_of(plans["rows"]), []
    out = torch.zeros(64, dtype=torch.uint8)

    def traced(x: torch.Tensor) -> torch.Tensor:
        traces.append(road.native([out, x, 1, 2, 3], {"grid": 1, "block": 64}))
        return x + 1

    torch.jit.trace(traced, (torch.ones(8),), check_trace=False)
    assert traces == [False]


def test_a_tensor_that_requires_a_gradient_is_refused_outside_an_operator_alone(
    driver: Driver, plans: dict[str, PackingPlan], made_of: Callable[[PackingPlan], Road]
) -> None:
    road, config = made_of(plans["rows"]), {"grid": 1, "block": 64}
    args = [torch.zeros(64, dtype=torch.uint8), torch.ones(8, requires_grad=True), 1, 2, 3]
    assert not road.native(args, config)
    with torch.no_grad():
        assert road.native(args, config)
    with entering_scope(LaunchPolicy.BODY):
        assert road.native(args, config)


def test_the_launcher_in_python_keeps_a_bounded_number_of_shapes(
    driver: Driver, plans: dict[str, PackingPlan], in_python: Callable[[PackingPlan], Any]
) -> None:
    launcher = in_python(plans["rows"])
    road = Road(driver, plans["rows"], [((n, 1, 1), 0, None) for n in range(1, 1000)], launcher)
    args = [torch.zeros(64, dtype=torch.uint8), torch.ones(8), 1, 2, 3]
    assert road.native(args, {"grid": 1, "block": 999})
    assert len(launcher._plans) <= python_launcher.MAX_SHAPES


def test_threads_launch_at_once(
    driver: Driver, plans: dict[str, PackingPlan], made_of: Callable[[PackingPlan], Road]
) -> None:
    road = made_of(plans["rows"])
    wrong: list[Any] = []

    def launch(number: int) -> None:
        out, x = torch.zeros(64, dtype=torch.uint8), torch.ones(8)
        for turn in range(200):
            if not road.native([out, x, number, turn, 3], {"grid": 1 + number, "block": 32 * (1 + turn % 2)}):
                wrong.append((number, turn))

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(driver.launches) == 800
    found = {
        (grid[0] - 1, int.from_bytes(parameters[2], "little")) for grid, _, _, parameters in driver.launches
    }
    assert all(number == given for number, given in found)


def test_native_code_takes_a_plan_after_an_override_within_another(
    plans: dict[str, PackingPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []
    launcher = SimpleNamespace(add=lambda *row: rows.append(row), launch=lambda *launch: True)
    monkeypatch.setattr(launch, "_launcher", lambda plan, in_python: launcher)
    monkeypatch.setattr(native, "prepare", lambda: "")
    monkeypatch.setattr(cuda, "primary_context", lambda index: CONTEXT)
    library = SimpleNamespace(kernel=lambda symbol, index: FUNCTION)
    code: Any = SimpleNamespace(library=lambda kernel: library, symbol=lambda name: name)
    config, kept = LaunchConfig(grid=(1, 1, 1), block=(64, 1, 1)), LaunchPlans()
    with settings.override(debug=True) as before:
        plan = LaunchPlan(
            code=code, packing=plans["rows"], needs=NEEDS, arch=ARCH, most_blocks=0,
            settings=before,
        )  # fmt: skip
        with settings.override(simulate=True):
            kept.keep("rows", 0, config, plan)
            assert not rows  # what is compiled may depend on the settings
        kept.keep("rows", 0, config, plan)
        assert len(rows) == 1


def test_forgotten_plans_are_prepared_anew(driver: Driver, plans: dict[str, PackingPlan]) -> None:
    road, config = Road(driver, plans["rows"]), {"grid": 1, "block": 64}
    args = [torch.zeros(64, dtype=torch.uint8), torch.ones(8), 1, 2, 3]
    assert road.native(args, config)
    road.launcher.forget()
    assert not road.native(args, config)
    road.add((64, 1, 1))
    assert road.native(args, config)


TILES = """
#include "cuda_tile.h"
namespace ct = cuda::tiles;

__tile_global__ void tiled(float* x_, int n_, unsigned m_, long long k_) {
    auto x = ct::assume_aligned<32>(x_);
    auto n = ct::assume_bounded_below<0>(n_);
    auto m = ct::assume_divisible<4>(m_);
    auto k = ct::assume_bounded_below<1>(ct::assume_divisible<8>(k_));
    x[n] = float(m) + float(k);
}
"""


def test_what_a_tile_kernel_assumes_native_code_and_python_check_alike(driver: Driver) -> None:
    plan = load_inline(TILES).tiled.unit.code(Target.parse("compute_80"), simulated=True).plan("tiled")
    road, x = Road(driver, plan, [((1, 1, 1), 0, None)]), torch.zeros(64)
    x = x[(-x.data_ptr() // 4) % 8 :][:48]  # at an address divisible by 32
    config = {"grid": 3, "block": 1}
    taken = 0
    for tensor in (x, x[4:], x[8:]):
        for n, m, k in itertools.product(
            (-1, 0, 7), (0, 4, 6, 2**31 - 4, 2**31, 2**32 - 4), (-8, 0, 4, 2**40)
        ):
            args = [tensor, n, m, k]
            refused, made = road.judged(args, config)
            assert road.native(args, config) == (not refused), (args[1:], refused)
            if not refused:
                assert driver.launches[-1][3] == made[1][0]
                taken += 1
    assert 0 < taken < 3 * 3 * 6 * 5
    args = [extents(x[8:16]), 8, 16]  # n is its size
    assert road.native(args, config) == (not road.judged(args, config)[0])


def test_extents_take_the_place_of_the_sizes(driver: Driver) -> None:
    source = "__global__ void sized(float* x, int rows, long long columns, float by) {}"
    plan = load_inline(source).sized.unit.code(Target.parse("compute_80"), simulated=True).plan("sized")
    road, x, config = Road(driver, plan), torch.ones(3, 5), {"grid": 1, "block": 32}
    assert road.native([extents(x), 2.0], config)
    assert driver.launches[0][3] == road.python([x, 3, 5, 2.0], config)[1][0]
    for wrong in ([extents(x.t()), 2.0], [extents(x[0]), 2.0], [extents(x)], [x, extents(x), 2.0]):
        assert not road.native(wrong, config)
        assert road.judged(wrong, config)[0]


def test_a_tensor_map_is_encoded_once_for_a_layout_and_its_values(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[Any] = []

    def encode(tiled: Any, address: int, index: int) -> bytes:
        encoded.append(tiled)
        words = [len(encoded)] * 16
        words[MAP_ADDRESS] = address
        return struct.pack("<16Q", *words)

    monkeypatch.setattr(cuda, "encode_tensor_map", encode)
    source = """
        #include <cuda.h>
        __global__ void mapped(const __grid_constant__ CUtensorMap map, int n) {
            asm volatile("prefetch.tensormap [%0];" :: "l"(&map));
        }
    """
    plan = load_inline(source).mapped.unit.code(Target.parse("compute_90"), simulated=True).plan("mapped")
    road, config, x = Road(driver, plan), {"grid": 1, "block": 32}, torch.zeros(64, 64)

    def told() -> tuple[int, int]:
        """Return which map the last launch got, and for what address."""
        words = struct.unpack("<16Q", driver.launches[-1][3][0])
        assert set(words[:MAP_ADDRESS] + words[MAP_ADDRESS + 1 :]) == {words[0]}
        return words[0], words[MAP_ADDRESS]

    maps = [
        lambda: tensor_map(x, box=(8, 32)),
        lambda: tensor_map(x, box=(16, 32)),
        lambda: tensor_map(x, box=(8, 32), swizzle=128),
        lambda: tensor_map(x[8:], box=(8, 32)),
        lambda: tensor_map(x[:, :32], box=(8, 32)),
        lambda: tensor_map(x.view(torch.int32), box=(8, 32)),
    ]
    for _ in range(3):
        for number, make in enumerate(maps, 1):
            assert road.native([make(), 4], config)
            assert told() == (number, make().tensor.data_ptr())
    assert len(encoded) == len(maps)
    assert not road.native([tensor_map(x, box=(8, 3)), 4], config), "a box that the hardware does not take"

    many = [torch.zeros(8, 32) for _ in range(80)]  # elsewhere each, as the layers of a model are
    for tensor in many * 2:
        assert road.native([tensor_map(tensor, box=(8, 32)), 4], config)
        assert told() == (len(maps) + 1, tensor.data_ptr())
    assert len(encoded) == len(maps) + 1
    for start in (0, 4, 8):  # of a tensor without elements the kernel gets zeros, wherever it is
        assert road.native([tensor_map(x[start:start], box=(8, 32)), 4], config)
        assert driver.launches[-1][3][0] == bytes(128)
    odd = torch.zeros(8 * 32 + 1)[1:].view(8, 32)
    assert odd.data_ptr() % 16
    assert not road.native([tensor_map(odd, box=(8, 32)), 4], config), "no map begins there"
    driver.map_status = 1
    assert road.native([tensor_map(many[0], box=(8, 32)), 4], config), "encoded anew where it cannot move"
    assert told() == (len(maps) + 2, many[0].data_ptr())
