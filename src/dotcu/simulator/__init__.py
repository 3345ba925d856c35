"""CUDA kernels on the CPU: PTX executed instruction by instruction, on NumPy."""

from dotcu.simulator.counting.counters import Counters, Line
from dotcu.simulator.finding import Finding
from dotcu.simulator.launch import launch
from dotcu.simulator.machine.memory import Buffer, Memory
from dotcu.simulator.program import Entry, EntryHeader, Loaded, Param, Program, entry_headers
from dotcu.simulator.run import CHECKS, Run
from dotcu.simulator.tensor_map import Map

__all__ = [
    "CHECKS",
    "Buffer",
    "Counters",
    "Entry",
    "EntryHeader",
    "Finding",
    "Line",
    "Loaded",
    "Map",
    "Memory",
    "Param",
    "Program",
    "Run",
    "entry_headers",
    "launch",
]
