"""A body that launches becomes a torch operator."""

from dotcu.operator.operator import Operator, op
from dotcu.operator.overload import Overload
from dotcu.operator.samples import Sample

__all__ = ["Operator", "Overload", "Sample", "op"]
