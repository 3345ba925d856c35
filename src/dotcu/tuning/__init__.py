"""Tuning: the fastest configuration of an operator, chosen on a GPU and kept in a file that ships."""

from dotcu.tuning.report import TuneReport
from dotcu.tuning.tuner import tune

__all__ = ["TuneReport", "tune"]
