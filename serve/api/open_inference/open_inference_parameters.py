"""Parameters of a request in the Open Inference Protocol: values by name, as numbers or as strings.

The protocol leaves open what there is; here it is every search option, the languages, and what Triton calls priority
and timeout. Errors that name fields of our own interfaces are told in the words of this one.
"""

import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ValidationError

from serve.api.open_inference.open_inference_tensors import TEXT_INPUT
from serve.errors import InvalidRequestError
from serve.translation.fields import Fields, refusal
from serve.translation.search_fields import OPTIONS, SearchFields

PARAMETERS = "parameters"
MAX_TIMEOUT_MICROSECONDS = 3_600_000_000
# Long enough for every number; what is longer is no number, and is not looked at.
_MAX_NUMBER_CHARACTERS = 64
# A tensor has one translation for each text, and nothing beside it.
_ONLY = {"hypotheses": 1, "token_scores": False, "alignments": False}


class Parameters(Fields):
    """What may be asked for beside search options."""

    source_language: str = Field("", description="ISO 639-1 code of the texts' language; may be empty where clear.")
    target_language: str = Field("", description="ISO 639-1 code of the wanted language; may be empty where clear.")
    allow_pivot: bool = Field(False, description="Whether to go by way of a third language.")
    split_sentences: bool = Field(True, description="Whether a text is translated sentence by sentence.")
    stream: bool | None = Field(None, description="Whether the text comes as it grows, in several answers.")
    priority: int = Field(
        0, ge=0, le=1000, description="1 is the highest, and the one of requests that ask for none; a larger one waits."
    )
    timeout: int = Field(
        0,
        ge=0,
        le=MAX_TIMEOUT_MICROSECONDS,
        description="Microseconds after which the client stops waiting; 0: it does not say.",
    )
    options: SearchFields = Field(SearchFields(), exclude=True)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Returns the valid parameters.

        Raises:
            InvalidRequestError: naming the first that is not.
        """
        own = {name: value for name, value in values.items() if name in cls.model_fields and name != OPTIONS}
        others = {name: _number(value) for name, value in values.items() if name not in own}
        texts = ("source_language", "target_language")
        try:
            options = SearchFields.parse(others)
            parameters = {name: value if name in texts else _number(value) for name, value in own.items()}
            parsed = cls.model_validate({**parameters, OPTIONS: options})
        except InvalidRequestError as error:
            raise in_our_words(error) from error
        except ValidationError as error:
            raise refusal(error, PARAMETERS) from error
        for name, only in _ONLY.items():
            if getattr(options, name) != only:
                problem = (
                    f"{json.dumps(getattr(options, name))}, expected {json.dumps(only)}: there is no tensor for it"
                )
                raise InvalidRequestError(f"{PARAMETERS}.{name}", problem)
        return parsed

    @property
    def engine_priority(self) -> int:
        """The priority as the queue counts it: nobody comes before those that ask for none."""
        return 1 - max(self.priority, 1)


def in_our_words(error: InvalidRequestError) -> InvalidRequestError:
    """Returns an error that names its field as this protocol does."""
    field = error.field
    if field.partition("[")[0] == "text":
        field = f"{TEXT_INPUT}{field.removeprefix('text')}"
    elif field.startswith(f"{OPTIONS}."):
        field = f"{PARAMETERS}.{field.removeprefix(f'{OPTIONS}.')}"
    elif field in Parameters.model_fields:
        field = f"{PARAMETERS}.{field}"
    return InvalidRequestError(field, error.problem)


def _number(value: object) -> Any:
    """Returns the number or the truth value that a string spells: some clients can send fractions in no other way."""
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_CHARACTERS:
        try:
            spelled = json.loads(value)
        except ValueError:
            return value
        if isinstance(spelled, bool | int | float):
            return spelled
    return value
