"""The command `plait`: the same calls and names as the Python functions."""

from plait.cli._main import main

__all__ = ["main"]
