"""Where the time of an operator's first call goes, from the start of its process on.

asking.py      two new processes: the first finds the cache empty, the second what the first left in it
child.py       what runs in them: the steps up to the first call, and the calls after it
catalogue.py   every phase: what takes the time, and what avoids it
report.py      what was measured, as values
rendering.py   as a table
"""

from dotcu.benchmark.first_call.asking import first_call
from dotcu.benchmark.first_call.report import FirstCall

__all__ = ["FirstCall", "first_call"]
