"""A body that launches becomes a torch operator."""

from dotcu.operator.operator import ExistingOperator, Operator, op
from dotcu.operator.overload import Overload
from dotcu.operator.samples import Sample

__all__ = ["ExistingOperator", "Operator", "Overload", "Sample", "op"]
