"""A compiler that is a shell script, and a folder of sources for it: C++ without the wait."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dotcu import settings
from dotcu.cpp import build
from dotcu.cpp.plan import CppRequest, CppTools
from dotcu.cpp.tools import HostCompiler, TorchInstall, host, nvcc
from dotcu.errors import ToolchainError

# Compiles by joining a source and the headers that it includes, and writes a depfile, as g++ does.
FAKE = r"""#!/bin/sh
echo "$*" >> @CALLS@
case "$*" in *--version*) echo "fake++ @VERSION@"; exit 0;; esac
folders=.
while [ $# -gt 0 ]; do
    case "$1" in
        -c) source=$2; shift;;
        -x) source=$3; shift 2;;
        -o) out=$2; shift;;
        -MF) depfile=$2; shift;;
        -I*) folders="$folders ${1#-I}";;
        *.o) objects="$objects $1";;
    esac
    shift
done
if [ -z "$source" ]; then cat $objects > $out; exit 0; fi
if grep -q 'BROKEN' "$source"; then
    echo "$source:2:5: error: this is broken" >&2; echo half > "$out"; exit 1
fi
sleep @SECONDS@
cat "$source" > "$out"
printf '%s: %s' "$out" "$source" > "$depfile"
folders="$(dirname "$source") $folders"
for name in $(sed -n 's/^#include "\(.*\)"/\1/p' "$source"); do
    for folder in $folders; do
        if [ -f "$folder/$name" ]; then
            cat "$folder/$name" >> "$out"; printf ' \\\n %s/%s' "$folder" "$name" >> "$depfile"; break
        fi
    done
done
echo >> "$depfile"
"""


def missing_nvcc() -> str:
    """Why there is no nvcc to test with, "" where there is one."""
    try:
        nvcc(None)
    except ToolchainError as error:
        return str(error)
    return ""


@dataclass(frozen=True, kw_only=True)
class Fake:
    """A compiler that is a script, and what it was called with."""

    path: Path
    calls: Path

    def lines(self, word: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if word in line.split()]

    def compiled(self) -> int:
        return len(self.lines("-c"))

    def compiler(self) -> HostCompiler:
        with settings.override(cxx=str(self.path)):
            return host()


def write_fake(folder: Path, *, version: str = "1.0", seconds: float = 0.0) -> Fake:
    folder.mkdir(exist_ok=True)
    path, calls = folder / "fake++", folder / "calls"
    text = FAKE.replace("@CALLS@", str(calls)).replace("@VERSION@", version)
    path.write_text(text.replace("@SECONDS@", str(seconds)))
    path.chmod(0o755)
    calls.touch()
    return Fake(path=path, calls=calls)


@dataclass
class Project:
    """A folder of sources, built with a fake compiler."""

    folder: Path
    fake: Fake
    torch: TorchInstall

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def request(
        self,
        *names: str,
        flags: tuple[str, ...] = (),
        include: tuple[str, ...] = (),
        link_flags: tuple[str, ...] = (),
    ) -> CppRequest:
        return CppRequest(
            name="lib",
            sources=tuple(self.folder / name for name in names),
            flags=flags,
            include=tuple(self.folder / name for name in include),
            link_flags=link_flags,
        )

    def tools(self) -> CppTools:
        return CppTools(host=self.fake.compiler(), nvcc=None, torch=self.torch)

    def build(self, *names: str, **options: tuple[str, ...]) -> bytes:
        return build.build_request(self.request(*names, **options), self.tools()).path.read_bytes()
