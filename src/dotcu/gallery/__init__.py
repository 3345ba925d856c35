"""The worked examples, each in a folder of its own: `kernel.cu`, `op.py`, `README.md`.

They use dotcu's public names alone, so a folder can be copied into any project as a start.
"""

from dotcu.gallery.add.op import add
from dotcu.gallery.fast_add.op import fast_add
from dotcu.gallery.matmul.op import matmul
from dotcu.gallery.square.op import square
from dotcu.gallery.sum.op import sum

__all__ = ["add", "fast_add", "matmul", "square", "sum"]
