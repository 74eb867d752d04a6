"""The body of a REST request: bytes to a `TranslateBody`, or an error that names the field.

The body is parsed here and not by the web framework, because every fault has to become one well-formed error: bytes
that are not UTF-8, JSON nested too deep, a string where a number belongs. Called by `serve.http_api` only.
"""

import json
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from serve.errors import InvalidRequestError

MAX_FIELD_CHARACTERS = 64


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("text_type", "Input should be a string or a list of strings")
    return value


_TEXT_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "title": "Text"}


class TranslateBody(BaseModel):
    """The body of `POST /v1/translate`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    # Without failing fast, a body full of wrong elements would cost a second of errors that nobody reads.
    text: Annotated[list[str], FailFast(), BeforeValidator(_as_list), WithJsonSchema(_TEXT_SCHEMA)] = Field(
        description="One text or a list of texts, one sentence each."
    )
    source_language: str = Field(
        "",
        description="ISO 639-1 code of the texts' language; may be empty if the model translates only one language "
        "into the wanted one.",
    )
    target_language: str = Field(
        "", description="ISO 639-1 code of the wanted language; may be empty if the model has a single direction."
    )
    max_target_tokens: int | None = Field(
        None, ge=0, lt=1 << 32, description="The longest translation of each text, in tokens; null: the model's limit."
    )


def parse_body(data: bytes) -> TranslateBody:
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
    return _validate(content)


def _validate(content: object) -> TranslateBody:
    if not isinstance(content, dict):
        raise InvalidRequestError("body", "not a JSON object")
    unknown = next((name for name in content if name not in TranslateBody.model_fields), None)
    if unknown is not None:
        raise InvalidRequestError(_printable(unknown), "unknown field")
    try:
        return TranslateBody.model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else part for part in details["loc"])
        raise InvalidRequestError(field, details["msg"]) from error


def _printable(name: str) -> str:
    """Returns a name that a client made up, fit for a message: ASCII and not too long."""
    return name[:MAX_FIELD_CHARACTERS].encode("unicode_escape").decode()
