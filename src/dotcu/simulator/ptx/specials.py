"""The special registers that the simulator has, with their types.

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
        ),
        "u32",
    ),
    **{f"envreg{number}": "b32" for number in range(32)},
    **dict.fromkeys(("clock64", "globaltimer", "gridid"), "u64"),
    "is_explicit_cluster": "pred",
}
