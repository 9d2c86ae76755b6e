"""Errors: one class for each thing that a caller can do next."""

from __future__ import annotations


class Error(Exception):
    """Every error of Forebay. The class says what the caller can do next."""


class Invalid(Error, ValueError):
    """Fix the call: its arguments cannot be served."""


class Conflict(Error):
    """Decide: something else is there already, or another writer was faster."""


class Full(Error):
    """Slow down, or make room."""


class Unavailable(Error, ConnectionError):
    """Retry later: the place did not answer in time."""


class Fenced(Error):
    """This writer was taken for dead; begin again."""


class OutcomeUnknown(Error):
    """Repeat the same call: its answer was lost."""


class Corrupt(Error):
    """Stored bytes do not verify: use another copy, and report it."""


class Closed(Error):
    """Open it again."""


class Internal(Error):
    """Report a bug."""


class NoColumn(Error, KeyError):
    """There is no column of this name. The message names near ones."""

    def __str__(self) -> str:
        # A KeyError would show its message in quotes.
        return str(self.args[0]) if self.args else ""
