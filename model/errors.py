"""Errors of trained and imported models. Imports no torch."""


class RunError(Exception):
    """The folder is not a run or lacks what the caller needs; the message has the reason."""
