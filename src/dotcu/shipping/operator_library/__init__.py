"""A project's operators as a library of C++, for programs without Python.

samples -> recording: what each call allocates and launches -> writing: C++, a library, a wheel

The C++ calls `runtime.h`, which the wheel gets as dotcu.h.
"""
