"""The worked examples, each in its own folder: `kernel.cu`, `op.py`, `README.md`.

They use dotcu's public names alone, so a folder can be copied into any project as a start, with `common.py`
or `norms.py` where its `op.py` imports them.
"""

from dotcu.gallery.add.op import add
from dotcu.gallery.all_reduce.op import all_reduce, all_reduce_
from dotcu.gallery.all_reduce_add_rms_norm.op import all_reduce_add_rms_norm
from dotcu.gallery.attention.op import (
    attention,
    attention_backward,
    attention_decode,
    attention_varlen,
    attention_varlen_backward,
)
from dotcu.gallery.attention_tile.op import attention_tile, attention_tile_backward
from dotcu.gallery.cross_entropy.op import cross_entropy, cross_entropy_backward
from dotcu.gallery.cumsum.op import cumsum, reverse_cumsum
from dotcu.gallery.fast_add.op import fast_add
from dotcu.gallery.gemv.op import gemv
from dotcu.gallery.layer_norm.op import layer_norm, layer_norm_backward
from dotcu.gallery.matmul.op import grouped_matmul, matmul, matmul_fp8, matmul_swiglu
from dotcu.gallery.matmul_tile.op import matmul_swiglu_tile, matmul_tile
from dotcu.gallery.quantize_fp8.op import quantize_fp8
from dotcu.gallery.reduce_scatter.op import reduce_scatter
from dotcu.gallery.rms_norm.op import add_rms_norm, rms_norm, rms_norm_backward
from dotcu.gallery.softmax.op import softmax, softmax_backward
from dotcu.gallery.softmax_tile.op import softmax_tile, softmax_tile_backward
from dotcu.gallery.square.op import square
from dotcu.gallery.sum.op import sum
from dotcu.gallery.swiglu.op import swiglu, swiglu_backward
from dotcu.gallery.transpose.op import permute_copy, transpose

__all__ = [
    "add",
    "add_rms_norm",
    "all_reduce",
    "all_reduce_",
    "all_reduce_add_rms_norm",
    "attention",
    "attention_backward",
    "attention_decode",
    "attention_tile",
    "attention_tile_backward",
    "attention_varlen",
    "attention_varlen_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "cumsum",
    "fast_add",
    "gemv",
    "grouped_matmul",
    "layer_norm",
    "layer_norm_backward",
    "matmul",
    "matmul_fp8",
    "matmul_swiglu",
    "matmul_swiglu_tile",
    "matmul_tile",
    "permute_copy",
    "quantize_fp8",
    "reduce_scatter",
    "reverse_cumsum",
    "rms_norm",
    "rms_norm_backward",
    "softmax",
    "softmax_backward",
    "softmax_tile",
    "softmax_tile_backward",
    "square",
    "sum",
    "swiglu",
    "swiglu_backward",
    "transpose",
]
