"""Fields that a client sends: what every record of them has in common, and how a fault of one becomes an error.

Both interfaces read requests into these records, so that they refuse the same things in the same words: the message
names the field, shows its value and tells what was expected. Knows neither protocol nor any record.

The search options that a client may set: every one with its default, its range and what it does.

The one place where options are checked as far as they can be without knowing the model: both interfaces and the command
line read them into `SearchFields`. What depends on the served model and its slots, `serve.translation.request`
checks.
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
from serve.search.options import MAX_SUPPRESSED_IDS

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


OPTIONS = "options"


def _check_count(pieces: tuple[str, ...]) -> tuple[str, ...]:
    if len(pieces) > MAX_SUPPRESSED_IDS:
        raise ValueError(f"expected at most {MAX_SUPPRESSED_IDS} pieces: there are {len(pieces)}")
    return pieces


# JSON has lists and no tuples.
Pieces = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(_check_count)]


TargetRatio = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class SearchFields(Fields):
    """How the translations of a request are searched for; the default is greedy search.

    Lengths count target tokens without the end token.
    """

    temperature: float = Field(
        0.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="What logits are divided by before a token is drawn: probabilities are softmax(logits / "
        "temperature). 0: nothing is drawn.",
    )
    beam_size: int = Field(
        1,
        ge=1,
        le=1000,
        description="Hypotheses that beam search follows, K; each takes a slot of one engine. 1: greedy search, which "
        "takes the most probable token at each step. Not with a temperature.",
    )
    patience: float = Field(
        1.0,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="Beam search ends when round(patience * K) hypotheses are finished, but at least one. Needs a "
        "beam.",
    )
    hypotheses: int = Field(
        1,
        ge=1,
        le=1000,
        description="Translations to give for each text, best first; at most K and round(patience * K), unless they "
        "are sampled: then each takes a slot of one engine.",
    )
    length_penalty: float = Field(
        1.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="alpha: hypotheses are compared by score / length^alpha, the length with the end token. 0 compares "
        "sums of log-probabilities, which favors short translations, 1 their mean.",
    )
    coverage_penalty: float = Field(
        0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="beta: adds beta * sum_i log(min(sum_j a_ij, 1)) to what hypotheses are compared by, over source "
        "tokens i and target tokens j, with attention weights a. Above 0, the server must run with --alignments.",
    )
    top_k: int = Field(
        0, ge=0, le=1_000_000, description="Draw from this many most probable tokens; 0: from all. Needs a temperature."
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Draw from the fewest tokens that together have this probability; 1: from all. Needs a "
        "temperature.",
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=1 << 64,
        description="The same seed, text and options draw the same tokens in any company. Needs a temperature; if it "
        "is not given, one is drawn, which the answer tells.",
    )
    max_target_tokens: int | None = Field(
        None, ge=1, lt=1 << 32, description="The longest translation; not given: the model's limit, which none exceeds."
    )
    min_target_tokens: int = Field(
        0, ge=0, lt=1 << 32, description="The shortest translation: the end token may not come before."
    )
    max_target_ratio: TargetRatio | None = Field(
        None,
        description="The longest translation, times source_tokens of the answer and rounded down, but at least one "
        "token. The shorter of both maximums counts.",
    )
    min_target_ratio: float = Field(
        0.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="The shortest translation, times source_tokens of the answer and rounded up. The longer of both "
        "minimums counts, but never more than the longest translation.",
    )
    repetition_penalty: float = Field(
        1.0,
        ge=0.1,
        le=10,
        allow_inf_nan=False,
        description="Logits of tokens that a hypothesis has already are divided by this where positive and multiplied "
        "by it where negative; 1: no change.",
    )
    no_repeat_ngram_tokens: int = Field(
        0, ge=0, le=1000, description="No sequence of this many tokens occurs twice in a translation; 0: no such rule."
    )
    suppressed_tokens: Pieces = Field(
        (),
        description=f"Pieces of the target vocabulary that are never chosen, at most {MAX_SUPPRESSED_IDS}; not the end "
        "token. A word begins with U+2581.",
    )
    suppress_unknown: bool = Field(False, description="Never choose the token that stands for unknown pieces.")
    token_scores: bool = Field(False, description="Give the natural log-probability of every target token.")
    alignments: bool = Field(
        False,
        description="Give how much each target token looked at each source token. The server must run with "
        "--alignments.",
    )

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Returns the options that were set, and the defaults of the others.

        Raises:
            InvalidRequestError: naming the first field that is not valid, as in `options.beam_size`.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise refusal(error, OPTIONS) from error

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn."""
        return self.temperature > 0

    @property
    def rows(self) -> int:
        """Slots that one text takes."""
        return self.hypotheses if self.sampled else self.beam_size

    @property
    def attended(self) -> bool:
        """Whether the server must run with alignments."""
        return self.alignments or self.coverage_penalty > 0

    # A field is checked against those that stand before it; one of them that is not valid itself is reported first.

    @field_validator("beam_size")
    @classmethod
    def _check_beam_size(cls, beam_size: int, info: ValidationInfo) -> int:
        if beam_size > 1 and info.data.get("temperature"):
            raise ValueError("expected 1 with a temperature: tokens are drawn or searched for, not both")
        return beam_size

    @field_validator("patience")
    @classmethod
    def _check_patience(cls, patience: float, info: ValidationInfo) -> float:
        if patience != 1 and info.data.get("beam_size") == 1:
            raise ValueError("expected 1 without a beam: set beam_size to 2 or more")
        return patience

    @field_validator("hypotheses")
    @classmethod
    def _check_hypotheses(cls, hypotheses: int, info: ValidationInfo) -> int:
        if info.data.get("temperature"):
            return hypotheses
        beam_size, patience = info.data.get("beam_size", hypotheses), info.data.get("patience", 1.0)
        if hypotheses > beam_size:
            raise ValueError(f"expected at most beam_size, {beam_size}, without a temperature")
        finished = max(1, round(patience * beam_size))
        if hypotheses > finished:
            raise ValueError(f"expected at most round(patience * beam_size), {finished}")
        return hypotheses

    @field_validator("top_k", "top_p", "seed")
    @classmethod
    def _check_temperature(cls, value: float | None, info: ValidationInfo) -> float | None:
        default = cls.model_fields[str(info.field_name)].default
        if value != default and info.data.get("temperature") == 0:
            raise ValueError("expected none without a temperature: nothing is drawn")
        return value

    @field_validator("min_target_tokens", "min_target_ratio")
    @classmethod
    def _check_minimum(cls, minimum: float, info: ValidationInfo) -> float:
        name = str(info.field_name).replace("min", "max")
        maximum = info.data.get(name)
        if maximum is not None and minimum > maximum:
            raise ValueError(f"expected at most {name}, {maximum:g}")
        return minimum
