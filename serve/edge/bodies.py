"""REST bodies: their fields, and how they are parsed without blocking the event loop for long.

A body is parsed here instead of by FastAPI, so that every fault becomes one error that names the field: invalid UTF-8,
JSON nested too deep, a string in place of a number. A parsed body is a dictionary with all arguments of the request
that it makes, such as `TranslateRequest`.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from pydantic_core import PydanticCustomError, PydanticUndefined
from typing_extensions import TypedDict, is_typeddict

from dragoman.serve.edge.schemas import TEXT, list_of
from dragoman.serve.edge.value_limit import check_json
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.translation.fields import DEFAULT_SEARCH, Fields, SearchFields, refusal, refuse_unknown_names
from dragoman.serve.translation.large_work import run_part
from dragoman.serve.translation.markup import PLAIN
from dragoman.tables import read_table

# Is parsed in less than a millisecond.
SMALL_BODY_BYTES = 1 << 16

_DESCRIPTIONS: dict[str, dict[str, str]] = read_table(__file__, "bodies.yaml")

Body = TypeVar("Body")


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("text_type", "Input should be a string or a list of strings")
    return value


def _described(name: str, default: Any = PydanticUndefined) -> Any:
    """Returns the field of a kind and name in `bodies.yaml`, as in `term.source`."""
    kind, _, field = name.partition(".")
    return Field(default=default, description=_DESCRIPTIONS[kind][field])


# Without `FailFast`, a body full of invalid elements costs a second of building errors.
Texts = Annotated[list[str], FailFast(), BeforeValidator(_as_list), WithJsonSchema({"anyOf": [TEXT, list_of(TEXT)]})]
SourceLanguage = Annotated[str, _described("languages.source")]
AutoSourceLanguage = Annotated[str, _described("languages.any_source")]
TargetLanguage = Annotated[str, _described("languages.target")]
ModelName = Annotated[str, _described("languages.model")]
TagNames = Annotated[list[str], FailFast()]
# The default of a list. Pydantic would copy a list for each request, but no tuple.
_NONE: Any = ()


class TermBody(Fields):
    """A term and its translations."""

    source: str = _described("term.source")
    targets: Texts = _described("term.targets", _NONE)
    match_case: bool = _described("term.match_case", default=False)

    @property
    def entry(self) -> Entry:
        """The entry."""
        return Entry.of(self.source, self.targets, match_case=self.match_case)


def _read_as(kind: object) -> GetPydanticSchema:
    """Returns the annotation of a type whose values come from another one."""
    return GetPydanticSchema(lambda _, make_schema: make_schema(kind))


_TERMS = Annotated[list[TermBody], FailFast(), AfterValidator(lambda terms: [term.entry for term in terms])]
Entries = Annotated[Sequence[Entry], _read_as(_TERMS)]
# Bodies have neither unknown fields nor conversions of types.
_body = with_config(ConfigDict(extra="forbid", strict=True))


@_body
class TranslateBody(TypedDict):
    """The body of `POST /v1/translate`."""

    text: Annotated[Texts, _described("translate.text")]
    source_language: Annotated[AutoSourceLanguage, Field(default="")]
    target_language: Annotated[TargetLanguage, Field(default="")]
    target_languages: Annotated[TagNames, _described("translate.target_languages", _NONE)]
    target_prefix: Annotated[Texts, _described("translate.target_prefix", _NONE)]
    options: Annotated[SearchFields, _described("translate.options", DEFAULT_SEARCH)]
    model: Annotated[ModelName, Field(default="")]
    allow_pivot: Annotated[bool, _described("translate.allow_pivot", default=False)]
    split_sentences: Annotated[bool, _described("translate.split_sentences", default=True)]
    context: Annotated[str, _described("translate.context", "")]
    format: Annotated[str, _described("translate.format", PLAIN)]
    ignore_tags: Annotated[TagNames, _described("translate.ignore_tags", _NONE)]
    splitting_tags: Annotated[TagNames, _described("translate.splitting_tags", _NONE)]
    non_splitting_tags: Annotated[TagNames, _described("translate.non_splitting_tags", _NONE)]
    placeholders: Annotated[TagNames, _described("translate.placeholders", _NONE)]
    preserve_formatting: Annotated[bool, _described("translate.preserve_formatting", default=False)]
    terms: Annotated[Entries, _described("translate.terms", _NONE)]
    glossary: Annotated[Texts, _described("translate.glossary", _NONE)]
    memory: Annotated[Texts, _described("translate.memory", _NONE)]


class TextPair(Fields):
    """A text and a translation of it."""

    text: str = _described("pair.text")
    translation: str = _described("pair.translation")


_TUPLES = AfterValidator(lambda pairs: [(pair.text, pair.translation) for pair in pairs])
Pairs = Annotated[Sequence[tuple[str, str]], _read_as(Annotated[list[TextPair], FailFast(), _TUPLES])]


@_body
class ScoreBody(TypedDict):
    """The body of `POST /v1/score`."""

    pairs: Annotated[Pairs, _described("score.pairs")]
    source_language: Annotated[SourceLanguage, Field(default="")]
    target_language: Annotated[TargetLanguage, Field(default="")]
    model: Annotated[ModelName, Field(default="")]


@_body
class AttentionBody(ScoreBody):
    """The body of `POST /v1/attention`."""

    layer: Annotated[int | None, _described("attention.layer", None)]
    head: Annotated[int | None, _described("attention.head", None)]


@_body
class DetectBody(TypedDict):
    """The body of `POST /v1/detect`."""

    text: Annotated[Texts, _described("detect.text")]


class BodyParser(Generic[Body]):
    """Parses bodies of one kind: small ones at once, large ones one after the other in a thread.

    Attributes:
        max_values: the most values of a body.
    """

    def __init__(self, kind: type[Body], max_values: int) -> None:
        self.max_values = max_values
        self._adapter = TypeAdapter(kind)
        self._validate_json = self._adapter.validator.validate_json
        # Other kinds refuse unknown names by themselves.
        self._names = kind.__annotations__.keys() if is_typeddict(kind) else None

    async def parse(self, data: bytes, deadline_seconds: float) -> Body:
        """Parses and validates a body.

        Raises:
            InvalidRequestError: names the field, or `body` if the body is not JSON or has too many values.
            DeadlineExceededError: if a large body waits for the thread until the deadline.
        """
        if len(data) <= SMALL_BODY_BYTES:
            return self.parse_now(data)
        return await run_part(deadline_seconds, self.parse_now, data)

    def parse_now(self, data: bytes) -> Body:
        """Parses and validates a body; raises InvalidRequestError as `parse`."""
        if len(data) >= self.max_values:  # a value has at least one byte
            check_json(data, self.max_values)
        try:
            parsed: Body = self._validate_json(data)
        except ValidationError:
            return self.parse_slowly(data)
        return parsed

    def parse_slowly(self, data: bytes) -> Body:
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
        if self._names is not None:
            refuse_unknown_names(content, self._names)
        try:
            return self._adapter.validate_python(content)
        except ValidationError as error:
            raise refusal(error) from error
