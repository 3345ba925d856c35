"""From CUDA Tile C++ to Tile IR and a cubin, and what is refused on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotcu import settings
from dotcu.compile import (
    CompileOptions,
    ObjectCode,
    Target,
    build,
    cache,
    driver,
    inline_source,
    tile,
    toolchain,
    toolchain_report,
)
from dotcu.compile.cache import Store
from dotcu.compile.object_code import Resources
from dotcu.compile.source.declarations import has_tile_code
from dotcu.compile.target import Rejected
from dotcu.compile.toolchain import Compiler, TorchBuild
from dotcu.errors import CompileError, LaunchError, ToolchainError, UsageError
from helpers.quick_cases import quick

HEAD = '#include "cuda_tile.h"\nnamespace ct = cuda::tiles;\n'
DOUBLE = f"""{HEAD}__tile_global__ void twice(float* __restrict__ x, int n) {{
  auto span = ct::tensor_span{{ct::assume_aligned<16>(x), ct::extents{{n}}}};
  auto v = ct::partition_view{{span, ct::shape<512>{{}}}};
  auto i = ct::bid().x;
  v.store_masked(v.load_masked(i) * 2.0f, i);
}}
"""
MIXED = DOUBLE + "__global__ void plain(float* x) { x[threadIdx.x] *= 2; }\n"


@pytest.fixture(scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests of this file: the assembler takes a tenth of a second and more."""
    with settings.override(cache_dir=tmp_path_factory.mktemp("cache")):
        yield
        cache.forget()


def make(
    text: str, *names: str, target: str = "sm_90", simulated: bool = False, **options: Any
) -> ObjectCode:
    return build(
        inline_source(text, base=Path.cwd()), options=CompileOptions(**options), target=Target.parse(target),
        names=names, simulated=simulated,
    )  # fmt: skip


@pytest.mark.parametrize("variable", quick(["CUDA_HOME"], ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"]))
def test_the_toolkit_that_a_variable_names_is_not_taken(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    older = tmp_path / "bin" / "ptxas"  # as that of CUDA 13.0, which does not read the PTX of tileiras 13.5
    older.parent.mkdir()
    older.write_text("#!/bin/sh\nexit 1\n")
    older.chmod(0o755)
    monkeypatch.setenv(variable, str(tmp_path))
    with settings.override(cache_dir=tmp_path / "cache"):
        assert make(DOUBLE.replace("2.0f", f"{len(variable)}.5f"), "twice").tile_cubins
    cache.forget()


def refusal(text: str, *names: str) -> str:
    with pytest.raises(CompileError) as caught:
        make(text, *names)
    return str(caught.value)


@pytest.mark.usefixtures("_cache")
class TestCode:
    def test_a_mixed_file_gives_a_cubin_of_each_kind(self) -> None:
        made = make(MIXED, "twice", "plain")
        plain, twice = made.lowered["plain"], made.lowered["twice"]
        assert made.cubin is not None
        assert plain.encode() in made.cubin
        assert twice.encode() not in made.cubin
        assert list(made.tile_cubins) == [tile.host()]
        assert twice.encode() in made.tile_cubins[tile.host()]
        assert made.is_tile(twice)
        assert not made.is_tile(plain)

    def test_it_is_assembled_for_debugging_too(self) -> None:
        (code,) = make(DOUBLE, "twice", debug=True).tile_cubins.values()
        assert b".debug_info" in code

    def test_the_signature_is_known_of_a_tile_kernel_too(self) -> None:
        assert "PFvPfiE" in make(MIXED, "twice").signatures["twice"]

    def test_resources_come_from_the_cubin(self) -> None:
        made = make(MIXED, "twice")
        found = made.resources[made.lowered["twice"]]
        assert found.registers > 0
        assert found.threads % 32 == 0
        assert found.threads > 0
        assert found.cluster == 1

    def test_a_plain_file_has_no_tile_code(self) -> None:
        made = make("__global__ void k(float* x) { *x = 1; } // not a __tile_global__ one\n", "k")
        assert made.tile_ir == b""
        assert made.tile_cubins == {}
        assert made.resources[made.lowered["k"]] == Resources(registers=made.resources["_Z1kPf"].registers)

    def test_a_template_that_is_not_instantiated_gives_no_kernel(self) -> None:
        template = HEAD + "template <int N> __tile_global__ void fill(float* x) { x[0] = N; }\n"
        made = make(template + "__global__ void plain(float* x) { *x = 1; }\n", "plain")
        assert made.tile_ir == b""
        assert set(made.resources) == {made.lowered["plain"]}

    def test_the_simulator_gets_tile_ir_without_an_assembler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tile, "beside", lambda nvrtc, name: None)
        made = make(MIXED, "twice", target="compute_80", simulated=True)
        assert made.tile_ir.startswith(b"\x7fTileIR")
        assert made.tile_cubins == {}

    def test_the_second_build_comes_from_the_cache(self) -> None:
        first = make(DOUBLE, "twice")
        cache.forget()
        again = make(DOUBLE, "twice")
        assert again.cached
        assert again.tile_cubins == first.tile_cubins
        assert again.tile_ir == first.tile_ir

    def test_the_code_is_the_same_from_every_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        made, source = make(DOUBLE, "twice"), inline_source(DOUBLE, base=Path.cwd())
        for name in ("x", "a-folder-with-a-name-of-more-than-a-hundred-characters" * 3):
            monkeypatch.chdir((tmp_path / name).mkdir() or tmp_path / name)
            with settings.override(cache_dir=tmp_path / f"cache-{len(name)}"):
                again = build(
                    source, options=CompileOptions(), target=Target.parse("sm_90"), names=("twice",)
                )
            assert not again.cached
            assert again.tile_ir == made.tile_ir
            assert again.tile_cubins == made.tile_cubins
            assert str(tmp_path).encode() not in again.tile_ir + again.tile_cubins[tile.host()]

    def test_cxx_20_is_taken_unless_a_later_one_is_given(self) -> None:
        assert "-std=c++20" in make(DOUBLE, "twice").command
        assert "--enable-tile" in make(DOUBLE, "twice").command

    def test_either_host_can_be_compiled_for(self) -> None:
        bytecode, using = make(DOUBLE, "twice").tile_ir, tile.compiler()
        for host in tile.HOSTS:
            cubin, _, _ = tile.assemble(using, bytecode, Target.parse("sm_90"), processor=host)
            assert cubin is not None
            assert tile.machine_within(cubin, ".nv.host") == host
            assert tile.is_loadable(cubin) == (host == tile.host())


@pytest.mark.usefixtures("_cache")
class TestRefused:
    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ("x[threadIdx.x] = 1;", "ct::bid()"),
            ("__shared__ float s[2]; s[0] = 1; x[0] = s[0];", "places tiles in shared memory by itself"),
            ("x[0] = helper(n);", "__device__ __tile__"),
            ("x[0] = table[n];", "pass a pointer"),
            ("ct::zeros<ct::tile<float, ct::shape<6>>>();", "powers of two"),
            ("ct::atomic_add(x, 1.0f);", "ct::memory_order_relaxed_t{}"),
            ("ct::zeros<ct::tile<int, ct::shape<8>>>() + ct::bid().x;", "write int(ct::bid().x)"),
        ],
    )
    def test_what_tile_code_does_not_take_has_its_line_and_a_remedy(self, body: str, says: str) -> None:
        text = f"{HEAD}__device__ int helper(int a) {{ return a; }}\n__constant__ float table[2];\n"
        message = refusal(f"{text}__tile_global__ void k(float* x, int n) {{ {body} }}\n", "k")
        assert ":5:" in message
        assert body in message
        assert re.search(r"^ +\^$", message, re.MULTILINE) or "(" in body or "table" in body
        assert says in message

    @pytest.mark.parametrize("use", ["table + i", "i + table", "&table[0] + i"])
    @pytest.mark.parametrize("qualifier", ["__device__", "__constant__"])
    def test_what_ends_the_process_in_the_compiler_is_an_error(self, use: str, qualifier: str) -> None:
        body = f"auto i = ct::iota<ct::tile<int, ct::shape<4>>>();\nct::store(x + i, ct::load({use}));"
        text = f"{HEAD}{qualifier} float table[4];\n__tile_global__ void k(float* x) {{ {body} }}\n"
        message = refusal(text, "k")
        assert ':5: error: a non-__tile__ variable ("table") cannot be used in tile code' in message
        assert "pass a pointer" in message

    def test_a_tile_function_s_own_array_may_have_the_name_of_the_device_s(self) -> None:
        own = "float table[4]; auto i = ct::iota<ct::tile<int, ct::shape<4>>>();"
        kernel = f"__tile_global__ void k(float* x) {{ {own} ct::store(x + i, ct::load(table + i)); }}\n"
        given = "__tile_global__ void g(float* table, int n) { table[0] = *(table + n); }\n"
        plain = "__device__ float table[4];\n__global__ void p(float* x) { *x = *(table + 1); }\n"
        assert set(make(HEAD + plain + kernel + given, "k", "g", "p").lowered) == {"k", "g", "p"}

    def test_of_the_header_s_many_candidates_two_are_shown_and_no_error_that_follows_from_another(
        self,
    ) -> None:
        body = "ct::store(x + ct::zeros<ct::tile<int, ct::shape<8>>>(), (ct::bid() + x) * 2.0f);"
        message = refusal(f"{HEAD}__tile_global__ void k(float* x) {{ {body} }}\n", "k")
        assert "1 error." in message
        assert "<error-type>" not in message
        assert "more like these, in the exception's .log" in message
        assert len(message.splitlines()) < 15

    @pytest.mark.parametrize("wrong", ["float y = nowhere;", ""])
    def test_literals_are_not_found_only_where_that_is_the_error(self, wrong: str) -> None:
        body = (
            f"auto t = ct::load(p + ct::iota<ct::tile<int, ct::shape<8>>>()); {wrong} *p = ct::sum(t, 0_ic);"
        )
        used = "using namespace ct::literals;\n" if wrong else ""
        text = f"{HEAD}{used}template <typename T> __tile_global__ void k(T* p) {{ {body} }}\n"
        message = refusal(text, "k<float>")
        assert ("1 error" in message) == bool(wrong)
        assert ("nowhere" if wrong else "user-defined literal operator not found") in message

    def test_an_ordinary_kernel_calls_no_tile_function(self) -> None:
        text = f"{HEAD}__tile__ int one() {{ return 1; }}\n__global__ void k(float* x) {{ *x = one(); }}\n"
        message = refusal(text, "k")
        assert "calling a __tile__ function" in message
        assert "Declare the kernel __tile_global__" in message

    def test_a_recursive_function(self) -> None:
        function = "__tile__ int f(int a) { return a ? f(a - 1) : 1; }"
        message = refusal(f"{HEAD}{function}\n__tile_global__ void k(int* x) {{ *x = f(*x); }}\n", "k")
        assert "none may call itself" in message

    def test_a_struct_is_no_parameter(self) -> None:
        text = f"{HEAD}struct P {{ float* x; int n; }};\n__tile_global__ void k(P p) {{ *p.x = 1; }}\n"
        message = refusal(text, "k")
        assert "unsupported type" in message
        assert "dotcu.extents(t)" in message

    def test_an_architecture_before_sm_80(self) -> None:
        with pytest.raises(ToolchainError, match=r"sm_75.\nTile kernels need compute capability 8.0"):
            make(DOUBLE, "twice", target="sm_75")

    def test_a_cubin_of_another_processor(self) -> None:
        other = next(host for host in tile.HOSTS if host != tile.host())
        cubin, _, _ = tile.assemble(
            tile.compiler(), make(DOUBLE, "twice").tile_ir, Target.parse("sm_80"), processor=other
        )
        assert cubin is not None
        with pytest.raises(
            UsageError, match=f"compiled for hosts of {other}, and this machine is {tile.host()}"
        ):
            tile.require_loadable(cubin, "twice.cu")

    def test_a_cubin_of_another_processor_in_a_shared_cache_is_compiled_again(self) -> None:
        made, other = make(DOUBLE, "twice"), next(host for host in tile.HOSTS if host != tile.host())
        foreign, _, _ = tile.assemble(tile.compiler(), made.tile_ir, Target.parse("sm_90"), processor=other)
        store = Store(cache.location())
        entry = cache.read_entry(store.path(made.build_digest))
        assert entry is not None
        assert foreign is not None
        changed = {**entry.__dict__, "tile_cubin": foreign}
        store.put(made.build_digest, cache.CacheEntry(**changed).files(), locked=False)
        cache.forget()
        again = make(DOUBLE, "twice")
        assert not again.cached
        assert tile.is_loadable(again.tile_cubins[tile.host()])

    def test_an_error_of_the_assembler_has_the_line(self) -> None:
        log = 'loc("/dotcu/inline.cu":3:37): error: : it cannot be done\n'
        assert tile.as_nvrtc(log) == "/dotcu/inline.cu(3): error: it cannot be done\n"

    def test_a_remark_of_the_assembler_has_its_suggestion(self) -> None:
        log = (
            '    warning[]: High register usage\n      --> "/dotcu/k.cu":22:22\n       |\n'
            "       = name: RegisterPressure\n       = reason: Too many\n       = suggestion: Use fewer\n\n"
        )
        assert (
            tile.as_nvrtc(log).strip() == "/dotcu/k.cu(22): warning: High register usage. Too many. Use fewer"
        )


def compiler_of(version: tuple[int, int], folder: Path) -> Compiler:
    return Compiler(path=folder / "lib" / "libnvrtc.so.13", version=version, include=(), origin="pip")


class TestTools:
    def test_an_nvrtc_that_is_too_old_is_named_with_the_line_that_installs_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(tile, "folder", lambda: tmp_path)
        monkeypatch.setattr(toolchain, "installed", lambda: (compiler_of((13, 0), tmp_path),))
        found = tile.find()
        assert isinstance(found, Rejected)
        assert "13.3 or later; found: 13.0" in found.reason
        assert "pip install" in found.remedy

    def test_without_an_assembler_the_error_has_the_line_that_installs_it(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=r"tileiras is not found(.|\n)*Install it: pip install"):
            tile.assembler(compiler_of((13, 5), tmp_path))

    def test_without_ptxas_the_assembler_is_not_started(self, tmp_path: Path) -> None:
        for name in ("tileiras", "libnvvm.so.4"):
            (tmp_path / "lib").mkdir(exist_ok=True)
            (tmp_path / "lib" / name).touch()
        with pytest.raises(ToolchainError, match="ptxas is not found"):
            tile.assembler(compiler_of((13, 5), tmp_path))

    @pytest.mark.parametrize(("cuda", "target"), [((13, 0), True), (None, False), ((13, 4), False)])
    def test_the_line_spares_a_torch_that_pins_an_older_nvrtc(
        self, monkeypatch: pytest.MonkeyPatch, cuda: tuple[int, int] | None, target: bool
    ) -> None:
        monkeypatch.setattr(toolchain, "find_torch", lambda: TorchBuild(version="2.13", cuda=cuda, hip=""))
        assert ("--target" in tile.install_line()) == target
        assert ('"dotcu[tile]"' in tile.install_line()) != target

    def test_an_old_driver_is_told_by_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "version", lambda: (12, 8))
        monkeypatch.setattr(driver, "release", lambda: "570.86.15")
        with pytest.raises(
            LaunchError, match=r"r580 or later \(CUDA 13.0\), and this one is 570.86.15, of CUDA 12.8"
        ):
            tile.require_driver()

    def test_a_new_driver_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "version", lambda: (13, 0))
        tile.require_driver()

    def test_doctor_lists_both(self) -> None:
        rows = {row.name: row for row in toolchain_report.report()}
        assert rows["tile NVRTC"].fits
        assert rows["tileiras"].version


class TestText:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (DOUBLE, True),
            ("__tile__ int f();", True),
            ("#include <cuda_tile.h>\n", True),
            ("// __tile_global__\n__global__ void k();", False),
            ("int __tile_x;", False),
        ],
    )
    def test_a_source_is_known_by_its_words(self, text: str, expected: bool) -> None:
        assert has_tile_code([text]) == expected


def test_a_working_directory_that_is_gone_is_in_no_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert tile.without_folder(b"\x7fTileIR\0 anything") == b"\x7fTileIR\0 anything"
