"""Ringway's Python side: what placement plugins are written with, and what runs them."""

__version__ = "0.1.0"
