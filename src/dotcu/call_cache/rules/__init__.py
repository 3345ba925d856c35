"""Rules: for each function of torch that a plan can say, what it gives, in steps.

A rule takes the tracer and the function's own arguments, and gives what it foresees: an answer to
a query, or the layout of the tensors that torch is going to return, which is then compared. It
raises `Untold` for what no plan can say. A function without a rule ends the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotcu.call_cache.rules.allocations import ALLOCATIONS
from dotcu.call_cache.rules.indexing import INDEXING
from dotcu.call_cache.rules.queries import QUERIES, Rule
from dotcu.call_cache.rules.views import VIEWS

RULES: Mapping[Any, Rule] = {**QUERIES, **ALLOCATIONS, **VIEWS, **INDEXING}

__all__ = ["RULES", "Rule"]
