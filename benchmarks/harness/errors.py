"""The error of plans, processes and reports; it ends the command with one line."""

from dragoman.model.errors import UserError


class BenchmarkError(UserError):
    """A benchmark cannot be measured; the message names the field, system, process or file."""
