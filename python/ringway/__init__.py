"""Ringway's Python packages: the API of placement plugins, and the programs that run them."""

__version__ = "0.1.0"
