"""Triton kernels in `simulate()`: a driver that Triton compiles for and launches by, without a GPU.

Triton asks its active driver for the target to compile for, to load what it has compiled, and to launch it.
This one names the architecture of the run, keeps the PTX, and launches it in the simulator. Where a thread
has no run, it passes everything on to Triton's own driver.

Source: triton/runtime/driver.py (`set_active`), triton/backends/driver.py (`DriverBase`), triton/knobs.py
(`add_stages_inspection_hook`); seen in Triton 3.7 to 3.9.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.cache import FileCacheManager

from dotcu.errors import SimulationError
from dotcu.kernel.config import MAX_THREADS_PER_BLOCK, WARP, limits
from dotcu.kernel.languages.arguments import MAP_TYPES, SWIZZLES, LaunchArguments
from dotcu.kernel.simulated_memory import active_run, capability_of, print_output
from dotcu.locks import ForkSafeLock
from dotcu.simulator import Map, Program, Run, launch

OLDEST = (3, 7)
"""The first Triton whose cache keeps what a hook of its stages compiles apart from what a GPU runs."""

if tuple(int(part) for part in re.findall(r"\d+", triton.__version__)[:2]) < OLDEST:
    raise ImportError(f"the simulator takes kernels of Triton {OLDEST[0]}.{OLDEST[1]} and later")

MAX_PROGRAMS = 256
"""Kernels whose PTX stays read."""

DEVICE = 1 << 20
"""Added to an architecture's number: the number of the device that simulates it, which no GPU has."""

STAGES = "dotcu: the simulator executes PTX"
"""By it Triton keeps what it compiles here apart from what it compiles for a GPU."""

FORMATS = {
    "i1": "?", "u1": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I",
    "i64": "q", "u64": "Q", "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip
"""How `struct` packs a value of a type of Triton's; bf16 it does not know."""

_INLINE = re.compile(r"^\t// begin inline asm\n(.*?)^\t// end inline asm\n", re.MULTILINE | re.DOTALL)
_LOC = re.compile(r"^\t\.loc\t.*\n", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A kernel that Triton has compiled, ready to launch."""

    name: str
    program: Program


@functools.lru_cache(maxsize=MAX_PROGRAMS)
def read(name: str, ptx: bytes) -> Loaded:
    """Read the PTX of a kernel.

    Triton inlines its loads and stores as text, and LLVM counts the lines of that text on from the line of
    the Python file. The line is the one before the text.
    """
    text = _INLINE.sub(lambda match: _LOC.sub("", match[0]), ptx.decode())
    return Loaded(name=name, program=Program.parse(text, language="triton"))


@functools.lru_cache(maxsize=MAX_PROGRAMS)
def placed(program: Program, file: str) -> Program:
    """Return a program whose findings name the kernel's file: Triton may have cached it as that of a copy."""
    others = [path for path in program.files.values() if path != file and Path(path).name == Path(file).name]
    return Program(program.module, dict.fromkeys(others, file), {}, "triton") if others else program


class TritonUtilities:
    """The functions that Triton calls as `driver.active.utils`."""

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[None, Loaded, int, int, int]:
        """Return a module, a function, registers and spills of a thread, and the threads of a block at most.

        There is no module: Triton would unload it after the run, when its own driver is active again.
        Only ptxas knows registers; these are what a thread has if a multiprocessor is full, since scripts
        divide by them.
        """
        found = limits(*divmod(device - DEVICE, 10))
        registers = found.registers // (WARP * found.warps)
        return None, read(name, binary), registers, 0, MAX_THREADS_PER_BLOCK

    def unload_module(self, module: object) -> None:
        """Nothing was loaded."""

    def get_device_properties(self, device: int | None) -> dict[str, int]:
        """Return what Triton and its users ask of a GPU; the clocks, which nothing here has, are 1.

        Args:
            device: Any number: a script asks by torch's, or by `torch.device("cpu").index`, None.
        """
        run = active_run()
        found = limits(*(capability_of(run.arch) if run is not None else divmod((device or 0) - DEVICE, 10)))
        return {
            "max_shared_mem": found.smem_block_bytes,
            "max_num_regs": found.registers,
            "multiprocessor_count": found.multiprocessors,
            "warpSize": WARP,
            "sm_clock_rate": 1,
            "mem_clock_rate": 1,
            "mem_bus_width": 1,
        }


class TritonArguments(LaunchArguments):
    """Arguments by the types that Triton gives them."""

    def __init__(self, kernel: str, maps: Sequence[Any]) -> None:
        super().__init__(kernel)
        self._maps = list(maps)

    def add(self, label: str, kind: Any, value: Any) -> None:
        """Pack an argument.

        Args:
            label: Its name in findings.
            kind: Its type as Triton writes it: "*fp32", "i64", "constexpr", a tuple of such.
            value: What was passed.
        """
        if isinstance(kind, tuple):
            for number, (each, inner) in enumerate(zip(kind, value, strict=True)):
                self.add(f"{label}[{number}]", each, inner)
        elif kind.startswith("*"):
            self.put(label, "Q", self._pointer(label, value))
        elif kind.startswith("tensordesc"):
            self._descriptor(label, value)
        elif kind == "bf16":
            self.put_bytes(
                label, torch.tensor(value, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
            )
        elif kind in FORMATS:
            self.put(label, FORMATS[kind], value)
        elif kind != "constexpr":
            raise SimulationError(
                f"The argument {label} of {self.kernel} has the type {kind}, which the simulator does not "
                f"pass.\nPass one of: {', '.join(FORMATS)}, bf16, a tensor or a tensor descriptor."
            )

    def _pointer(self, label: str, value: Any) -> int:
        """Return the address of a tensor, or of what has one of its own."""
        if value is None or isinstance(value, int):
            return value or 0
        tensor = value if isinstance(value, Tensor) else getattr(value, "base", None)
        if isinstance(tensor, Tensor):
            return self.address(label, tensor)
        if isinstance(getattr(value, "untyped_storage", int)(), torch.UntypedStorage):
            return self.storage_address(label, value)
        return int(value.data_ptr())

    def _descriptor(self, label: str, value: Any) -> None:
        """Pass a tensor descriptor: a tensor map of the hardware if the kernel has one, else its parts."""
        tensor, layout = value.base, self._maps.pop(0) if self._maps else None
        address = self._pointer(label, tensor)
        if layout is None:
            self.put(label, "Q", address)
            for number in (*value.shape, *value.strides):
                self.put(label, "q", number)
            self.put(label, "?", value.padding == "nan")
            self.put(label, "?", getattr(value, "round_f32_to_tf32", False))
        else:
            self.put_bytes(label, self._map(label, value, layout, address))
        for number in value.shape:
            self.put(label, "i", number)
        for number in value.strides:
            self.put(label, "q", number)

    def _map(self, label: str, value: Any, layout: Any, address: int) -> bytes:
        if value.padding == "nan" or layout.get("fp4_padded") or layout.get("is_im2col"):
            raise SimulationError(
                f"The tensor descriptor {label} of {self.kernel} pads with NaN, holds fp4, or is an im2col "
                'descriptor, which the simulator does not pass.\nPass padding="zero", or run it on a GPU.'
            )
        itemsize = value.base.itemsize
        return Map(
            address=address,
            sizes=tuple(reversed(value.shape)),
            strides_bytes=tuple(itemsize * stride for stride in reversed(value.strides[:-1])),
            box=tuple(reversed(layout["block_size"])),
            steps=(1,) * len(value.shape),
            type=MAP_TYPES[layout["elem_type"]],
            swizzle=SWIZZLES[layout["swizzle"]],
        ).encode()


class TritonLauncher:
    """A launcher: Triton makes one for a kernel, and calls it for each launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self._signature = dict(src.signature)
        self._metadata = metadata
        function = getattr(getattr(src, "fn", None), "fn", None)
        self._file = function.__code__.co_filename if function is not None else ""

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Loaded, packed: Any, launch_metadata: Any,
        enter: Callable[[Any], Any] | None, leave: Callable[[Any], Any] | None, *args: Any,
    ) -> None:  # fmt: skip
        run = active_run()
        if run is None:
            raise SimulationError(
                "A Triton kernel that was compiled in simulate() was launched outside of it."
            )
        if enter is not None:
            enter(launch_metadata)
        given, metadata = (
            TritonArguments(function.name, getattr(self._metadata, "tensordesc_meta", None) or ()),
            self._metadata,
        )
        for (label, kind), value in zip(self._signature.items(), args, strict=True):
            given.add(str(label), kind, value)
        programs = x * y * z * metadata.num_ctas
        given.scratch("the global scratch memory", programs * metadata.global_scratch_size)
        given.scratch("the profile scratch memory", programs * metadata.profile_scratch_size)
        if programs:
            self._run(run, function, given, (x * metadata.num_ctas, y, z))
        if leave is not None:
            leave(launch_metadata)

    def _run(self, run: Run, function: Loaded, given: TritonArguments, grid: tuple[int, int, int]) -> None:
        metadata, printed = self._metadata, len(run.output)
        try:
            launch(
                placed(function.program, self._file),
                function.name,
                params=given.packed,
                memory=given.memory,
                grid=grid,
                block=(metadata.num_warps * WARP, 1, 1),
                smem_bytes=metadata.shared,
                run=run,
                kernel=function.name,
                parameter_names=tuple(given.names),
                caller=given.caller,
                cluster=(metadata.num_ctas, 1, 1) if metadata.num_ctas > 1 else None,
                cooperative=bool(metadata.launch_cooperative_grid),
                programmatic=bool(getattr(metadata, "launch_pdl", False)),
            )
        finally:
            print_output(run, printed)


class TritonDriver:
    """The simulator to a thread that has a run, and Triton's own driver to all others."""

    def __init__(self) -> None:
        self._utilities = TritonUtilities()

    @property
    def _own(self) -> Any:
        """Triton's own driver, for a GPU."""
        try:
            return triton.runtime.driver.default
        except RuntimeError as error:
            if not _runs:
                raise
            raise SimulationError(
                f"A thread that is not in simulate() launched a Triton kernel, and there is no GPU: {error}\n"
                "simulate() holds for the thread that entered it, and for copies of its context.\n"
                "Type: threading.Thread(target=contextvars.copy_context().run, args=(function,))"
            ) from None

    def __getattr__(self, name: str) -> Any:
        """Fetch what only Triton's own driver has."""
        return getattr(self._own, name)

    @property
    def utils(self) -> Any:
        return self._utilities if active_run() is not None else self._own.utils

    @property
    def launcher_cls(self) -> Any:
        return TritonLauncher if active_run() is not None else self._own.launcher_cls

    def get_current_device(self) -> int:
        run = active_run()
        if run is None:
            return int(self._own.get_current_device())
        return DEVICE + capability_number(run)

    def set_current_device(self, device: int) -> None:
        if active_run() is None:
            self._own.set_current_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        if active_run() is None:
            return int(self._own.get_current_stream(device))
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        run = active_run()
        if run is None:
            major, minor = self._own.get_device_capability(device)
            return major, minor
        return capability_of(run.arch)

    def get_current_target(self) -> GPUTarget:
        run = active_run()
        if run is None:
            return self._own.get_current_target()
        return GPUTarget("cuda", capability_number(run), WARP)

    def get_active_torch_device(self) -> torch.device:
        if active_run() is None:
            device: torch.device = self._own.get_active_torch_device()
            return device
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        if active_run() is None:
            return self._own.get_device_interface()
        return torch.cuda if torch.cuda.is_available() else torch.cpu

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return what an autotuner times configurations with, and keeps, for GPUs and the simulator."""
        return self._benchmark

    def _benchmark(self, call: Callable[[], Any], *args: Any, **settings: Any) -> Any:
        """Time a configuration on a GPU; in the simulator every one is as fast as the first."""
        if active_run() is None:
            return self._own.get_benchmarker()(call, *args, **settings)
        return take_first(call, *args, **settings)


def take_first(call: Callable[[], Any], quantiles: Sequence[float] = (), **settings: Any) -> list[float]:
    """Time nothing: to an autotuner every configuration is as fast as the first."""
    return [0.0] * max(1, len(quantiles))


def capability_number(run: Run) -> int:
    """Return an architecture as Triton writes it: 90 for sm_90a."""
    major, minor = capability_of(run.arch)
    return 10 * major + minor


def without_timings(manager: type[Any]) -> type[Any]:
    """Return a manager of Triton's cache that keeps no timings of a run, which a GPU would choose by."""

    class WithoutTimings(manager):  # type: ignore[misc]  # a class chosen at run time
        def put(self, data: Any, filename: str, *args: Any, **named: Any) -> Any:
            if active_run() is not None and filename.endswith(".autotune.json"):
                return ""
            return super().put(data, filename, *args, **named)

    return WithoutTimings


_lock = ForkSafeLock()
_runs = 0
_driver = TritonDriver()
_others_hook: Any = None
_others_manager: Any = None


@contextmanager
def simulated() -> Iterator[None]:
    """Take the launches of Triton's kernels into the simulator, in threads that have a run."""
    global _runs, _others_hook, _others_manager
    with _lock:
        _runs += 1
        if _runs == 1:
            triton.runtime.driver.set_active(_driver)
            _others_hook = knobs.runtime.add_stages_inspection_hook
            knobs.runtime.add_stages_inspection_hook = stages
            _others_manager = knobs.cache.manager_class
            knobs.cache.manager_class = without_timings(_others_manager or FileCacheManager)
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if not _runs:
                knobs.runtime.add_stages_inspection_hook = _others_hook
                knobs.cache.manager_class = _others_manager


def stages(*args: Any) -> Any:
    """Compile to PTX and no further; without arguments, say so for Triton's cache.

    Args:
        args: The backend, the stages by name, the options, the language and the capability.
    """
    if active_run() is None:
        return _others_hook(*args) if _others_hook is not None else ("", "")
    if args:
        args[1]["cubin"] = lambda ptx, metadata: ptx.encode()
    return STAGES, STAGES
