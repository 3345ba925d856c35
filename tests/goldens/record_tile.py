"""Record what the golden tile kernels give on a GPU, for the interpreter to be held against.

    python tests/goldens/record_tile.py DIR OUT             launch the cubins of DIR, write OUT
    python tests/goldens/record_tile.py DIR OUT --dry-run   all but the launches, where there is no GPU

DIR is what compile_tile.py wrote; OUT becomes recorded/tile.npz. Needs NumPy and the driver, r580 or later.
A kernel that fails does not stop the others; failures are listed at the end, with exit status 1. The kernels
run in a process of their own, which starts again after a fault: a fault ends the CUDA context.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np

from tile_case import Array, Data, TileCase, save
from tile_cases import CASES

Outputs = dict[str, Array]
CHILD_SECONDS = 60
"""A process that takes longer hangs."""


class Gpu:
    """The first GPU, by the driver's own calls."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._libraries: dict[str, ctypes.c_void_p] = {}
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._device = device

    def about(self) -> dict[str, str]:
        """Return the machine's name and driver."""
        name, version = ctypes.create_string_buffer(128), ctypes.c_int()
        self._call("cuDeviceGetName", name, ctypes.c_int(128), self._device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
        return {"gpu": name.value.decode(), "driver": f"{_driver_release()} ({cuda})"}

    def load(self, cubin: Path, symbol: str) -> ctypes.c_void_p:
        """Return a kernel of a cubin, which is loaded once."""
        path = str(cubin)
        if path not in self._libraries:
            library = ctypes.c_void_p()
            none = (None, None, ctypes.c_uint(0), None, None, ctypes.c_uint(0))
            self._call("cuLibraryLoadData", ctypes.byref(library), cubin.read_bytes(), *none)
            self._libraries[path] = library
        kernel, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuLibraryGetKernel", ctypes.byref(kernel), self._libraries[path], symbol.encode())
        self._call("cuKernelGetFunction", ctypes.byref(function), kernel)
        return function

    def run(self, kernel: ctypes.c_void_p, case: TileCase) -> Outputs:
        """Launch a kernel on a case's arguments."""
        arrays, addresses = case.arrays(), {}
        for name, array in arrays.items():
            address = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
            self._call("cuMemcpyHtoD_v2", address, _pointer(array), ctypes.c_size_t(array.nbytes))
            addresses[name] = address
        parameters = parameters_of(case, {name: address.value for name, address in addresses.items()})
        pointers = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(p) for p in parameters))
        grid = map(ctypes.c_uint, case.grid)
        block = (ctypes.c_uint(1),) * 3
        self._call("cuLaunchKernel", kernel, *grid, *block, ctypes.c_uint(0), None, pointers, None)
        self._call("cuCtxSynchronize")
        for name, array in arrays.items():
            self._call("cuMemcpyDtoH_v2", _pointer(array), addresses[name], ctypes.c_size_t(array.nbytes))
            self._call("cuMemFree_v2", addresses[name])
        return {name: arrays[name] for name in case.outputs}

    def is_alive(self) -> bool:
        """Return whether the context outlived a failure."""
        return not self._driver.cuCtxSynchronize()

    def _call(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._driver, function)(*arguments):
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(ctypes.c_int(status), ctypes.byref(name))
            raise RuntimeError(f"{function} gave {(name.value or b'?').decode()} ({status})")


class NoGpu:
    """Stands in for a GPU in a dry run: cubins are read, no kernel runs."""

    def about(self) -> dict[str, str]:
        """Return that there is none."""
        return {"gpu": "none, a dry run", "driver": "none"}

    def load(self, cubin: Path, symbol: str) -> None:
        """Require the symbol in the cubin."""
        if symbol.encode() not in cubin.read_bytes():
            raise RuntimeError(f"{cubin.name} has no {symbol}")

    def run(self, kernel: None, case: TileCase) -> Outputs:
        """Return the outputs as they were before."""
        arrays = case.arrays()
        parameters_of(case, dict.fromkeys(arrays, 0))
        return {name: arrays[name] for name in case.outputs}

    def is_alive(self) -> bool:
        """Return that nothing ended."""
        return True


def parameters_of(case: TileCase, addresses: dict[str, int]) -> list[Any]:
    """Return each parameter's bytes."""
    made = []
    for name, argument in case.args.items():
        if isinstance(argument, Data):
            data = addresses[name].to_bytes(8, sys.byteorder)
        else:
            data = argument.tobytes()
        made.append(ctypes.create_string_buffer(data, len(data)))
    return made


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _driver_release() -> str:
    try:
        lines = Path("/proc/driver/nvidia/version").read_text("utf-8").splitlines()
        return next(word for word in lines[0].split() if word[0].isdigit() and "." in word)
    except (OSError, IndexError, StopIteration):
        return "unknown"


def record_here(cubins: Path, parts: Path, dry_run: bool) -> None:
    """Run, in this process, what no process has begun; leave when a failure has ended the context.

    Args:
        cubins: What compile_tile.py wrote.
        parts: Where each case's outputs, or the reason why there are none, are put.
        dry_run: Launch nothing.
    """
    gpu: Any = NoGpu() if dry_run else Gpu()
    (parts / "gpu.json").write_text(json.dumps(gpu.about()), "utf-8")
    about = json.loads((cubins / "manifest.json").read_text("utf-8"))["files"]
    for number, case in enumerate(CASES):
        begun = parts / f"{number}.begun"
        if begun.exists():
            continue
        begun.touch()
        try:
            symbol = about[case.file]["symbols"][case.kernel]
            kernel = gpu.load(cubins / f"{case.file}.cubin", symbol)
            first, second = gpu.run(kernel, case), gpu.run(kernel, case)
        except Exception as error:
            (parts / f"{number}.failed").write_text(f"{type(error).__name__}: {error}", "utf-8")
            if not gpu.is_alive():
                raise SystemExit(3) from None
            continue
        same = all(first[name].tobytes() == second[name].tobytes() for name in first)
        np.savez(parts / f"{number}.npz", same=np.bool_(same), **{f"out_{n}": a for n, a in first.items()})


def record(cubins: Path, parts: Path, dry_run: bool) -> dict[int, str]:
    """Run every case, in as many processes as faults make necessary; the reasons of those that failed.

    Args:
        cubins, parts, dry_run: As for `record_here`.
    """
    failed: dict[int, str] = {}
    command = [sys.executable, __file__, str(cubins), str(parts), "--here"]
    while len(list(parts.glob("*.begun"))) < len(CASES):
        before = len(list(parts.glob("*.begun")))
        try:
            status = subprocess.run([*command, *["--dry-run"] * dry_run], timeout=CHILD_SECONDS).returncode
            reason = f"the process ended with {status}"
        except subprocess.TimeoutExpired:
            reason = f"it took more than {CHILD_SECONDS} s"
        if len(list(parts.glob("*.begun"))) == before:
            raise SystemExit(f"nothing could be launched: {reason}")
        for number in range(len(CASES)):
            if (parts / f"{number}.begun").exists() and not (parts / f"{number}.npz").exists():
                why = parts / f"{number}.failed"
                failed.setdefault(number, why.read_text("utf-8") if why.exists() else reason)
    return failed


def collected(parts: Path) -> tuple[dict[str, Array], list[str]]:
    """Return each case's outputs by `case:output`, and the cases that two launches gave otherwise."""
    arrays, varying = {}, []
    for number, case in enumerate(CASES):
        path = parts / f"{number}.npz"
        if path.exists():
            with np.load(path) as data:
                for name in case.outputs:
                    arrays[f"{case.name}:{name}"] = data[f"out_{name}"]
                if not data["same"]:
                    varying.append(case.name)
    return arrays, varying


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cubins", type=Path, help="what compile_tile.py wrote")
    parser.add_argument("out", type=Path, help="the .npz to write")
    parser.add_argument("--dry-run", action="store_true", help="launch nothing")
    parser.add_argument("--here", action="store_true", help="for one that --here was not given to")
    given = parser.parse_args(arguments)
    if given.here:
        record_here(given.cubins, given.out, given.dry_run)
        return 0
    about = json.loads((given.cubins / "manifest.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        parts = Path(folder)
        failed = record(given.cubins, parts, given.dry_run)
        arrays, varying = collected(parts)
        gpu = json.loads((parts / "gpu.json").read_text("utf-8"))
    made = {
        **gpu,
        "nvrtc": about["nvrtc"],
        "date": datetime.date.today().isoformat(),
        "command": "python tests/goldens/record_tile.py DIR OUT",
    }
    cases = {
        case.name: {"tile_ir": about["files"][case.file]["tile_ir"], "inputs": case.inputs_digest}
        for number, case in enumerate(CASES)
        if number not in failed
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    save(given.out, {"made": made, "cases": cases}, arrays)
    for number, reason in failed.items():
        print(f"FAILED {CASES[number].name}: {reason}")
    print(f"two launches differ: {', '.join(varying) or 'none'}")
    print(
        f"{len(cases)} of {len(CASES)} cases on {gpu['gpu']}; {given.out}: {given.out.stat().st_size} bytes"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
