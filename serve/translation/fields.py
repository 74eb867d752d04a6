"""Validates client fields for all interfaces, and defines the search options.

All interfaces and the command line parse options into `SearchFields`: they accept the same values and report errors in
the same words, with field, value and expectation. `serve.translation.request` checks limits of the served model.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from serve.errors import InvalidRequestError
from serve.protect.alignment import AlignmentUnit
from serve.search.options import MAX_SUPPRESSED_IDS
from serve.search.patience import enough_hypotheses

MAX_SHOWN_CHARACTERS = 64
# A character has at most two escapes of six characters; a number may have any number of digits.
_MAX_SPELLED_CHARACTERS = 12 * MAX_SHOWN_CHARACTERS
_UNKNOWN = "unknown_field"


class Fields(BaseModel):
    """A frozen record without unknown fields and without type conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, content: object) -> object:
        # For a large body, pydantic would spend a second on collecting one error per unknown name.
        known = cls.model_fields.keys()
        for name in () if not isinstance(content, dict) or content.keys() <= known else content:
            if name not in known:
                printable = name[:MAX_SHOWN_CHARACTERS].encode("unicode_escape").decode()
                raise PydanticCustomError(_UNKNOWN, "unknown field", {"name": printable})
        return content


def refusal(error: ValidationError, *parents: str) -> InvalidRequestError:
    """Returns the client's error for the first invalid field.

    Args:
        error: from pydantic.
        parents: fields that contain the record, outermost first.
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


def _check_count(pieces: tuple[str, ...]) -> tuple[str, ...]:
    if len(pieces) > MAX_SUPPRESSED_IDS:
        raise ValueError(f"expected at most {MAX_SUPPRESSED_IDS} pieces, got {len(pieces)}")
    return pieces


# JSON has lists and no tuples.
Pieces = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_check_count)]


TargetRatio = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class SearchFields(Fields):
    """The search options of a request; the default is greedy search.

    Lengths count target tokens without the end token.
    """

    temperature: float = Field(
        0.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Sampling temperature: softmax(logits / temperature). 0: no sampling.",
    )
    beam_size: int = Field(
        1,
        ge=1,
        le=1000,
        description="Beam size K; each hypothesis takes a slot. 1: greedy search or sampling.",
    )
    patience: float = Field(
        1.0,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="Stop at round(patience * K) finished hypotheses, at least 1. Requires K > 1.",
    )
    hypotheses: int = Field(
        1,
        ge=1,
        le=1000,
        description="Translations per text, best first. Beam search: at most K and patience * K.",
    )
    length_penalty: float = Field(
        1.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="alpha: score / length^alpha ranks hypotheses. 0: the sum of log-probabilities.",
    )
    coverage_penalty: float = Field(
        0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Weight of sum_i log(min(sum_j a_ij, 1)) in the score; needs server alignments.",
    )
    top_k: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Sample from this many most probable tokens; 0: all. Requires temperature > 0.",
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Sample from the fewest tokens with this probability. Requires temperature > 0.",
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=1 << 64,
        description="Seed of sampling; random and returned if unset. Requires temperature > 0.",
    )
    max_target_tokens: int | None = Field(
        None, ge=1, lt=1 << 32, description="Maximum length of a translation, at most and by default the model's limit."
    )
    min_target_tokens: int = Field(
        0, ge=0, lt=1 << 32, description="Minimum length of a translation, before the end token."
    )
    max_target_ratio: TargetRatio | None = Field(
        None,
        description="Maximum length per source token, rounded down. The smaller maximum applies.",
    )
    min_target_ratio: float = Field(
        0.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Minimum length per source token, rounded up. The larger minimum applies.",
    )
    repetition_penalty: float = Field(
        1.0,
        ge=0.1,
        le=10,
        allow_inf_nan=False,
        description="Divisor of positive, factor of negative logits of repeated tokens. 1: off.",
    )
    no_repeat_ngram_tokens: int = Field(
        0, ge=0, le=1000, description="Length of the n-grams that do not occur twice in a translation. 0: off."
    )
    suppressed_tokens: Pieces = Field(
        (),
        description=f"Target pieces that are never chosen, at most {MAX_SUPPRESSED_IDS}. U+2581 starts a word.",
    )
    suppress_unknown: bool = Field(False, description="Never choose the unknown token.")
    token_scores: bool = Field(False, description="Return the natural log-probability of every target token.")
    alignments: AlignmentUnit | None = Field(
        None,
        description="Return alignments of `words` or `tokens`. Requires a server with alignments.",
    )

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
    def rows(self) -> int:
        """Rows (slots) per text."""
        return self.hypotheses if self.sampled else self.beam_size

    @property
    def attended(self) -> bool:
        """Whether the options need attention weights."""
        return self.alignments is not None or self.coverage_penalty > 0

    # Validators see only earlier fields. An invalid earlier field is reported first.

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
