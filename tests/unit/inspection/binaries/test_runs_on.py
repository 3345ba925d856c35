"""Which GPUs run which code: CUDA's rules; on a GPU, held against what its driver loads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dotcu.compile import ObjectCode, Target
from dotcu.compile.target import Version
from dotcu.elf import Image
from dotcu.errors import DotcuError
from dotcu.inspection.binaries.fatbin import Fatbin, in_file
from dotcu.inspection.binaries.runs_on import FAMILIES, PTX_SINCE, choose, gpu_support
from helpers.binary_files import entry, fatbin

ELF, PTX, IR = 2, 1, 8
SUFFIXES = {"": 0x11, "a": 0x100011, "f": 0x200011}


def modules(*codes: str, version: Version = (9, 0)) -> tuple[Fatbin, ...]:
    """A module for each word: `sm_90a` is machine code, `compute_90` is PTX, with `+` several in one."""
    made = b""
    for code in codes:
        targets = [Target.parse(word) for word in code.split("+")]
        made += fatbin(
            *(entry(ELF if t.kind == "sm" else PTX, t.number, flags=SUFFIXES[t.suffix], version=version)
              for t in targets)
        )  # fmt: skip
    return in_file(Image(name="it", data=made))


def how(code: str, gpu: Version) -> str:
    return gpu_support(modules(code), gpu).how


@pytest.mark.parametrize(
    ("code", "gpu", "expected"),
    [
        ("sm_80", (8, 0), "native"),
        ("sm_80", (8, 6), "native"),  # a later minor
        ("sm_86", (8, 0), "no"),  # an earlier one
        ("sm_80", (9, 0), "no"),  # another major
        ("sm_80", (8, 7), "no"),  # Tegra takes its own alone
        ("sm_87", (8, 7), "native"),
        ("sm_87", (8, 9), "no"),  # and its own fits no other
        ("sm_90a", (9, 0), "native"),
        ("sm_100a", (10, 3), "no"),  # a: this GPU alone
        ("sm_100f", (10, 3), "native"),  # f: the family
        ("sm_103f", (10, 0), "no"),
        ("sm_100f", (12, 0), "no"),
        ("sm_120f", (12, 1), "native"),
        ("sm_100", (10, 3), "native"),
        ("compute_80", (9, 0), "jit"),
        ("compute_80", (12, 1), "jit"),
        ("compute_80", (8, 7), "jit"),  # which PTX does not mind
        ("compute_90", (8, 9), "no"),
        ("compute_90a", (9, 0), "jit"),
        ("compute_90a", (10, 0), "no"),
        ("compute_100f", (10, 3), "jit"),
        ("compute_100f", (11, 0), "no"),
        ("sm_80+compute_80", (8, 9), "native"),
        ("sm_80+compute_80", (9, 0), "jit"),
    ],
)
def test_code_runs_by_the_rules_of_cuda(code: str, gpu: Version, expected: str) -> None:
    assert how(code, gpu) == expected


def test_what_the_driver_must_have_for_the_ptx_is_reported() -> None:
    for version, since in (((8, 4), (12, 4)), ((8, 6), (12, 7)), ((7, 8), (11, 8)), ((9, 9), (13, 9))):
        assert gpu_support(modules("compute_80", version=version), (9, 0)).driver == since
    assert gpu_support(modules("sm_90"), (9, 0)).driver is None


def test_modules_are_counted_by_how_they_run() -> None:
    found = gpu_support(modules("sm_80", "sm_80+compute_80", "compute_80", "sm_90a"), (8, 6))
    assert (found.how, found.native, found.jit, found.none) == ("native", 2, 1, 1)
    assert "machine code for sm_90a runs on that GPU alone" in found.why


def test_a_module_that_most_gpus_lack_does_not_hide_that_the_rest_is_compiled() -> None:
    assert gpu_support(modules("sm_90", "compute_80", "compute_80"), (9, 0)).how == "jit"


def test_where_there_are_many_architectures_the_reason_lists_what_there_is() -> None:
    why = gpu_support(modules("sm_80+sm_90+compute_90", "sm_100a"), (7, 5)).why
    assert why.endswith(": there is machine code for sm_80, sm_90, sm_100a; PTX for sm_90.")


def test_code_that_is_linked_counts_and_not_what_it_was_linked_from() -> None:
    linked, left = modules("sm_90", "sm_80")
    relocatable = Fatbin(relocatable=True, entries=left.entries)
    assert gpu_support([relocatable, linked], (9, 0)).none == 0
    assert gpu_support([relocatable], (8, 0)).how == "native"  # where nothing is linked yet


def test_without_device_code_nothing_runs() -> None:
    assert gpu_support([], (9, 0)).why == "There is no device code in it."
    assert gpu_support(modules(), (9, 0)).how == "no"


def test_code_for_link_time_optimization_alone_does_not_run() -> None:
    (found,) = in_file(Image(name="it", data=fatbin(entry(IR, 90))))
    assert "ir for sm_90 is not loaded by itself" in gpu_support([found], (9, 0)).why


def test_the_nearest_machine_code_is_chosen() -> None:
    (module,) = modules("sm_80+sm_86+compute_80+compute_86")
    chosen = choose(module.entries, (8, 9))
    assert chosen is not None
    assert (chosen.kind, chosen.arch) == ("elf", "sm_86")


def test_a_family_holds_its_first_member_and_no_earlier_one() -> None:
    for first, members in FAMILIES.items():
        assert members[0] == first
        assert list(members) == sorted(members)
        assert {member[0] for member in members} == {first[0]}


def test_newer_ptx_never_needs_an_older_driver() -> None:
    assert list(PTX_SINCE.values()) == sorted(PTX_SINCE.values())


@pytest.mark.gpu
@pytest.mark.parametrize(
    "target",
    ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_120",
     "compute_75", "compute_80", "compute_87", "compute_90", "compute_90a", "compute_100", "compute_120"],
)  # fmt: skip
def test_the_driver_loads_what_the_rules_say(target: str, compiled: Callable[[str], ObjectCode]) -> None:
    from cuda.bindings import driver as cuda

    try:
        made = compiled(target)
    except DotcuError as error:
        pytest.skip(f"this compiler makes no code for {target}: {error}")
    torch.zeros(1, device="cuda")  # makes the context current
    image = made.cubin if made.cubin is not None else made.ptx.encode() + b"\0"
    status, module = cuda.cuModuleLoadData(image)
    loaded = status == cuda.CUresult.CUDA_SUCCESS
    if loaded:
        cuda.cuModuleUnload(module)
    support = gpu_support(modules(target), torch.cuda.get_device_capability())
    assert loaded == (support.how != "no"), f"{status}, and the rules say {support.how}"
