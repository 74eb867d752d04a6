"""Fields that a client sends: what every record of them has in common, and how a fault of one becomes an error.

Both interfaces read requests into these records, so that they refuse the same things in the same words: the message
names the field, shows its value and tells what was expected. Knows neither protocol nor any record.
"""

import json

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from serve.errors import InvalidRequestError

MAX_SHOWN_CHARACTERS = 64
# Each of them may be spelled with two escapes of six characters, and a number may have any number of digits.
_MAX_SPELLED_CHARACTERS = 12 * MAX_SHOWN_CHARACTERS
_UNKNOWN = "unknown_field"


class Fields(BaseModel):
    """A record that holds what it declares and nothing else: no field more, no value of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, content: object) -> object:
        # Pydantic would collect an error for each unknown name, which for a large body takes a second.
        for name in content if isinstance(content, dict) else ():
            if name not in cls.model_fields:
                printable = name[:MAX_SHOWN_CHARACTERS].encode("unicode_escape").decode()
                raise PydanticCustomError(_UNKNOWN, "unknown field", {"name": printable})
        return content


def refusal(error: ValidationError, *parents: str) -> InvalidRequestError:
    """Returns the error for a client whose fields are not valid: what is wrong with the first of them.

    Args:
        error: what pydantic said.
        parents: fields that lead to the record, from the outermost on.
    """
    first = error.errors(include_url=False)[0]
    return InvalidRequestError(_path(first, parents), _problem(first))


def shown(value: object) -> str:
    """Returns a value that a client made up, fit for a message: ASCII, as JSON spells it, and not too long."""
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return json.dumps(value[:MAX_SHOWN_CHARACTERS] if isinstance(value, str) else value)[:_MAX_SPELLED_CHARACTERS]


def _path(first: ErrorDetails, parents: tuple[str, ...]) -> str:
    parts: list[str | int] = [*parents, *first["loc"]]
    if first["type"] == _UNKNOWN:
        parts.append(first["ctx"]["name"])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return path.removeprefix(".")


def _problem(first: ErrorDetails) -> str:
    kind, message = first["type"], first["msg"]
    if kind == _UNKNOWN:
        return message
    if kind == "missing":
        return "missing, expected a value"
    expected = message.removeprefix("Value error, expected ").removeprefix("Input should be ")
    if kind == "model_type":
        expected = "an object"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        expected = f"a number {expected}"
    return f"{shown(first['input'])}, expected {expected}"
