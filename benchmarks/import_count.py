"""How many modules does a launch on a GPU import, beside those that torch imports itself?

    python benchmarks/import_count.py [--cold | --check]

Two new processes under `python -X importtime`. The first imports torch and makes tensors on the GPU. The
second does the same, then imports dotcu, loads a `.cu` file and launches a kernel of it. A module counts
that only the second imports: one of dotcu's, of the standard library or of another package, but none of
torch's own, which torch imports when it pleases.

The kernel was compiled before, by a process that is not counted, and its code comes from the cache; with
`--cold` the second process compiles it. On a machine without a GPU the second process does what a launch
does before it asks the driver: it builds for sm_90a, plans the arguments, reads the limits, and imports
the driver's bindings and the native part.

The last lines say how many of them, and how many lines of code with comments, are dotcu's own.

With `--check` it counts dotcu's own modules, and their lines, that a check imports before it runs a trial:
a quick one of a small operator in the simulator, in a new process.

Exit codes: 0 at most 60 modules (a check: 90 modules and 22,000 lines), 1 more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import dotcu

MAX_MODULES = 60
MAX_CHECK_MODULES, MAX_CHECK_LINES = 90, 22_000

KERNEL = """
template <typename T> __global__ void scale(const T* x, T* out, T by, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * by;
}
"""

TENSORS = """
import sys
import torch
x = torch.ones(1024, device=sys.argv[2])
out = torch.empty_like(x)
torch.equal(out, 2 * x)
"""

LAUNCH = """
import dotcu
kernels = dotcu.load(sys.argv[1])
kernels.scale[torch.float32](x, out, 2.0, 1024, grid=dotcu.cdiv(1024, 256), block=256)
assert torch.equal(out, 2 * x)
"""

ALL_BUT_THE_DRIVER = """
import dotcu
kernels = dotcu.load(sys.argv[1])
kernel = kernels.scale[torch.float32]
dotcu.cdiv(1024, 256)
from contextlib import suppress
from dotcu.compile import Target
from dotcu.kernel import cuda as launching
code = kernel.unit.code(Target.parse("sm_90a"))
for ask in (code.claim, code.plan, code.needs, code.symbol):
    ask(kernel.name)
from cuda.bindings import driver
with suppress(ImportError):
    import dotcu._native
"""

CHECK = """
import torch
import dotcu
from dotcu.checking.checker import prepare

kernels = dotcu.load(sys.argv[1])

@dotcu.op("counted::scale")
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    out = torch.empty_like(x)
    kernels.scale[x.dtype](x, out, by, x.numel(), grid=dotcu.cdiv(x.numel(), 256), block=256)
    return out

scale.reference(lambda x, by: x * by)
scale.samples(lambda device, dtype: [dotcu.Sample(torch.ones(9, device=device, dtype=dtype), 2.0)])
assert prepare(scale, device="simulator", level="quick").trials
"""

SHOW = "print(*sys.modules)"


def modules(script: str, source: Path, cache: Path) -> set[str]:
    """Everything that a new process imports, by name: what it lists, and what it holds at its end.

    Args:
        cache: The user's cache directory in that process.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    command = [sys.executable, "-X", "importtime", "-c", script + SHOW, str(source), device]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("DOTCU_CACHE_DIR", None)  # to find the user's directory takes modules, too
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
        raise SystemExit("\n".join(said))
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in timed} | set(done.stdout.split())


def counted(*, cold: bool) -> list[str]:
    """The modules that a launch imports, sorted."""
    launch = TENSORS + (LAUNCH if torch.cuda.is_available() else ALL_BUT_THE_DRIVER)
    with tempfile.TemporaryDirectory() as folder:
        source, cache = Path(folder) / "scale.cu", Path(folder) / "cache"
        source.write_text(KERNEL)
        if not cold:
            modules(launch, source, cache)
        found = modules(launch, source, cache) - modules(TENSORS, source, cache)
    return sorted(name for name in found if name.partition(".")[0] not in ("torch", "functorch"))


def lines_of_dotcu(names: list[str]) -> list[int]:
    """Return the number of lines of each of dotcu's own modules among some, but for the native part."""
    package = Path(dotcu.__file__).parent
    paths = [package.joinpath(*name.split(".")[1:]) for name in names if name.partition(".")[0] == "dotcu"]
    files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]
    return [len(file.read_text(encoding="utf-8").splitlines()) for file in files if file.exists()]


def check_imports() -> dict[str, int]:
    """Return dotcu's modules that a check imports until its trials are planned, with their lines."""
    show = "import pathlib\nfor name, module in sorted(sys.modules.items()):\n"
    show += "    file = getattr(module, '__file__', None) or ''\n"
    show += "    if name.split('.')[0] == 'dotcu' and file.endswith('.py'):\n"
    show += "        print(name, len(pathlib.Path(file).read_text().splitlines()))\n"
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder) / "scale.cu", Path(folder) / "script.py"
        source.write_text(KERNEL)
        script.write_text("import sys\n" + CHECK + show)
        command = [sys.executable, str(script), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: int(lines) for name, lines in map(str.split, done.stdout.splitlines())}


def count_check() -> int:
    """Count what a check imports, print it, and tell whether it is little enough."""
    found = check_imports()
    lines = sum(found.values())
    print(*(f"{count:6,} {name}" for name, count in found.items()), sep="\n")
    most = f"of {MAX_CHECK_MODULES} and {MAX_CHECK_LINES:,} at most"
    print(f"a check imports {len(found)} modules, {lines:,} lines, {most}")
    return int(len(found) > MAX_CHECK_MODULES or lines > MAX_CHECK_LINES)


def main() -> int:
    """Count, print, and tell whether there are few enough."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cold", action="store_true", help="count a process that compiles the kernel")
    parser.add_argument("--check", action="store_true", help="count what a check imports")
    given = parser.parse_args()
    if given.check:
        return count_check()
    found = counted(cold=given.cold)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: all but the driver's part"
    print(*found, sep="\n")
    own = lines_of_dotcu(found)
    print(f"{len(own)} modules and {sum(own):,} lines of dotcu")
    print(f"{len(found)} modules, of {MAX_MODULES} at most ({where})")
    return 0 if len(found) <= MAX_MODULES else 1


if __name__ == "__main__":
    sys.exit(main())
