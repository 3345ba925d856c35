"""A launch's arguments: checked against their parameters and packed; the memory of tensors (memory.py)."""

from __future__ import annotations

import ctypes
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from dotcu.errors import ArgumentError, SourceError
from dotcu.kernel.arguments.pack import (
    MapUse,
    PackingPlan,
    Placement,
    Strided,
    pack,
    packing_plan,
    require_one_device,
    strided,
    tensors_in,
)
from dotcu.kernel.arguments.signature import read_parameters
from dotcu.kernel.arguments.tensor_map import Tiled, tensor_map
from dotcu.kernel.arguments.values import ELEMENTS
from dotcu.kernel.launch import _launcher
from dotcu.kernel.module import SPELLINGS, spelling


@dataclass(frozen=True)
class Entry:
    size: int
    align: int
    type: str


_SIZES = {"b": 1, "c": 1, "a": 1, "h": 1, "s": 2, "t": 2, "i": 4, "j": 4, "f": 4}
_SIZES |= dict.fromkeys("lmxydP", 8)


def make(
    codes: list[str],
    sizes: dict[int, Entry] | None = None,
    names: str = "abcdefgh",
    maps: dict[int, MapUse] | None = None,
) -> PackingPlan:
    """A plan for a kernel `k` whose parameters have these mangled types."""
    entry = [
        (sizes or {}).get(i, Entry(_SIZES.get(code[0], 8), _SIZES.get(code[0], 8), "u64"))
        for i, code in enumerate(codes)
    ]
    probe = f"_Z13__dotcu_probeIPFv{''.join(codes)}EEvv"
    return packing_plan(
        "k", read_parameters("k", probe=probe, names=list(names[: len(codes)]), entry=entry), maps or {}
    )


def run(made: PackingPlan, *args: Any) -> tuple[bytes, ...]:
    return pack(made, args, Placement(lambda tensor, name, writable: tensor.data_ptr(), encoded, stored))[0]


def written(made: PackingPlan, *args: Any) -> tuple[torch.Tensor, ...]:
    return pack(made, args, Placement(lambda tensor, name, writable: tensor.data_ptr(), encoded, stored))[1]


def encoded(tiled: Tiled, address: int) -> bytes:
    return str(address).encode().ljust(128, b"!")


def stored(data: bytes, name: str, writable: bool) -> int:
    raise AssertionError("there is no list")


def refusal(made: PackingPlan, *args: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        run(made, *args)
    return str(caught.value)


def test_a_tensor_gives_its_address_and_numbers_their_bytes() -> None:
    x = torch.zeros(4)
    packed = run(make(["PKf", "Pf", "f", "x"]), x, x, 1.5, 7)
    address = struct.pack("<Q", x.data_ptr())
    assert packed == (address, address, struct.pack("<f", 1.5), struct.pack("<q", 7))


def test_only_tensors_for_pointers_to_non_const_count_as_written() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    assert [t is y for t in written(make(["PKf", "Pf", "Pf"]), x, y, None)] == [True]


def test_none_is_a_null_pointer() -> None:
    assert run(make(["PKf"]), None) == (bytes(8),)


def test_a_message_names_kernel_parameter_what_it_takes_what_it_got_and_the_line_to_type() -> None:
    message = refusal(make(["PKf"]), torch.zeros(3, dtype=torch.float64))
    assert message == (
        "k: parameter 1, const float* a, takes a contiguous float32 tensor, or None, got a float64 tensor of "
        "shape (3,) on cpu.\nPass t.to(torch.float32), or a kernel for torch.float64."
    )


@pytest.mark.parametrize(
    ("code", "value", "says"),
    [
        ("i", 2**31, "from -2147483648 to 2147483647, got int 2147483648"),
        ("i", -(2**31) - 1, "got int -2147483649"),
        ("j", -1, "an int from 0 to 4294967295, got int -1"),
        ("h", 256, "an int from 0 to 255"),
        ("a", -129, "an int from -128 to 127"),
        ("y", 2**64, "got int 18446744073709551616"),
        ("i", 1.0, "got float 1.0.\nIf the fraction may be cut off, write int(x)."),
        ("i", True, "got True.\nIf 0 or 1 is meant, write int(flag)."),
        ("i", np.bool_(True), "write int(flag)"),
        ("i", "3", "got str '3'.\nPass a Python int."),
        ("i", None, "got None"),
        ("i", torch.tensor(3), "got an int64 tensor of shape () on cpu.\nPass a Python number, not a tensor"),
        ("f", torch.tensor(3.0), "not a tensor"),
        ("f", True, "write float(flag)"),
        ("f", 1e39, 'or float("inf") if that is meant'),
        ("f", 10**400, "Pass a smaller number."),
        ("f", 1j, "Pass a Python float."),
        ("b", 1, "takes a bool, got int 1.\nWrite bool(x)."),
        ("b", 1.0, "takes a bool, got float 1.0"),
        ("PKf", 3.0, "got float 3.0.\nPass a tensor"),
        ("PKf", 140737488355328, "got int 140737488355328.\nPass a tensor"),
        ("PKf", np.zeros(3, np.float32), "Pass a tensor"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(code: str, value: Any, says: str) -> None:
    assert says in refusal(make([code]), value)


@pytest.mark.parametrize(
    ("code", "value", "data"),
    [
        ("i", np.int64(5), struct.pack("<i", 5)),
        ("x", -(2**63), struct.pack("<q", -(2**63))),
        ("y", 2**64 - 1, b"\xff" * 8),
        ("f", 2, struct.pack("<f", 2.0)),
        ("f", np.float64(0.5), struct.pack("<f", 0.5)),
        ("f", ml_dtypes.bfloat16(0.5), struct.pack("<f", 0.5)),
        ("f", math.inf, struct.pack("<f", math.inf)),
        ("d", 1e300, struct.pack("<d", 1e300)),
        ("b", True, b"\1"),
        ("b", np.bool_(False), b"\0"),
        ("6__half", 1.5, struct.pack("<e", 1.5)),
        ("13__nv_bfloat16", 1.5, b"\xc0\x3f"),
        ("13__nv_bfloat16", -math.inf, b"\x80\xff"),
        ("13__nv_fp8_e4m3", 1.0, b"\x38"),
        ("13__nv_fp8_e5m2", 1.0, b"\x3c"),
    ],
)
def test_a_number_is_packed_in_the_parameters_format(code: str, value: Any, data: bytes) -> None:
    entry = Entry(len(data), len(data), "b8")
    assert run(make([code], {0: entry}), value) == (data,)


@pytest.mark.parametrize(("code", "size"), [("6__half", 2), ("13__nv_bfloat16", 2), ("13__nv_fp8_e4m3", 1)])
def test_a_number_beyond_a_narrow_format_is_refused(code: str, size: int) -> None:
    assert "range of" in refusal(make([code], {0: Entry(size, size, "b8")}), 1e39)


def test_nan_is_a_number_in_every_float_format() -> None:
    assert np.isnan(np.frombuffer(run(make(["f"]), math.nan)[0], np.float32)[0])
    narrow = run(make(["13__nv_fp8_e4m3"], {0: Entry(1, 1, "b8")}), math.nan)[0]
    assert np.isnan(np.frombuffer(narrow, ml_dtypes.float8_e4m3fn).astype(np.float32)[0])


@pytest.mark.parametrize(("args", "says"), [((1,), "Missing: int b"), ((1, 2, 3), "Left over: int 3")])
def test_the_wrong_number_of_arguments_shows_the_parameter_list(args: tuple[int, ...], says: str) -> None:
    message = refusal(make(["i", "i"]), *args)
    assert f"takes 2 arguments, got {len(args)}" in message
    assert says in message
    assert "k(int a, int b)" in message


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("a", torch.uint8),
        ("c", torch.uint8),
        ("c", torch.int8),
        ("h", torch.int8),
        ("t", torch.int16),
        ("s", torch.uint16),
        ("j", torch.int32),
        ("i", torch.uint32),
        ("l", torch.int64),
        ("m", torch.int64),
        ("x", torch.uint64),
        ("y", torch.int64),
        ("b", torch.bool),
        ("d", torch.float64),
        ("6__half", torch.float16),
        ("13__nv_bfloat16", torch.bfloat16),
        ("13__nv_fp8_e4m3", torch.float8_e4m3fn),
        ("13__nv_fp8_e5m2", torch.float8_e5m2),
        ("7__half2", torch.float16),
        ("14__nv_bfloat162", torch.bfloat16),
        ("6float2", torch.float32),
        ("4int4", torch.uint32),
        ("5uint4", torch.int32),
        ("7double2", torch.float64),
        ("v", torch.complex64),
        ("3Box", torch.float32),
        ("Pf", torch.int64),
    ],
)
def test_a_pointer_takes_the_dtypes_of_its_element(element: str, dtype: torch.dtype) -> None:
    assert run(make([f"P{element}"]), torch.zeros(8, dtype=dtype)) != (bytes(8),)


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("f", torch.float64),
        ("f", torch.int32),
        ("i", torch.int64),
        ("x", torch.int32),
        ("b", torch.uint8),
        ("h", torch.bool),
        ("6__half", torch.bfloat16),
        ("13__nv_fp8_e4m3", torch.float8_e5m2),
        ("6float2", torch.complex64),
        ("Pf", torch.float32),
    ],
)
def test_a_pointer_refuses_other_dtypes(element: str, dtype: torch.dtype) -> None:
    assert str(dtype).removeprefix("torch.") in refusal(make([f"P{element}"]), torch.zeros(8, dtype=dtype))


def test_a_misaligned_tensor_for_a_vector_type_is_refused() -> None:
    message = refusal(make(["PK6float4"]), torch.zeros(9)[1:])
    assert "takes a contiguous float32 tensor, 16-byte aligned, or None" in message
    assert "starts 4 bytes past an address divisible by 16" in message
    assert "dotcu.is_aligned(t, 16)" in message


@pytest.mark.parametrize(
    ("element", "dtype", "view"),
    [
        ("13__nv_fp8_e4m3", torch.uint8, "t.view(torch.float8_e4m3fn)"),
        ("13__nv_fp8_e8m0", torch.uint8, "t.view(torch.float8_e8m0fnu)"),
        ("h", torch.float8_e4m3fn, "t.view(torch.uint8)"),
        ("h", torch.bool, "t.view(torch.uint8)"),
        ("6__half", torch.uint16, "t.view(torch.float16)"),
        ("t", torch.bfloat16, "t.view(torch.uint16)"),
        ("6float2", torch.complex64, "torch.view_as_real(t)"),
    ],
)
@pytest.mark.parametrize("const", ["", "K"])
def test_the_same_bits_in_another_dtype_are_to_be_viewed(
    const: str, element: str, dtype: torch.dtype, view: str
) -> None:
    remedy = refusal(make([f"P{const}{element}"]), torch.zeros(8).to(dtype)).partition("\n")[2]
    assert f"Pass {view}" in remedy
    assert ".to(" not in remedy


@pytest.mark.parametrize(
    ("element", "dtype", "wanted"),
    [
        ("15__nv_fp8x4_e5m2", torch.int8, torch.float8_e5m2),
        ("b", torch.uint8, torch.bool),
        ("6__half", torch.int16, torch.float16),
    ],
)
def test_what_may_be_values_or_bits_is_converted_or_viewed(
    element: str, dtype: torch.dtype, wanted: torch.dtype
) -> None:
    remedy = refusal(make([f"PK{element}"]), torch.zeros(8).to(dtype)).partition("\n")[2]
    assert remedy == f"Pass t.to({wanted}) for the values, or t.view({wanted}) if it holds the bits."
    assert f"Pass tmp = t.to({wanted}) for" in refusal(make([f"P{element}"]), torch.zeros(8).to(dtype))


@pytest.mark.parametrize(
    ("element", "tensor"),
    [
        ("6float4", torch.ones(2, 8).half()),
        ("6float4", torch.ones(8, 1).half()),
        ("5uint4", torch.ones(8)),
        ("7__half2", torch.ones(8)),
    ],
)
@pytest.mark.parametrize("const", ["", "K"])
def test_a_tensor_that_is_moved_by_wider_words_is_to_be_viewed(
    const: str, element: str, tensor: torch.Tensor
) -> None:
    plan = make([f"P{const}{element}"])
    view = re.search(r"pass (t\S*): the same memory", refusal(plan, tensor))
    assert view is not None
    viewed = eval(view[1], {"t": tensor, "torch": torch})  # the advice
    assert viewed.data_ptr() == tensor.data_ptr()
    run(plan, viewed)


def test_a_reference_is_refused_with_its_declaration() -> None:
    with pytest.raises(
        SourceError, match=r"b, is a reference.*\n.*\nDeclare it: const float b, or const float\* b"
    ):
        make(["Pf", "RKf"])


@pytest.mark.parametrize(
    ("code", "value", "says"),
    [
        ("j", -1, "got int -1.\nPass a number from 0 on, or give the parameter a signed type"),
        ("h", 256, "Pass a smaller number, or give the parameter a wider type, such as long long"),
        ("a", -129, "Pass a larger number, or give the parameter a wider type, such as long long"),
        ("x", 2**63, "wider type, such as unsigned long long"),
        ("y", 2**64, "wider type, such as __int128"),
        ("y", 2**200, "Pass a smaller number."),
    ],
)
def test_a_number_beyond_its_type_says_which_one_holds_it(code: str, value: int, says: str) -> None:
    assert says in refusal(make([code]), value)


@pytest.mark.parametrize(
    ("element", "tensor"),
    [
        ("f", torch.zeros(4, 3).t()),
        ("f", torch.zeros(3, 4, dtype=torch.float64)),
        ("13__nv_fp8_e4m3", torch.zeros(3, 4)),
        ("6float4", torch.zeros(13)[1:].view(3, 4)),
        ("f", torch.zeros(3, 4).to_sparse()),
    ],
)
def test_a_copy_for_a_pointer_that_is_written_is_copied_back(element: str, tensor: torch.Tensor) -> None:
    remedy = refusal(make([f"P{element}"]), tensor).partition("\n")[2]
    copies = ("t.contiguous()", "t.to(", "t.clone()", "t.to_dense()")
    assert any(f"tmp = {copy}" in remedy for copy in copies)
    back = "take the result from tmp" if tensor.is_sparse else "t.copy_(tmp)"
    assert f"After the launch {back}: the kernel may write it" in remedy
    read = refusal(make([f"PK{element}"]), tensor)
    assert any(copy in read for copy in copies)
    assert "tmp" not in read


def test_a_copy_of_an_output_on_another_device_is_copied_back() -> None:
    args = [torch.zeros(3), torch.zeros(3, device="meta")]
    with pytest.raises(ArgumentError, match=r'pass tmp = t.to\("cpu"\)(.|\n)*t.copy_\(tmp\)'):
        require_one_device(make(["PKf", "Pf"]), args, tensors_in(args))
    with pytest.raises(ArgumentError, match=r'pass t.to\("cpu"\)'):
        require_one_device(make(["PKf", "PKf"]), args, tensors_in(args))


def test_a_copy_for_a_tensor_map_that_is_stored_through_is_copied_back() -> None:
    made = make(["14CUtensorMap_st"], {0: Entry(128, 64, "b8")}, maps={0: "stored"})
    message = refusal(made, tensor_map(torch.zeros(64, 64).t(), box=(8, 8)))
    assert "tmp = t.contiguous()" in message
    assert "t.copy_(tmp)" in message


def test_the_vector_types_have_the_sizes_and_alignments_of_cuda() -> None:
    rows = {name: (ELEMENTS[name].size, ELEMENTS[name].alignment) for name in ELEMENTS}
    expected = {"char4": (4, 4), "uchar2": (2, 2), "char3": (3, 1), "short4": (8, 8), "int2": (8, 8)}
    expected |= {
        "int3": (12, 4),
        "uint4": (16, 16),
        "longlong2": (16, 16),
        "float2": (8, 8),
        "float3": (12, 4),
    }
    expected |= {"float4": (16, 16), "double2": (16, 16), "double4_32a": (32, 32), "__half2": (4, 4)}
    assert {name: rows[name] for name in expected} == expected


def test_a_non_contiguous_tensor_needs_strided() -> None:
    message = refusal(make(["Pf"]), torch.zeros(3, 4).t())
    assert "with strides (1, 4)" in message
    assert "dotcu.strided(t)" in message


def test_strided_gives_the_pointer_and_then_the_strides() -> None:
    x = torch.zeros(3, 4).t()
    packed = run(make(["PKf", "x", "i", "f"]), strided(x), 2.0)
    address, rows, columns, alpha = packed
    assert int.from_bytes(address, "little") == x.data_ptr()
    assert (rows, columns, alpha) == (struct.pack("<q", 1), struct.pack("<i", 4), struct.pack("<f", 2.0))


def test_a_stride_that_does_not_fit_says_that_it_is_one() -> None:
    x = torch.zeros(1).as_strided((1, 1), (2**40, 1))
    assert "1099511627776, a stride of a dotcu.strided tensor" in refusal(make(["PKf", "i", "i"]), strided(x))


def test_a_tensor_struct_takes_a_tensor_as_it_is() -> None:
    x = torch.zeros(3, 4).t()
    made = make(["N5dotcu6tensorIKfLi2EEE"], {0: Entry(40, 8, "b8")})
    assert run(made, x) == (struct.pack("<Q4q", x.data_ptr(), 4, 3, 1, 4),)
    assert written(made, x) == ()
    assert written(make(["N5dotcu6tensorIfLi2EEE"], {0: Entry(40, 8, "b8")}), x)[0] is x
    assert run(made, None) == (bytes(40),)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            torch.zeros(3),
            "a float32 tensor of 2 dimensions, strided or not, or None, got a float32 tensor of shape (3,)",
        ),
        (torch.zeros(3, 3, dtype=torch.int32), "got an int32 tensor"),
        (3, "got int 3"),
    ],
)
def test_a_tensor_struct_refuses_other_ranks_and_dtypes(value: Any, says: str) -> None:
    assert says in refusal(make(["N5dotcu6tensorIfLi2EEE"], {0: Entry(40, 8, "b8")}), value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(2**16, 2**15),
        torch.empty(2**31 + 2, dtype=torch.bool).as_strided((3, 2), (2**30, 1)),
    ],
)
def test_indices_of_32_bits_reach_every_element(tensor: torch.Tensor) -> None:
    code = "b" if tensor.dtype is torch.bool else "f"
    infos = [f"N2at4cuda6detail10TensorInfoI{code}{index}EE" for index in ("i", "l")]
    made = [make([info], {0: Entry(size, 8, "b8")}) for info, size in zip(infos, (216, 416), strict=True)]
    assert "Instantiate the kernel for indices of 64 bits." in refusal(made[0], tensor)
    assert len(run(made[1], tensor)[0]) == 416
    assert _launcher(made[0]) is None


def test_strided_for_a_tensor_struct_is_refused() -> None:
    made = make(["N5dotcu6tensorIfLi1EEE", "x"], {0: Entry(24, 8, "b8")})
    assert "Pass t itself" in refusal(made, strided(torch.zeros(3)))


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))


def test_a_struct_is_a_ctypes_structure_a_numpy_scalar_or_its_bytes() -> None:
    made = make(["4Pair"], {0: Entry(16, 8, "b8")})
    numpy_type = np.dtype([("a", "i4"), ("b", "f8")], align=True)
    scalar = np.array((3, 0.5), numpy_type)[()]
    for value in (Pair(3, 0.5), scalar, np.array((3, 0.5), numpy_type), bytes(Pair(3, 0.5))):
        packed = run(made, value)[0]
        assert (packed[:4], packed[8:]) == (struct.pack("<i", 3), struct.pack("<d", 0.5))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"12345678", "got a bytes of 8 bytes.\nGive it the fields and padding of the C++ struct: 16 bytes."),
        (3, "Pass a dataclass or a dict of its members, or a ctypes.Structure, a NumPy structured scalar or"),
        ((3, 0.5), "Pass a dataclass or a dict of its members, or a ctypes.Structure"),
    ],
)
def test_a_struct_of_another_size_is_refused(value: Any, says: str) -> None:
    assert says in refusal(make(["4Pair"], {0: Entry(16, 8, "b8")}), value)


def test_a_vector_by_value_is_a_tuple_of_numbers() -> None:
    made = make(["6float4"], {0: Entry(16, 16, "b8")})
    assert run(made, (1, 2.0, 3, 4)) == (struct.pack("<4f", 1, 2, 3, 4),)
    assert "Pass 4 numbers" in refusal(made, (1, 2))


def test_a_dict_for_a_vector_says_that_a_tuple_is_taken() -> None:
    plan = make(["6float3"], {0: Entry(12, 4, "b8")})
    assert "Pass a tuple of numbers: (x, y, z)." in refusal(plan, {"x": 1.0, "y": 2.0, "z": 3.0})
    run(plan, (1.0, 2.0, 3.0))


def test_an_enum_is_an_int() -> None:
    assert run(make(["N2ns4ModeE"], {0: Entry(4, 4, "u32")}), 2) == (struct.pack("<I", 2),)


class Subclass(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_without_plain_memory_are_refused() -> None:
    x = torch.zeros(4)
    complex_ = torch.zeros(4, dtype=torch.complex64)
    cases = [
        (complex_.conj(), "PKv", "t.resolve_conj()"),
        (complex_.conj().imag, "PKf", "t.resolve_neg()"),
        (torch._efficientzerotensor(4), "Pf", "ZeroTensor"),
        (x.to_sparse(), "PKf", "t.to_dense()"),
        (x.to("meta"), "Pf", "without memory"),
        (torch.quantize_per_tensor(x, 1.0, 0, torch.qint8), "Pa", "quantized"),
        (x.as_subclass(Subclass), "Pf", "of type Subclass, a subclass"),
    ]
    for tensor, code, says in cases:
        assert says in refusal(make([code]), tensor)


def freed(tensor: torch.Tensor, nbytes: int = 0) -> torch.Tensor:
    """A tensor without all of its storage, as FSDP leaves parameters after their use."""
    tensor.untyped_storage().resize_(nbytes)
    return tensor


@pytest.mark.parametrize(
    ("code", "value", "says"),
    [
        ("PKf", freed(torch.zeros(10)), "(10,) on cpu whose storage has 0 of the 40 bytes"),
        ("PKf", freed(torch.zeros(10), 39), "has 39 of the 40 bytes"),
        ("Pv", freed(torch.zeros(10)[6:]), "has 0 of the 40 bytes"),
        ("PKf", strided(freed(torch.zeros(4, 5).t(), 76)), "has 76 of the 80 bytes"),
    ],
)
def test_a_storage_that_ends_before_the_tensor_does_is_refused(code: str, value: Any, says: str) -> None:
    rest = ["l"] * 2 if isinstance(value, Strided) else []
    message = refusal(make([code, *rest]), value)
    assert says in message
    assert "t.untyped_storage().resize_(" in message


def test_a_storage_that_the_advice_has_made_larger_is_taken() -> None:
    tensor = freed(torch.zeros(10)[4:])
    assert "t.untyped_storage().resize_(40), then" in refusal(make(["PKf"]), tensor)
    tensor.untyped_storage().resize_(40)
    run(make(["PKf"]), tensor)
    run(make(["PKf"]), freed(torch.zeros(10)[:0]))  # an empty one needs none


def test_parameters_and_inference_tensors_are_plain_memory() -> None:
    with torch.inference_mode():
        inference = torch.zeros(4)
    for tensor in (torch.nn.Parameter(torch.zeros(4)), inference):
        assert run(make(["PKf"]), tensor) == (struct.pack("<Q", tensor.data_ptr()),)


def test_tensors_on_two_devices_are_refused_by_parameter() -> None:
    args = [torch.zeros(3), torch.zeros(3, device="meta")]
    with pytest.raises(
        ArgumentError, match=r'float\* b is on meta, and the tensors before it on cpu.*\n.*"cpu"'
    ):
        require_one_device(make(["PKf", "Pf"]), args, tensors_in(args))


def test_parameters_without_a_name_are_numbered() -> None:
    assert "parameter 1, int, takes" in refusal(make(["i"], names=""), 1.0)


def test_probe_and_entry_that_disagree_are_refused() -> None:
    with pytest.raises(SourceError, match="1 parameters by its type and 0 by its PTX entry"):
        read_parameters("k", probe="_Z13__dotcu_probeIPFviEEvv", names=[], entry=[])


def test_each_dtype_has_the_element_that_reads_it() -> None:
    for dtype, name in SPELLINGS.items():
        assert dtype in ELEMENTS[name].dtypes
        assert spelling(dtype) == name


@pytest.mark.parametrize("dtype", [torch.complex64, torch.qint8])
def test_a_dtype_without_a_cpp_type_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ArgumentError, match="has no C\\+\\+ type"):
        spelling(dtype)


def test_a_function_pointer_takes_none() -> None:
    made = make(["PFvfE", "i"])
    assert run(made, None, 1) == (bytes(8), struct.pack("<i", 1))
    assert run(made, bytes(range(8)), 1)[0] == bytes(range(8))
    assert "takes None, or its 8 bytes, got int 3" in refusal(made, 3, 1)


def test_strided_for_a_tensor_struct_is_reported_before_the_count() -> None:
    made = make(
        ["i", "N5dotcu6tensorIfLi2EEE", "N5dotcu6tensorIfLi2EEE"],
        {1: Entry(40, 8, "b8"), 2: Entry(40, 8, "b8")},
    )
    message = refusal(made, 1, strided(torch.zeros(3, 3)), torch.zeros(3, 3))
    assert message.endswith("got dotcu.strided(t).\nPass t itself: dotcu::tensor has its sizes and strides.")
    assert "strided or not, or None" in message


def test_half_precision_is_rounded_once_to_nearest_even() -> None:
    made = make(["6__half"], {0: Entry(2, 2, "b8")})
    value = 1 + 2**-11 + 2**-40  # by way of float32 it would be a tie, and round to 1
    assert run(made, value) == (struct.pack("<e", 1 + 2**-10),)


MAP = "14CUtensorMap_st"
MAP_ENTRY = Entry(128, 128, "b8")


def make_maps(*uses: MapUse) -> PackingPlan:
    """A kernel of that many tensor maps, then a `const float*`."""
    codes = [MAP, *["S0_" for _ in uses[1:]], "PKf"]
    return make(codes, dict.fromkeys(range(len(uses)), MAP_ENTRY), maps=dict(enumerate(uses)))


def test_a_tensor_map_is_encoded_with_the_address_of_its_tensor() -> None:
    x = torch.zeros(8, 64)
    packed = run(make_maps("loaded"), tensor_map(x, box=(8, 32)), x)
    assert packed[0] == str(x.data_ptr()).encode().ljust(128, b"!")


def test_the_tensor_of_a_map_has_to_have_all_of_its_storage() -> None:
    x = torch.zeros(8, 64)
    mapped = tensor_map(freed(x.clone()), box=(8, 32))
    assert "has 0 of the 2048 bytes" in refusal(make_maps("loaded"), mapped, x)


def test_a_tensor_counts_as_written_where_its_map_is_stored_through() -> None:
    x, y = torch.zeros(64), torch.zeros(64)
    tensors = written(make_maps("loaded", "stored"), tensor_map(x, box=64), tensor_map(y, box=64), x)
    assert [t is y for t in tensors] == [True]


def test_whether_a_map_is_stored_through_is_reported_to_the_one_who_gives_addresses() -> None:
    asked = []

    def address(tensor: torch.Tensor, name: str, writable: bool) -> int:
        asked.append((name, writable))
        return 0

    x = tensor_map(torch.zeros(64), box=64)
    pack(make_maps("loaded", "stored"), [x, x, None], Placement(address, encoded, stored))
    assert asked == [("a", False), ("b", True)]


def test_the_tensor_of_a_map_is_one_of_the_launchs_tensors() -> None:
    x = torch.zeros(64)
    assert tensors_in([1, tensor_map(x, box=64), x])[0] is x
    elsewhere = torch.zeros(64, device="meta")
    args = [tensor_map(x, box=64), tensor_map(elsewhere, box=64), x]
    with pytest.raises(ArgumentError, match="CUtensorMap_st b is on meta, and the tensors before it on cpu"):
        require_one_device(make_maps("loaded", "loaded"), args, tensors_in(args))


def test_a_map_that_is_copied_is_refused_with_its_declaration() -> None:
    with pytest.raises(SourceError) as caught:
        make_maps("copied")
    assert "k: parameter 1, CUtensorMap_st a, is copied into each thread's own memory" in str(caught.value)
    assert "\nDeclare it: const __grid_constant__ CUtensorMap a" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.zeros(8, 8), "takes a dotcu.tensor_map, got a float32 tensor of shape (8, 8) on cpu.\n"),
        (torch.zeros(8, 8), "\nPass dotcu.tensor_map(t, box=(64, 64)), with the box that the kernel copies."),
        (torch.zeros(8), "\nPass dotcu.tensor_map(t, box=64)"),
        (None, "got None"),
        (3, "got int 3"),
        (bytes(64), "got a bytes of 64 bytes"),
        (tensor_map(torch.zeros(8, 8), box=(8, 7)), "box=(8, 7) with 28 bytes in a row of the box"),
        (tensor_map(torch.zeros(8, device="meta"), box=4), "on meta, without memory"),
        (tensor_map(torch.zeros(8, dtype=torch.complex64).conj(), box=4), "with a conj bit"),
        (tensor_map(7, box=4), "got int 7.\nPass a tensor"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_tensor_map_is_refused(value: Any, says: str) -> None:
    assert says in refusal(make_maps("loaded"), value, None)


def test_a_map_that_the_caller_encoded_goes_as_it_is() -> None:
    assert run(make_maps("loaded"), bytes(range(128)), None)[0] == bytes(range(128))


def test_an_empty_tensor_has_no_map_but_is_checked() -> None:
    empty = torch.zeros(0, 64)
    assert run(make_maps("loaded"), tensor_map(empty, box=(8, 64)), None)[0] == bytes(128)
    assert "box 300" in refusal(make_maps("loaded"), tensor_map(empty, box=(300, 64)), None)


@pytest.mark.parametrize(
    ("code", "entry"), [("PKf", None), ("i", None), ("1S", Entry(128, 64, "b8")), ("PFvvE", None)]
)
def test_a_map_for_another_parameter_is_refused(code: str, entry: Entry | None) -> None:
    made = make([code], {0: entry} if entry else None)
    message = refusal(made, tensor_map(torch.zeros(8), box=4))
    assert "got a tensor map of a float32 tensor of shape (8,) on cpu, box=(4,).\n" in message
    assert (
        "\nPass the tensor itself, or declare the parameter const __grid_constant__ CUtensorMap." in message
    )
