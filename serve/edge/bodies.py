"""REST bodies: their fields, and their OpenAPI descriptions.

A body is parsed here instead of by FastAPI, so that every fault becomes one error that names the field: invalid UTF-8,
JSON nested too deep, a string in place of a number. The OpenAPI descriptions of the bodies are therefore built here
too.
"""

import json
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, FailFast, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.edge.reader import MAX_TIMEOUT_MS, TIMEOUT_HEADER
from dragoman.serve.edge.schemas import TEXT, json_body, list_of
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.fields import DEFAULT_SEARCH, Fields, SearchFields, refusal
from dragoman.serve.translation.markup import PLAIN

Body = TypeVar("Body", bound=Fields)


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("text_type", "Input should be a string or a list of strings")
    return value


# Without `FailFast`, a body full of invalid elements costs a second of building errors.
Texts = Annotated[list[str], FailFast(), BeforeValidator(_as_list), WithJsonSchema({"anyOf": [TEXT, list_of(TEXT)]})]
SourceLanguage = Annotated[
    str,
    Field(
        description="ISO 639-1 code of the texts' language; may be empty if a single language is translated into the "
        "target language."
    ),
]
AutoSourceLanguage = Annotated[
    str,
    Field(
        description="ISO 639-1 code of the texts' language, or `auto`: each text has its own, which the server "
        "detects. Empty: the only language that is translated into the target language, or `auto` if there are "
        "several."
    ),
]
TargetLanguage = Annotated[
    str, Field(description="ISO 639-1 code of the target language; may be empty if there is a single direction.")
]
ModelName = Annotated[
    str, Field(description="Name of the model; empty: the first with the direction, in the order of /v1/models.")
]


TagNames = Annotated[list[str], FailFast()]
# The default of a list. Pydantic would copy a list for each request, but no tuple.
_NONE: Any = ()


class TermBody(Fields):
    """A term and its translations."""

    source: str = Field(description="The term, as it stands in texts: whole words, of at most 256 characters.")
    targets: Texts = Field(
        _NONE,
        description="Forms of its translation, at most 16, the preferred one first. Empty: the term is not translated.",
    )
    match_case: bool = Field(False, description="Whether letter case must match, in the text and in its translation.")

    @property
    def entry(self) -> Entry:
        """The entry."""
        return Entry.of(self.source, self.targets, match_case=self.match_case)


class TranslateBody(Fields):
    """The body of `POST /v1/translate`."""

    text: Texts = Field(description="One text or a list of texts; a text may have several sentences and lines.")
    source_language: AutoSourceLanguage = ""
    target_language: TargetLanguage = ""
    target_prefix: Texts = Field(
        _NONE, description="Forced start of each translation: none, or one per text; an empty one forces nothing."
    )
    options: SearchFields = Field(DEFAULT_SEARCH, description="Search options; default: greedy search.")
    model: ModelName = ""
    allow_pivot: bool = Field(
        False,
        description="Whether to translate through a third language if no model has the direction. Requires "
        "source_language and target_language.",
    )
    split_sentences: bool = Field(
        True,
        description="Whether to translate a text sentence by sentence, with its line breaks and white space. If false, "
        "each text is one sentence.",
    )
    format: str = Field(
        PLAIN,
        description="Format of the texts: `text`, `html` or `xml`. The last two require a server with alignments.",
    )
    ignore_tags: TagNames = Field(_NONE, description="Tags whose content is not translated; only with HTML and XML.")
    splitting_tags: TagNames = Field(_NONE, description="Tags that end a sentence; only with HTML and XML.")
    non_splitting_tags: TagNames = Field(_NONE, description="Tags that do not end a sentence; only with HTML and XML.")
    placeholders: TagNames = Field(
        _NONE,
        description="Kinds of placeholders that a translation must have as often as its text: `all`, or their "
        "names. Requires a server with alignments.",
    )
    preserve_formatting: bool = Field(
        False,
        description="Whether letter case, final punctuation, emoji and no-break spaces follow the text. Requires a "
        "server with alignments.",
    )
    terms: Annotated[list[TermBody], FailFast()] = Field(
        _NONE,
        description="Terms whose translations must have a given form, at most 1000. Requires a server with alignments.",
    )
    glossary: Texts = Field(
        _NONE,
        description="Id of a stored glossary that applies, or a list of at most 5. Requires a server with alignments "
        "and a state directory.",
    )


class TextPair(Fields):
    """A text and a translation of it."""

    text: str = Field(description="One sentence.")
    translation: str = Field(
        description="Its translation, at least one token shorter than the model's limit; may be empty."
    )


class ScoreBody(Fields):
    """The body of `POST /v1/score`."""

    pairs: Annotated[list[TextPair], FailFast()] = Field(description="The texts and their translations.")
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    model: ModelName = ""

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The pairs as tuples."""
        return [(pair.text, pair.translation) for pair in self.pairs]


class AttentionBody(ScoreBody):
    """The body of `POST /v1/attention`."""

    layer: int | None = Field(None, description="Decoder layer from 0. Absent: the mean over all layers.")
    head: int | None = Field(None, description="Head from 0. Absent: the mean over all heads.")


class DetectBody(Fields):
    """The body of `POST /v1/detect`."""

    text: Texts = Field(description="One text or a list of texts.")


def parse_body(data: bytes, kind: type[Body]) -> Body:
    """Parses and validates a body; raises InvalidRequestError with the field, or `body` if the body is not JSON."""
    try:
        parsed: Body = kind.__pydantic_validator__.validate_json(data)
    except ValidationError:
        return parse_slowly(data, kind)
    return parsed


def parse_slowly(data: bytes, kind: type[Body]) -> Body:
    """Parses a body that is invalid, or that only the library accepts: nested deeper, or with lone surrogates."""
    try:
        # `json.loads(data)` would also accept UTF-16 and UTF-32.
        content = json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequestError("body", f"not valid UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError("body", f"not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise InvalidRequestError("body", "expected JSON with fewer digits per number") from error
    except RecursionError as error:
        raise InvalidRequestError("body", "expected JSON with fewer levels of nesting") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("body", "expected a JSON object")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise refusal(error) from error


TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "Timeout of the request in milliseconds; the server then cancels the work.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
}


def translate_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns the OpenAPI request of `POST /v1/translate` and its stream, with an example of each kind of search."""
    languages = {"source_language": direction.source, "target_language": direction.target}
    text = {"text": ["Good morning.", "How are you?"], **languages}
    examples = {
        "greedy": {"summary": "Greedy search", "value": text},
        "beam": {
            "summary": "Beam search: the two best translations, with token scores",
            "value": {**text, "options": {"beam_size": 4, "hypotheses": 2, "token_scores": True}},
        },
        "samples": {
            "summary": "Sampling: two translations, reproducible by the seed",
            "value": {**text, "options": {"temperature": 0.8, "top_p": 0.9, "hypotheses": 2, "seed": 7}},
        },
        "prefix": {
            "summary": "A forced start of the first translation, none of the second",
            "value": {**text, "target_prefix": ["A", ""], "options": {"max_target_ratio": 3.0}},
        },
    }
    return _documentation(TranslateBody, examples)


def stream_documentation() -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI response of `POST /v1/translate/stream`."""
    events = (
        (1, "delta", '{"text_index": 0, "text": "Guten", "target_tokens": 1}'),
        (2, "delta", '{"text_index": 0, "text": " Morgen.", "target_tokens": 3, "finish_reason": "eos"}'),
        (3, "result", '{"translations": [...], "timings": {...}}'),
    )
    example = "".join(f"id: {number}\nevent: {name}\ndata: {data}\n\n" for number, name, data in events)
    description = (
        "Server-sent events. A `delta` has the `text_index` of a text, its new `text`, the `target_tokens` so far and, "
        "at the end of the text, the `finish_reason`. The last event is a `result`, equal to the response of "
        "`/v1/translate`, or an `error` with a problem document. Comments are heartbeats."
    )
    content = {"text/event-stream": {"example": example}}
    return {int(HTTPStatus.OK): {"description": description, "content": content}}


def score_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns the OpenAPI request of `POST /v1/score`."""
    return _documentation(ScoreBody, {"pair": {"summary": "One pair", "value": _pair(direction)}})


def attention_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns the OpenAPI request of `POST /v1/attention`."""
    value = {**_pair(direction), "layer": 0, "head": 0}
    return _documentation(AttentionBody, {"head": {"summary": "The first head of the first layer", "value": value}})


def _pair(direction: BundleDirection) -> dict[str, Any]:
    pair = {"text": "Good morning.", "translation": "Good morning."}
    return {"pairs": [pair], "source_language": direction.source, "target_language": direction.target}


def detect_documentation() -> dict[str, Any]:
    """Returns the OpenAPI request of `POST /v1/detect`."""
    return _documentation(DetectBody, {"texts": {"summary": "Two texts", "value": {"text": ["Guten Morgen.", "12"]}}})


def _documentation(body: type[Fields], examples: dict[str, Any]) -> dict[str, Any]:
    return {**json_body(inlined_schema(body), examples=examples), "parameters": [TIMEOUT_PARAMETER]}


def inlined_schema(body: type[Fields]) -> Any:
    """Returns the schema of a body without references, which do not resolve inside the OpenAPI document."""
    schema = body.model_json_schema()
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replaces references in a schema by their definitions."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    referred = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    own = {name: value for name, value in schema.items() if name != "$ref"}
    return {name: _inlined(value, definitions) for name, value in {**referred, **own}.items()}
