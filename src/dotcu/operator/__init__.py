"""A body that launches becomes a torch operator."""

from dotcu.operator.defining import op
from dotcu.operator.existing import ExistingOperator
from dotcu.operator.operator import Operator
from dotcu.operator.overload import Overload
from dotcu.operator.samples import Sample

__all__ = ["ExistingOperator", "Operator", "Overload", "Sample", "op"]
