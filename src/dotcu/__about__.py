"""The version, for the package and for the wheel's metadata."""

__version__ = "0.1.0"
