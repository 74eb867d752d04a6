"""Validates client fields for all interfaces, and the search options of `dragoman.serve.search.option_table`.

All interfaces and the command line parse options into `SearchFields`: they accept the same values and report errors in
the same words, with field, value and expectation. `dragoman.serve.translation.request` checks limits of the served
model.
"""

import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.search.option_table import OptionTable
from dragoman.serve.search.options import MAX_SUPPRESSED_IDS
from dragoman.serve.search.patience import enough_hypotheses

# Unicode categories Cc, Cf, Zl, Zp and Zs, and two characters that SentencePiece reads as nothing: its own word start
# (U+2581) and the replacement character.
BLANK_CHARACTERS = (
    "\0- \x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    "\u205f-\u2064\u2066-\u206f\u2581\u3000\ufeff\ufff9-\ufffb\ufffd\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)

# Returns None for a blank text.
find_visible = re.compile(f"[^{BLANK_CHARACTERS}]").search
MAX_SHOWN_CHARACTERS = 64
# A character has at most two escapes of six characters; a number may have any number of digits.
_MAX_SPELLED_CHARACTERS = 12 * MAX_SHOWN_CHARACTERS
_UNKNOWN, _UNKNOWN_PROBLEM = "unknown_field", "unknown field"


def is_blank(text: str) -> bool:
    """Returns whether a text has only white space, control characters and zero-width characters."""
    return find_visible(text) is None


class Fields(BaseModel):
    """A frozen record without unknown fields and without type conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, content: object) -> object:
        if isinstance(content, dict):
            try:
                refuse_unknown_names(content, cls.model_fields.keys())
            except InvalidRequestError as error:
                raise PydanticCustomError(_UNKNOWN, _UNKNOWN_PROBLEM, {"name": error.field}) from error
        return content


def refuse_unknown_names(content: Mapping[str, object], known: AbstractSet[str]) -> None:
    """Raises InvalidRequestError with the first unknown name.

    For a large body, pydantic would spend a second on collecting one error per unknown name.
    """
    if not content.keys() <= known:
        name = next(name for name in content if name not in known)
        printable = name[:MAX_SHOWN_CHARACTERS].encode("unicode_escape").decode()
        raise InvalidRequestError(printable, _UNKNOWN_PROBLEM)


def refusal(error: ValidationError, *parents: str) -> InvalidRequestError:
    """Returns the client's error for the first invalid field.

    `parents`: fields that contain the record, outermost first.
    """
    first = error.errors(include_url=False)[0]
    return InvalidRequestError(_path(first, parents), _problem(first))


def shown(value: object) -> str:
    """Returns a client's value for a message: ASCII, as in JSON, and shortened."""
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


OPTIONS = "options"


class SearchFields(Fields, OptionTable):
    """The search options of a request; the default is greedy search.

    Lengths count target tokens without the end token.
    """

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Returns the given options, with defaults for the others.

        Raises:
            InvalidRequestError: naming the first invalid field, such as `options.beam_size`.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise refusal(error, OPTIONS) from error

    @property
    def sampled(self) -> bool:
        """Whether tokens are sampled."""
        return self.temperature > 0

    @property
    def repeatable(self) -> bool:
        """Whether the same text gets the same translation again; False if the server chooses the seed."""
        return self.seed is not None or not self.sampled

    @property
    def rows(self) -> int:
        """Rows (slots) per text."""
        return self.hypotheses if self.sampled else self.beam_size

    @property
    def attended(self) -> bool:
        """Whether the options need attention weights."""
        return self.alignments is not None or self.coverage_penalty > 0

    # Validators see only earlier fields. An invalid earlier field is reported first.

    @field_validator("suppressed_tokens")
    @classmethod
    def _check_count(cls, pieces: tuple[str, ...]) -> tuple[str, ...]:
        if len(pieces) > MAX_SUPPRESSED_IDS:
            raise ValueError(f"expected at most {MAX_SUPPRESSED_IDS} pieces, got {len(pieces)}")
        return pieces

    @field_validator("beam_size")
    @classmethod
    def _check_beam_size(cls, beam_size: int, info: ValidationInfo) -> int:
        if beam_size > 1 and info.data.get("temperature"):
            raise ValueError("expected 1 with a temperature: sampling excludes beam search")
        return beam_size

    @field_validator("patience")
    @classmethod
    def _check_patience(cls, patience: float, info: ValidationInfo) -> float:
        if patience != 1 and info.data.get("beam_size") == 1:
            raise ValueError("expected 1 with beam_size 1: set beam_size to 2 or more")
        return patience

    @field_validator("hypotheses")
    @classmethod
    def _check_hypotheses(cls, hypotheses: int, info: ValidationInfo) -> int:
        if info.data.get("temperature"):
            return hypotheses
        beam_size, patience = info.data.get("beam_size", hypotheses), info.data.get("patience", 1.0)
        if hypotheses > beam_size:
            raise ValueError(f"expected at most beam_size, {beam_size}, without a temperature")
        finished = enough_hypotheses(patience, beam_size)
        if hypotheses > finished:
            raise ValueError(f"expected at most round(patience * beam_size), {finished}")
        return hypotheses

    @field_validator("top_k", "top_p", "seed")
    @classmethod
    def _check_temperature(cls, value: float | None, info: ValidationInfo) -> float | None:
        default = cls.model_fields[str(info.field_name)].default
        if value != default and info.data.get("temperature") == 0:
            raise ValueError("expected none without a temperature: sampling requires temperature > 0")
        return value

    @field_validator("min_target_tokens", "min_target_ratio")
    @classmethod
    def _check_minimum(cls, minimum: float, info: ValidationInfo) -> float:
        name = str(info.field_name).replace("min", "max")
        maximum = info.data.get(name)
        if maximum is not None and minimum > maximum:
            raise ValueError(f"expected at most {name}, {maximum:g}")
        return minimum


# Greedy search. Requests without options share it.
DEFAULT_SEARCH = SearchFields()
