"""The calls that are tried: the operator's samples, and what is derived from them.

case.py      a call with a name, that can be made again and again
given.py     the samples that an operator's author gave
sizes.py     the same call at other sizes: empty, one, primes, each side of a warp, a block, a tile
layouts.py   the same values in other memory layouts
values.py    other values: huge, tiny, not finite, all equal, extremes
wrong.py     arguments that an operator may refuse
choice.py    which of these a level tries
"""
