"""The body of a REST request: bytes to a `TranslateBody` or `ScoreBody`, or an error that names the field.

The body is parsed here and not by the web framework, because every fault has to become one well-formed error: bytes
that are not UTF-8, JSON nested too deep, a string where a number belongs. Called by `serve.api.http_api` only.
"""

import json
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, FailFast, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from serve.errors import InvalidRequestError
from serve.translation.fields import Fields, refusal
from serve.translation.search_fields import SearchFields

Body = TypeVar("Body", bound=Fields)


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("text_type", "Input should be a string or a list of strings")
    return value


# Without failing fast, a body full of wrong elements would cost a second of errors that nobody reads.
Texts = Annotated[
    list[str],
    FailFast(),
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
SourceLanguage = Annotated[
    str,
    Field(
        description="ISO 639-1 code of the texts' language; may be empty if only one language is translated into the "
        "wanted one."
    ),
]
TargetLanguage = Annotated[
    str,
    Field(description="ISO 639-1 code of the wanted language; may be empty if there is a single direction."),
]
ModelName = Annotated[
    str, Field(description="Name of the model; empty: the first that has the direction, in the order of /v1/models.")
]


class TranslateBody(Fields):
    """The body of `POST /v1/translate`."""

    text: Texts = Field(description="One text or a list of texts, of any number of sentences and lines.")
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    target_prefix: Texts = Field(
        [],
        description="What each translation has to start with: none, or one for each text; an empty one asks nothing.",
    )
    options: SearchFields = Field(SearchFields(), description="How translations are searched for; default: greedily.")
    model: ModelName = ""
    allow_pivot: bool = Field(
        False,
        description="Whether to translate by way of a third language where there is no direction from source_language "
        "into target_language, both of which must be named then.",
    )
    split_sentences: bool = Field(
        True,
        description="Whether a text is translated sentence by sentence, keeping its lines and its white space. If not, "
        "it is taken for one sentence.",
    )


class TextPair(Fields):
    """A text and a translation of it."""

    text: str = Field(description="One sentence.")
    translation: str = Field(
        description="At most one token shorter than the model's longest translation; may be empty."
    )


class ScoreBody(Fields):
    """The body of `POST /v1/score`."""

    pairs: Annotated[list[TextPair], FailFast()] = Field(description="The texts and their translations.")
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    model: ModelName = ""


def parse_body(data: bytes, kind: type[Body]) -> Body:
    """Returns the valid body.

    Raises:
        InvalidRequestError: naming the field, or `body` if it is no JSON at all.
    """
    try:
        # Not `json.loads(data)`, which would guess UTF-16 and UTF-32 too.
        content = json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequestError("body", f"not valid UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError("body", f"not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise InvalidRequestError("body", "not JSON that can be read: a number has too many digits") from error
    except RecursionError as error:
        raise InvalidRequestError("body", "not JSON that can be read: nested too deep") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("body", "not a JSON object")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise refusal(error) from error
