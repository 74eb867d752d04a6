"""The error of free parallel text."""


class SourceError(Exception):
    """Text cannot be provided: an archive, a file in it, or a mixture of licenses. The message has its name and why."""
