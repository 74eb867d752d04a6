"""The error of plans, processes and reports; it ends the command with one line."""


class BenchmarkError(Exception):
    """A benchmark cannot be measured; the message names the field, system, process or file."""
