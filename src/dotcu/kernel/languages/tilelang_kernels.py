"""TileLang kernels in `simulate()`: the CUDA C++ that TileLang emits, compiled by NVRTC and simulated.

TileLang lowers a kernel for a target that is named, without a GPU: to the text of a `.cu` file, and to a
function in Python that packs the arguments, encodes tensor maps and launches, for its NVRTC backend. Here
that function gets a driver that launches in the simulator.

TileLang has no public way to add a backend, so two things are used that it may change without notice; with
another TileLang, a launch ends with an error that says so:

- `tilelang.compile`, by which `@tilelang.jit` and users compile, is replaced while a run is in force.
- `TLPyWrapper` writes the launching function. Source: tilelang/jit/adapter/nvrtc; seen in TileLang 0.1.15.
"""

from __future__ import annotations

import builtins
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tilelang
import torch
from tilelang import tvm

from dotcu.compile import CompileOptions, Source, Target, build, cache, inline_source, read_source
from dotcu.errors import ArgumentError, SimulationError
from dotcu.kernel.languages.arguments import MAP_TYPES, SWIZZLES, LaunchArguments
from dotcu.kernel.languages.replacing import Replacement
from dotcu.kernel.simulated_memory import active_run, capability_of, print_output
from dotcu.simulator import Map, Program, Run, launch

SUCCESS = 0
_PRELUDE = "#include <tl_templates/cuda/nvrtc_std.h>\n#include <cuda_device_runtime_api.h>\n"
"""What TileLang's headers want of NVRTC, as its own NVRTC backend gives it."""


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A kernel that TileLang has lowered for an architecture, ready to launch.

    Attributes:
        parameters: TileLang's descriptions of the arguments, with the shape of each.
        text: The launching function, in Python.
    """

    program: Program
    source: Source
    parameters: Sequence[Any]
    text: str


class TileLangKernel:
    """A kernel that `tilelang.compile` returns in `simulate()`, called as TileLang's own `JITKernel`."""

    def __init__(self, prim_func: Any, out_idx: Any, given: Mapping[str, Any]) -> None:
        self.prim_func, self._given = prim_func, given
        attributes = dict(prim_func.attrs or {})
        self.name = str(attributes.get("global_symbol", "kernel"))
        self._passes = {
            "tl.emit_line_directives": True,  # findings name lines of the Python file
            **dict(attributes.get("tilelang_pass_configs", {})),
            **(given["pass_configs"] or {}),
        }
        outputs = attributes.get("tilelang_out_idx") if out_idx is None else out_idx
        count = len(prim_func.params)
        self.out_idx = [
            int(number) % count for number in ([outputs] if isinstance(outputs, int) else outputs or ())
        ]
        self._arguments = {"out_idx": out_idx, **given}
        self._lowered: dict[str, Lowered] = {}
        self._on_gpu: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch on CPU tensors in the simulator; outside of a run, as TileLang does."""
        run = active_run()
        if run is None:
            self._on_gpu = self._on_gpu or tilelang.compile(self.prim_func, **self._arguments)
            return self._on_gpu(*args, **kwargs)
        lowered = self._lower(run)
        names = [
            str(p.name) if self._buffer(p) is None else str(self._buffer(p).data.name)
            for p in self.prim_func.params
        ]
        inputs = [number for number in range(len(names)) if number not in self.out_idx]
        if len(args) != len(inputs):
            raise ArgumentError(
                f"{self.name} got {len(args)} arguments.\nIt takes {len(inputs)}: "
                f"{', '.join(names[number] for number in inputs)}.\nPass those, in order."
            )
        values = dict(zip(inputs, args, strict=True))
        sizes = self._sizes(values)
        for number, value in values.items():
            self._require(names[number], lowered.parameters[number], value, sizes)
        for number in self.out_idx:
            parameter = lowered.parameters[number]
            values[number] = torch.empty(_shape(parameter, sizes), dtype=parameter.torch_dtype())
        given = {name: values[number] for number, name in enumerate(names)}
        TileLangLaunch(self.name, lowered, run).call({**sizes, **given})
        results = [values[number] for number in self.out_idx]
        return results[0] if len(results) == 1 else results

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """Return the text of the `.cu` file that findings name the lines of."""
        return self._lower(active_run() or Run()).source.text

    def _buffer(self, parameter: Any) -> Any:
        return self.prim_func.buffer_map.get(parameter, None)

    def _require(self, name: str, parameter: Any, value: Any, sizes: Mapping[str, int]) -> None:
        """Refuse a tensor of another type or shape than the kernel is compiled for."""
        if not isinstance(value, torch.Tensor):
            return
        shape, dtype = _shape(parameter, sizes), parameter.torch_dtype()
        if tuple(value.shape) != shape or value.dtype != dtype:
            raise ArgumentError(
                f"The argument {name} of {self.name} got shape {tuple(value.shape)} and {value.dtype}.\n"
                f"The kernel is compiled for shape {shape} and {dtype}.\n"
                f"Pass such a tensor, or compile the kernel for this one."
            )

    def _sizes(self, values: Mapping[int, Any]) -> dict[str, int]:
        """Return the shapes and strides that the kernel leaves open, by their names."""
        sizes: dict[str, int] = {}
        for number, parameter in enumerate(self.prim_func.params):
            buffer, tensor = self._buffer(parameter), values.get(number)
            if buffer is not None and isinstance(tensor, torch.Tensor):
                for expected, got in ((buffer.shape, tensor.shape), (buffer.strides, tensor.stride())):
                    for each, size in zip(expected, got, strict=False):
                        if isinstance(each, tvm.tirx.Var):
                            sizes.setdefault(str(each.name), int(size))
            elif buffer is None and number in values:
                sizes[str(parameter.name)] = values[number]
        return sizes

    def _lower(self, run: Run) -> Lowered:
        capability = capability_of(run.arch)
        arch = (
            "sm_90a" if capability == (9, 0) else f"sm_{capability[0]}{capability[1]}"
        )  # wgmma is of sm_90a
        if arch not in self._lowered:
            self._lowered[arch] = self._lower_for(arch)
        return self._lowered[arch]

    def _lower_for(self, arch: str) -> Lowered:
        from tilelang.jit.adapter.wrapper import TLPyWrapper

        target = tvm.target.Target({"kind": "cuda", "arch": arch})
        with tvm.transform.PassContext(opt_level=3, config=self._passes), target:
            artifact = tilelang.lower(self.prim_func, target=target)
        wrapper = TLPyWrapper(target)
        wrapper.assign_optimized_module(tvm.IRModule({self.name: self.prim_func}))
        wrapper.assign_pass_configs(self._passes)
        wrapper.assign_host_module(artifact.host_mod)
        wrapper.assign_device_module(artifact.device_mod)
        text = wrapper.wrap(artifact.kernel_source)["host_func"]
        source = kept(self.name, f"{_PRELUDE}{artifact.kernel_source}")
        code = build(
            source,
            options=CompileOptions(options=("-w",)),  # the warnings are about TileLang's own headers
            target=Target.parse(arch).virtual,
            names=(),
            simulated=True,
            probed=False,
        )
        texts = {source.display: source.text} if source.path is None else {}
        program = Program.parse(code.ptx, code.files, texts)
        return Lowered(program=program, source=source, parameters=artifact.params, text=text)


def _shape(parameter: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an argument, with the sizes that a kernel leaves open."""
    return tuple(
        sizes[str(each.name)] if isinstance(each, tvm.tirx.Var) else int(each) for each in parameter.shape
    )


def kept(name: str, text: str) -> Source:
    """Return a text as a source of the cache's folder, where a user can open it."""
    package = Path(tilelang.__file__).parent
    include = (package / "src", package / "3rdparty" / "cutlass" / "include")
    folder = cache.location() / "tilelang"
    path = folder / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}.cu"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError:
        return inline_source(text, path.name, include)
    return read_source(path, include)


class TileLangLaunch:
    """A driver for a launching function: what it calls of `cuda.bindings.driver`, in the simulator."""

    def __init__(self, name: str, lowered: Lowered, run: Run) -> None:
        self._lowered, self._run = lowered, run
        self._given = LaunchArguments(name)
        self.module = SimpleNamespace(
            CUresult=SimpleNamespace(CUDA_SUCCESS=SUCCESS),
            CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=None),
            CUlaunchAttributeID=SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=None),
            CUlaunchConfig=SimpleNamespace,
            CUlaunchAttribute=lambda: SimpleNamespace(value=SimpleNamespace()),
            CUtensorMapDataType=int,
            CUtensorMapInterleave=int,
            CUtensorMapSwizzle=int,
            CUtensorMapL2promotion=int,
            CUtensorMapFloatOOBfill=int,
            CUdevice=lambda index: index,
            CUkernel=str,
            cuuint32_t=int,
            cuuint64_t=int,
            cuKernelSetAttribute=lambda *args: (SUCCESS,),
            cuLaunchKernelEx=self._launch,
            cuTensorMapEncodeTiled=self._tiled,
            cuTensorMapEncodeIm2col=self._im2col,
        )

    def call(self, values: Mapping[str, Any]) -> None:
        """Run the launching function on the arguments, by its names of them."""

        def imported(name: str, *args: Any, **kwargs: Any) -> Any:
            return (
                self.module if name == "cuda.bindings.driver" else builtins.__import__(name, *args, **kwargs)
            )

        scope: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": imported}}
        exec(self._lowered.text, scope)
        function: Callable[..., None] = scope["call"]
        names = list(inspect.signature(function).parameters)[1:-1]
        function(
            {name: name for name in scope["_function_names"]},
            *(self._passed(name, values[name]) for name in names),
        )

    def _passed(self, name: str, value: Any) -> Any:
        """Return what stands for an argument: a tensor that is in the simulator's memory."""
        if not isinstance(value, torch.Tensor):
            return value
        address = self._given.address(name, value)
        return SimpleNamespace(data_ptr=lambda: address, device=SimpleNamespace(index=0))

    def _tiled(
        self, kind: int, rank: int, address: int, sizes: list[int], strides: list[int], box: list[int],
        steps: list[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> tuple[int, bytes]:  # fmt: skip
        if kind not in MAP_TYPES or interleave or fill or swizzle >= len(SWIZZLES):
            raise SimulationError(
                f"A tensor map of {self._given.kernel} has the type {kind}, interleave {interleave}, swizzle "
                f"{swizzle} and fill {fill}, which the simulator does not pass.\n"
                "Copy that tensor without TMA, or run the kernel on a GPU."
            )
        encoded = Map(
            address=address,
            sizes=tuple(sizes),
            strides_bytes=tuple(strides),
            box=tuple(box),
            steps=tuple(steps),
            type=MAP_TYPES[kind],
            swizzle=SWIZZLES[swizzle],
        ).encode()
        return SUCCESS, encoded

    def _im2col(self, *args: Any) -> tuple[int, bytes]:
        raise SimulationError(
            f"{self._given.kernel} reads by an im2col tensor map, which the simulator does not pass for "
            'TileLang.\nLower it for an architecture without TMA: simulate(arch="sm_80").'
        )

    def _launch(self, config: Any, name: str, args: tuple[Any, Any], extra: int) -> tuple[int]:
        packed = []
        for value, kind in zip(*(each if isinstance(each, tuple) else (each,) for each in args), strict=True):
            packed.append(value if kind is None else bytes(kind(value)))
        printed = len(self._run.output)
        try:
            launch(
                self._lowered.program,
                name,
                params=packed,
                memory=self._given.memory,
                grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
                block=(config.blockDimX, config.blockDimY, config.blockDimZ),
                smem_bytes=config.sharedMemBytes,
                run=self._run,
                kernel=name,
                programmatic=bool(getattr(config, "numAttrs", 0)),
            )
        finally:
            print_output(self._run, printed)
        return (SUCCESS,)


def compile(func: Any = None, out_idx: Any = None, **given: Any) -> Any:
    """Take the place of `tilelang.compile`: compile for the simulator where this thread has a run."""
    kind = given.get("target")
    if active_run() is None or (kind is not None and not any(each in str(kind) for each in ("cuda", "auto"))):
        return _compile.original(func, out_idx=out_idx, **given)
    return TileLangKernel(func, out_idx, {"pass_configs": None, **given})


_compile = Replacement(("tilelang.jit", "tilelang"), "compile", compile)


@contextmanager
def simulated() -> Iterator[None]:
    """Take what TileLang compiles into the simulator, in threads that have a run."""
    with _compile.in_force():
        yield
