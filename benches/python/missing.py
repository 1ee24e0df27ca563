"""What a tool says whose program is not on this machine: a row of the page, not a failure."""

from __future__ import annotations


class NotInstalled(Exception):
    """The message names what is not there."""
