"""Parameters of LibreTranslate's routes, with the checks, their order and the error texts that its clients know."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException

from dragoman.serve.compat.served_languages import ServedLanguages
from dragoman.serve.edge.parameters import Parameters
from dragoman.serve.languages.names import language_name
from dragoman.serve.translation.request import AUTO

FORMATS = ("text", "html")
# Codes that this interface writes in place of those of the models.
_WRITTEN = {"no": "nb", "pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant"}
# Variants that stand in for each other.
_STAND_INS = {"pt": ("pb",), "pt-br": ("pb",), "pb": ("pt",), "zh": ("zt",), "zh-hans": ("zt",), "zh-cn": ("zt",)}
_STAND_INS |= dict.fromkeys(("zt", "zh-hant", "zh-tw", "zh-hk"), ("zh",))
_LINE_END = re.compile(r"\r\n?")
_MAX_SHOWN_CHARACTERS = 64


def written_code(code: str) -> str:
    """Returns the code of a language as clients see it."""
    return _WRITTEN.get(code, code)


def refuse(text: str, status: int = HTTPStatus.BAD_REQUEST) -> HTTPException:
    """Returns the error with a text."""
    return HTTPException(status, text)


def missing(name: str) -> HTTPException:
    """Returns the error for a missing parameter."""
    return refuse(f"Invalid request: missing {name} parameter")


def unsupported(code: str) -> HTTPException:
    """Returns the error for an unknown language."""
    return refuse(f"{code[:_MAX_SHOWN_CHARACTERS]} is not supported")


def unavailable(source: str, target: str) -> HTTPException:
    """Returns the error for a pair of served languages without a translation."""
    into, out_of = (f"{language_name(code)} ({written_code(code)})" for code in (target, source))
    return refuse(f"{into} is not available as a target language from {out_of}")


def required(parameters: Parameters, name: str) -> str:
    """Returns a text that must not be empty; raises HTTPException if it is missing or not a text."""
    value = parameters.first(name)
    if not value:
        raise missing(name)
    if not isinstance(value, str):
        raise refuse(f"Invalid request: {name} parameter is not a text")
    return value


def find_pair(languages: ServedLanguages, source: str, target: str) -> tuple[str, str]:
    """Returns the served codes of two languages; `auto` stays. Raises HTTPException if one is not served."""
    given = None if source == AUTO else source
    return languages.find_pair(
        given, target, lambda _, code: unsupported(code), lambda code: _STAND_INS.get(code.lower(), ())
    )


def check_lengths(texts: Sequence[str], max_texts: int, max_text_characters: int) -> None:
    """Raises HTTPException if there are too many texts, or one is too long."""
    for size, limit in ((len(texts), max_texts), *((len(text), max_text_characters) for text in texts)):
        if size > limit:
            raise refuse(f"Invalid request: request ({size}) exceeds text limit ({limit})")


@dataclass(frozen=True, slots=True)
class TranslateParameters:
    """Parameters of a translation, before the languages are known.

    Attributes:
        texts: at least one.
        batch: the client sent a list and gets lists.
        source: code from the client, or `auto`.
        text_format: may be invalid.
        alternatives: number of further translations per text.
    """

    texts: list[str]
    batch: bool
    source: str
    target: str
    text_format: str
    alternatives: int

    @classmethod
    def parse(cls, parameters: Parameters, max_alternatives: int) -> "TranslateParameters":
        """Returns the parameters; raises HTTPException for the first missing or invalid one."""
        texts, batch = _texts(parameters)
        source, target = required(parameters, "source"), required(parameters, "target")
        alternatives = _alternatives(parameters.first("alternatives"), max_alternatives)
        return cls(texts, batch, source, target, str(parameters.first("format") or "text"), alternatives)

    def check_format(self, *, html: bool) -> None:
        """Raises HTTPException if the format is unknown, or HTML on a server without `html`."""
        if self.text_format not in FORMATS or (self.text_format == "html" and not html):
            raise refuse(f"{self.text_format[:_MAX_SHOWN_CHARACTERS]} format is not supported")


def _texts(parameters: Parameters) -> tuple[list[str], bool]:
    values = parameters.all("q")
    given = parameters.first("q")
    if not any(values) if isinstance(given, str) else not values:
        raise missing("q")
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise refuse("Invalid request: q parameter is not a text or a list of texts")
    if parameters.typed:
        return texts, isinstance(given, list)
    # Forms have line ends of two characters.
    return [_LINE_END.sub("\n", text) for text in texts], len(texts) > 1


def _alternatives(value: object, most: int) -> int:
    try:
        count = max(0, int(value))  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        if value is not None:
            raise refuse("Invalid request: alternatives parameter is not a number") from None
        count = 0
    if count > most:
        raise refuse(f"Invalid request: alternatives parameter must be <= {most}")
    return int(count)
