"""Which NVRTC is taken of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.compile import Rejected
from dotcu.compile.compilers import ARCHITECTURES, Compiler, at, choose, find, header_identity, requirement
from dotcu.compile.toolchain import nvrtc, refuse_platform


def compiler(major: int, minor: int, origin: str = "pip") -> Compiler:
    path = Path(f"/{origin}/libnvrtc.so.{major}.{minor}")
    return Compiler(path=path, version=(major, minor), include=(), origin=origin)


C126, C128, C130, C131 = compiler(12, 6), compiler(12, 8), compiler(13, 0), compiler(13, 1)


@pytest.mark.parametrize(
    ("found", "torch_cuda", "driver", "chosen"),
    [
        ([C128, C130], None, None, C130),  # CPU torch, no driver: the newest
        ([C128, C130], None, (12, 8), C128),  # the driver loads no code of CUDA 13
        ([C128, C130, C131], (13, 0), (13, 2), C130),  # no newer than torch's CUDA
        ([C126, C128, C130], (12, 8), (13, 0), C128),  # an older torch on a newer driver
        ([C130], (13, 0), (13, 0), C130),
        ([C131], (13, 1), (13, 0), C131),  # a driver older in its minor loads cubins
        ([C126, C128], (13, 0), (12, 9), C128),
    ],
)
def test_the_newest_that_fits_driver_and_torch_is_taken(
    found: list[Compiler],
    torch_cuda: tuple[int, int] | None,
    driver: tuple[int, int] | None,
    chosen: Compiler,
) -> None:
    assert choose(found, torch_cuda, driver) is chosen
    assert choose(found[::-1], torch_cuda, driver) is chosen


def test_of_two_of_one_version_the_first_found_is_taken() -> None:
    pip, toolkit = compiler(13, 0), compiler(13, 0, "CUDA_HOME")
    assert choose([pip, toolkit], None, None) is pip


@pytest.mark.parametrize(
    ("found", "torch_cuda", "driver", "reason", "remedy"),
    [
        ([], None, None, "No CUDA compiler", 'pip install "dotcu[cu13]"'),
        ([], None, (12, 4), "No CUDA compiler", 'pip install "dotcu[cu12]"'),
        ([C130], None, (12, 8), "the driver of CUDA 12.8", 'pip install "dotcu[cu12]"'),
        ([C130], (12, 8), (13, 0), "newer than torch's CUDA 12.8", '"nvidia-cuda-nvrtc-cu12==12.8.*"'),
        ([C131], (13, 0), None, "newer than torch's CUDA 13.0", '"nvidia-cuda-nvrtc==13.0.*"'),
        ([compiler(0, 0)], None, None, "lacks its libnvrtc-builtins", "pip install"),
    ],
)
def test_where_none_fits_each_is_refused_with_its_reason(
    found: list[Compiler],
    torch_cuda: tuple[int, int] | None,
    driver: tuple[int, int] | None,
    reason: str,
    remedy: str,
) -> None:
    refused = choose(found, torch_cuda, driver)
    assert isinstance(refused, Rejected)
    assert reason in refused.reason
    assert remedy in refused.remedy


def test_pips_name_of_a_compiler_lost_its_suffix_with_cuda_13() -> None:
    assert requirement((12, 8)) == '"nvidia-cuda-nvrtc-cu12==12.8.*"'
    assert requirement((13, 0)) == '"nvidia-cuda-nvrtc==13.0.*"'


def lay(folder: Path, version: str, text: str = "library") -> Path:
    folder.mkdir(parents=True)
    (folder / f"libnvrtc-builtins.so.{version}").write_text("builtins")
    library = folder / f"libnvrtc.so.{version.split('.')[0]}"
    library.write_text(text)
    (folder / library.name.replace("libnvrtc", "libnvrtc.alt")).write_text("another build of it")
    return library


def test_each_layout_is_found_with_its_version_and_headers(tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    lay(site / "nvidia/cu13/lib", "13.0")
    (site / "nvidia/cu13/include/cccl").mkdir(parents=True)
    lay(site / "nvidia/cuda_nvrtc/lib", "12.8")
    (site / "nvidia/cuda_runtime/include").mkdir(parents=True)
    library = lay(home / "lib64", "12.4")
    (home / "lib64/libnvrtc.so.12.4.1").symlink_to(library)  # the same library by another name
    (home / "include").mkdir()
    found = find([site, site, tmp_path / "empty"], [("CUDA_HOME", home)])
    include = site / "nvidia/cu13/include"
    assert [(c.version, c.origin, c.include) for c in found] == [
        ((13, 0), "pip", (include, include / "cccl")),
        ((12, 8), "pip", (site / "nvidia/cuda_runtime/include",)),
        ((12, 4), "CUDA_HOME", (home / "include",)),
    ]
    assert at(found[1].path, ()).include == found[1].include
    assert at(home / "lib64/libnvrtc.so.12", ()).include == (home / "include",)


def test_an_explicit_library_takes_the_headers_of_one_of_its_version(tmp_path: Path) -> None:
    library = lay(tmp_path / "somewhere", "13.0")
    other = Compiler(path=Path("/x"), version=(13, 0), include=(tmp_path,), origin="pip")
    assert at(library, [C128, other]).include == (tmp_path,)
    assert at(library, [C128]).include == ()


def test_a_compilers_identity_is_of_its_bytes_and_not_of_its_place(tmp_path: Path) -> None:
    lay(tmp_path / "a", "13.0")
    lay(tmp_path / "b", "13.0")
    lay(tmp_path / "c", "13.0", "librarY")
    a, b, c = (at(tmp_path / name / "libnvrtc.so.13", ()).identity() for name in "abc")
    assert a == b
    assert a != c
    (tmp_path / "b" / "libnvrtc-builtins.so.13.0").write_text("patched!")
    assert at(tmp_path / "b" / "libnvrtc.so.13", ()).identity() != a


def test_the_headers_identity_is_of_their_names_and_sizes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "cuda_fp16.h").write_text("text")
    assert header_identity([tmp_path / "a"]) == header_identity([tmp_path / "b"])
    (tmp_path / "b" / "cuda_fp16.h").write_text("longer text")
    assert header_identity([tmp_path / "a"]) != header_identity([tmp_path / "b"])


def test_the_table_of_architectures_is_what_the_compiler_says() -> None:
    from dotcu.compile.nvrtc import load

    used = nvrtc()
    library = load(used.path)
    assert library.version() == used.version
    assert ARCHITECTURES.get(used.version, library.supported()) == library.supported()


@pytest.mark.parametrize(
    ("system", "machine", "remedy"),
    [
        ("Darwin", "arm64", "docker run"),
        ("Windows", "ARM64", "wsl --install"),
        ("Windows", "AMD64", "wsl --install"),
        ("Linux", "ppc64le", "docker run"),
        ("FreeBSD", "amd64", "docker run"),
    ],
)
def test_a_platform_without_a_compiler_is_refused_by_name(system: str, machine: str, remedy: str) -> None:
    refused = refuse_platform(system, machine)
    assert refused is not None
    assert f"{system} on {machine}" in refused.reason
    assert remedy in refused.remedy


def test_a_rocm_torch_is_refused_by_name() -> None:
    refused = refuse_platform("Linux", "x86_64", "6.4.2")
    assert refused is not None
    assert "ROCm 6.4.2" in refused.reason
    assert refuse_platform("Linux", "x86_64") is None
    assert refuse_platform("Linux", "aarch64") is None


def _install(folder: Path, *, compiler: bool = True, cccl: bool = True, libraries: str = "lib") -> None:
    """A toolkit as pip (`lib`) or an installer (`lib64`) lays it out, by empty files."""
    files = ["include/cuda_runtime_api.h"] if compiler else []
    if compiler:
        files += [f"{libraries}/libnvrtc.so.13", f"{libraries}/libnvrtc-builtins.so.13.0"]
    if cccl:
        files += ["include/cccl/cuda/std/__cccl/version.h"]
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()


def test_headers_of_another_site_packages_folder_are_taken(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _install(first / "nvidia" / "cu13", cccl=False)
    _install(second / "nvidia" / "cu13", compiler=False)
    (found,) = find([first, second], [])
    assert found.include == (
        first / "nvidia" / "cu13" / "include",
        second / "nvidia" / "cu13" / "include",
        second / "nvidia" / "cu13" / "include" / "cccl",
    )


def test_cccl_is_borrowed_from_a_toolkit_of_the_same_version(tmp_path: Path) -> None:
    _install(tmp_path / "nvidia" / "cu13", cccl=False)
    _install(tmp_path / "toolkit", libraries="lib64")
    pip, toolkit = find([tmp_path], [("CUDA_HOME", tmp_path / "toolkit")])
    assert pip.include == (
        tmp_path / "nvidia" / "cu13" / "include",
        tmp_path / "toolkit" / "include" / "cccl",
    )
    assert toolkit.include[-1] == tmp_path / "toolkit" / "include" / "cccl"
