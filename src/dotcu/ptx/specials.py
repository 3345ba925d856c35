"""The special registers that PTX has, with their types; the parser takes them all.

Source: PTX ISA, "Special Registers" (chapter 10).
"""

from __future__ import annotations

from collections.abc import Mapping

_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")

SPECIAL_REGISTERS: Mapping[str, str] = {
    **{f"{name}.{axis}": "u32" for name in _VECTORS for axis in "xyz"},
    **dict.fromkeys(
        (
            "laneid",
            "warpid",
            "nwarpid",
            "smid",
            "nsmid",
            "lanemask_eq",
            "lanemask_le",
            "lanemask_lt",
            "lanemask_ge",
            "lanemask_gt",
            "clock",
            "clock_hi",
            "dynamic_smem_size",
            "total_smem_size",
            "aggr_smem_size",
            "globaltimer_lo",
            "globaltimer_hi",
            "cluster_ctarank",
            "cluster_nctarank",
            "reserved_smem_offset_begin",
            "reserved_smem_offset_end",
            "reserved_smem_offset_cap",
            "reserved_smem_offset_0",
            "reserved_smem_offset_1",
            *(f"envreg{n}" for n in range(32)),
            *(f"pm{n}" for n in range(8)),
        ),
        "u32",
    ),
    **{f"envreg{number}": "b32" for number in range(32)},
    **dict.fromkeys(("clock64", "globaltimer", "gridid", "current_graph_exec"), "u64"),
    **{f"pm{n}_64": "u64" for n in range(8)},
    "is_explicit_cluster": "pred",
}
