"""The calls that are tried: the operator's samples, and what is derived from them.

samples.py   a call with a name, that can be made again and again; the samples of an operator's author
derived.py   the same call at other sizes and ranks, in other layouts, on other values; what a level tries
wrong.py     arguments that an operator may refuse
"""
