"""Errors of trained and imported models, and the wording of validation errors. Imports no torch."""

from pydantic import ValidationError


class RunError(Exception):
    """The folder is not a run or lacks what the caller needs; the message has the reason."""


def first_problem(error: ValidationError) -> str:
    """Returns the first validation error as `field: problem`; an error of the whole record has no field."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return ": ".join(part for part in (field, problem) if part)
