"""Parameters of DeepL's translations: their types and values. `parameters.yaml` describes all of them."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException

from dragoman.serve.edge.parameters import Parameters
from dragoman.serve.translation.markup import PLAIN
from dragoman.tables import read_table

# The limits of one request, as clients know them.
MAX_TEXTS, MAX_BYTES = 50, 128 << 10
MAX_CONTEXT_CHARACTERS = 1000
NO_NEWLINES = "nonewlines"
QUALITY = ("quality_optimized", "prefer_quality_optimized")
_STRICT_FORMALITIES = ("more", "less")
_TRUE, _FALSE = (True, 1, "1", "true"), (False, 0, "0", "false")
_BLANKS = re.compile(r"\s+")
_LINE_END = re.compile(r"[\r\n]")
_TAG = re.compile(r"<([^\s<>&\"'/=!?]+)")
_MAX_SHOWN_CHARACTERS = 64


class RefusedError(HTTPException):
    """A refusal: a text for programs and one for people. `more` states the details, unless the text has them."""

    def __init__(self, text: str, status: int, more: str) -> None:
        super().__init__(status, text)
        self.more = more


def refuse(text: str, status: int = HTTPStatus.BAD_REQUEST, detail: str = "") -> RefusedError:
    """Returns the error with a text."""
    return RefusedError(text, status, detail)


def unsupported(name: str) -> RefusedError:
    """Returns the error for an invalid value."""
    return refuse(f"Value for '{name}' not supported.")


def unserved(side: str, _: str) -> RefusedError:
    """Returns the error for a language that is not served; `side`: `source` or `target`."""
    return unsupported(f"{side}_lang")


PARAMETERS: dict[str, dict[str, Any]] = read_table(__file__, "parameters.yaml")
_BOOLEANS = tuple(name for name, schema in PARAMETERS.items() if schema["type"] == "boolean")
_SINGLE = tuple(name for name, schema in PARAMETERS.items() if schema["type"] == "string")
_LISTS = ("splitting_tags", "non_splitting_tags", "ignore_tags")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Fields of paid functions that this server lacks.
_REFUSED = ("custom_instructions", "style_id", "translation_memory_id", "translation_memory_threshold")
MAX_GLOSSARIES = 5


@dataclass(frozen=True, slots=True)
class TranslateParameters:
    """Parameters of a translation, before the languages are known.

    Attributes:
        source: code from the client; empty: to be detected.
        tags: names of tags, by the name of their field in a `TranslateRequest`.
        model_type: as requested; empty: none.
        version: of tag handling, as requested; empty: none.
    """

    texts: Sequence[str]
    source: str
    target: str
    split_sentences: bool
    context: str
    preserve_formatting: bool
    text_format: str
    tags: Mapping[str, tuple[str, ...]]
    model_type: str
    version: str
    glossaries: tuple[str, ...]

    @classmethod
    def parse(cls, parameters: Parameters, check_texts: Callable[[Sequence[str]], None]) -> "TranslateParameters":
        """Returns the parameters.

        Args:
            check_texts: raises an error if there are too many texts, or one is too long.

        Raises:
            HTTPException: for the first unknown, missing or invalid one.
        """
        check_names(parameters, PARAMETERS)
        texts = _texts(parameters)
        check_texts(texts)
        given = {name: _single(parameters, name) for name in _SINGLE}
        if not given["target_lang"]:
            raise refuse("Parameter 'target_lang' not specified.")
        check_formality(parameters, given["target_lang"])
        glossaries = glossary_ids(parameters)
        flags = {name: _flag(parameters, name) for name in _BOOLEANS}
        text_format = given["tag_handling"] or PLAIN
        tags = {name: _tag_names(parameters, name) for name in _LISTS} if text_format != PLAIN else {}
        if text_format == "xml" and flags["outline_detection"] is False:
            tags["non_splitting_tags"] = _all_tags(texts, tags)
        if given["split_sentences"] == NO_NEWLINES and text_format == PLAIN:
            texts = [_BLANKS.sub(_joined_lines, text) for text in texts]
        return cls(
            texts=texts,
            source=given["source_lang"],
            target=given["target_lang"],
            split_sentences=given["split_sentences"] != "0",
            context=given["context"][-MAX_CONTEXT_CHARACTERS:],
            preserve_formatting=bool(flags["preserve_formatting"]),
            text_format=text_format,
            tags=tags,
            model_type=given["model_type"],
            version=given["tag_handling_version"] if text_format != PLAIN else "",
            glossaries=glossaries,
        )


def _joined_lines(blanks: re.Match[str]) -> str:
    """Returns blanks without line ends. One expression for blanks with a line end would take quadratic time."""
    return " " if _LINE_END.search(blanks[0]) else blanks[0]


def check_names(parameters: Parameters, known: Container[str]) -> None:
    """Raises HTTPException for the first parameter that is not known."""
    for name in parameters.values:
        if name not in known:
            what = "not supported by this server" if name in _REFUSED else "unknown"
            raise refuse(f"Parameter '{_shown(name)}' is {what}.")


def check_formality(parameters: Parameters, target: str) -> None:
    """Raises HTTPException if the formality is invalid, or no model has it."""
    if _single(parameters, "formality") in _STRICT_FORMALITIES:
        raise refuse(f"Target language {_shown(target)} does not support formality.")


def glossary_ids(parameters: Parameters) -> tuple[str, ...]:
    """Returns the ids of the glossaries of a request; raises HTTPException if they are invalid."""
    one, several = _single(parameters, "glossary_id"), _tag_names(parameters, "glossary_ids")
    if one and several:
        raise refuse("Only one of 'glossary_id' and 'glossary_ids' may be specified.")
    ids = (one,) if one else several
    if ids and not parameters.first("source_lang"):
        raise refuse("Parameter 'source_lang' must be specified with a glossary.")
    if len(ids) > MAX_GLOSSARIES:
        raise refuse(f"Too many glossaries: {len(ids)}, expected at most {MAX_GLOSSARIES}.")
    return tuple(map(checked_glossary_id, ids))


def checked_glossary_id(glossary_id: str) -> str:
    """Returns an id as the server writes it; raises HTTPException if it is invalid."""
    if not _ID.fullmatch(glossary_id.lower()):
        raise refuse("Invalid glossary ID.")
    return glossary_id.lower()


def _texts(parameters: Parameters) -> list[str]:
    values = parameters.all("text")
    if not values:
        raise refuse("Parameter 'text' not specified.")
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise refuse("Parameter 'text' must be a list of texts.")
    if len(texts) > MAX_TEXTS:
        raise refuse(f"Too many texts: {len(texts)}, expected at most {MAX_TEXTS}.")
    if sum(len(text.encode()) for text in texts) > MAX_BYTES:
        raise refuse(f"The texts exceed {MAX_BYTES} bytes.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return texts


def _single(parameters: Parameters, name: str) -> str:
    """Returns the value of a text; empty: none was given."""
    value = parameters.first(name)
    if value is None or value == "":
        return ""
    # A JSON number stands for a text, as in `split_sentences`.
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if text is None:
        raise unsupported(name)
    if text not in PARAMETERS[name].get("enum", (text,)):
        raise unsupported(name)
    return text


def _flag(parameters: Parameters, name: str) -> bool | None:
    value = parameters.first(name)
    if isinstance(value, str):
        value = value.lower()
    if isinstance(value, list | dict) or (value is not None and value not in (*_TRUE, *_FALSE)):
        raise unsupported(name)
    return None if value is None else value in _TRUE


def _tag_names(parameters: Parameters, name: str) -> tuple[str, ...]:
    names = list[str]()
    for value in parameters.all(name):
        if not isinstance(value, str):
            raise unsupported(name)
        names += [word.strip() for word in value.split(",")]
    return tuple(label for label in names if label)


def _all_tags(texts: Sequence[str], tags: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the tags that do not end a sentence if only `splitting_tags` do."""
    names = dict.fromkeys(tag for text in texts for tag in _TAG.findall(text))
    return tuple({**dict.fromkeys(tags["non_splitting_tags"]), **names}.keys() - set(tags["splitting_tags"]))


def _shown(value: str) -> str:
    return value[:_MAX_SHOWN_CHARACTERS]
