"""Compile the golden tile kernels to Tile IR, in recorded/tile_ir.npz, and to cubins, in a folder.

    python tests/goldens/compile_tile.py --cubins DIR

Needs NVRTC, tileiras, nvcc's ptxas and nvvm of CUDA 13.5 in one environment, and NumPy; no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np

from tile_case import HEADER, SOURCES, TILE_IR, Array, digest, files, save, source_digest
from tile_cases import CASES

OPTIONS = ("--enable-tile", "-std=c++20", "--gpu-architecture=sm_90", "-lineinfo")


class Nvrtc:
    """NVRTC of an environment that has its packages for CUDA 13."""

    def __init__(self, root: Path) -> None:
        ctypes.CDLL(str(next(root.glob("lib/libnvrtc-builtins.so*"))), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(next(root.glob("lib/libnvrtc.so*"))))

    def version(self) -> str:
        """Return the release."""
        numbers = (ctypes.c_int(), ctypes.c_int())
        self._library.nvrtcVersion(*map(ctypes.byref, numbers))
        return ".".join(str(number.value) for number in numbers)

    def install_headers(self, folder: str) -> None:
        """Unpack the CUDA headers that NVRTC carries."""
        if status := self._library.nvrtcInstallBundledHeaders(folder.encode(), None):
            raise SystemExit(f"nvrtcInstallBundledHeaders gave {status}")

    def compile(self, file: str, kernels: Sequence[str], include: str) -> tuple[bytes, dict[str, str]]:
        """Return the Tile IR of a source, and the symbol of each kernel.

        Args:
            file: The source, without .cu.
            kernels: Name expressions.
            include: The folder of CUDA's headers.
        """
        program = ctypes.c_void_p()
        header, name = ctypes.c_char_p(HEADER.read_bytes()), ctypes.c_char_p(HEADER.name.encode())
        self._library.nvrtcCreateProgram(
            ctypes.byref(program),
            (SOURCES / f"{file}.cu").read_bytes(),
            f"{file}.cu".encode(),
            1,
            ctypes.byref(header),
            ctypes.byref(name),
        )
        for kernel in kernels:
            self._library.nvrtcAddNameExpression(program, kernel.encode())
        options = [option.encode() for option in (*OPTIONS, f"-I{include}")]
        given = (ctypes.c_char_p * len(options))(*options)
        if self._library.nvrtcCompileProgram(program, len(options), given):
            raise SystemExit(self._output(program, "ProgramLog").decode())
        symbols = {}
        for kernel in kernels:
            symbol = ctypes.c_char_p()
            if self._library.nvrtcGetLoweredName(program, kernel.encode(), ctypes.byref(symbol)):
                raise SystemExit(f"{file}.cu has no kernel {kernel}")
            symbols[kernel] = (symbol.value or b"").decode()
        return self._output(program, "TileIR"), symbols

    def _output(self, program: Any, kind: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{kind}")(program, text)
        return text.raw


def assemble(root: Path, tile_ir: bytes, target: Path) -> None:
    """Write the cubin of Tile IR for sm_90."""
    with tempfile.NamedTemporaryFile(suffix=".tileir") as file:
        file.write(tile_ir)
        file.flush()
        tileiras = root / "bin" / "tileiras"
        subprocess.run([tileiras, "--gpu-name=sm_90", "-o", target, file.name], check=True)


def main() -> None:
    import nvidia.cu13

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cubins", type=Path, required=True, help="the folder to write them to")
    folder: Path = parser.parse_args().cubins.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    root = Path(next(iter(nvidia.cu13.__path__)))
    nvrtc = Nvrtc(root)
    os.chdir("/")  # the bytecode names the folder
    code: dict[str, bytes] = {}
    about: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as headers:
        nvrtc.install_headers(headers)
        for file, kernels in files(CASES).items():
            code[file], symbols = nvrtc.compile(file, kernels, headers)
            if headers.encode() in code[file]:
                raise SystemExit(f"the Tile IR of {file}.cu names {headers}, which no other machine has")
            cubin = folder / f"{file}.cubin"
            assemble(root, code[file], cubin)
            about[file] = {"source": source_digest(file), "tile_ir": digest(code[file]), "symbols": symbols}
            sizes = f"{len(code[file])} bytes of Tile IR, {cubin.stat().st_size} of cubin"
            print(f"{file}: {len(kernels)} kernels, {sizes}")
    manifest = {"nvrtc": nvrtc.version(), "options": OPTIONS, "files": about}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    arrays: dict[str, Array] = {file: np.frombuffer(data, np.uint8) for file, data in code.items()}
    save(TILE_IR, manifest, arrays)
    print(f"{len(CASES)} cases; {TILE_IR.name}: {TILE_IR.stat().st_size} bytes")


if __name__ == "__main__":
    main()
