"""Small helpers for readings of household meters."""

__version__ = "0.3.1"
