"""The error of a report that cannot be written."""


class ReportFileError(Exception):
    """A file cannot be written; the message names it."""
