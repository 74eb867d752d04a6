"""Reads messages in programs of JavaScript: lists of translations, and English texts in calls."""

import re
from collections.abc import Iterator

from dragoman.model.data.sources.readers.messages import Messages
from dragoman.model.errors import CorpusError

_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`"
_LIST = re.compile(rf"=\s*\[\s*(?P<ITEMS>(?:(?:{_STRING}|undefined|null)\s*+,?\s*+)++)\]")
_ITEM = re.compile(rf"{_STRING}|undefined|null")
_LOCALIZE = re.compile(rf"\blocalize2?\(\s*(?P<KEY>\d+)\s*,\s*(?P<TEXT>{_STRING})")
_DIAGNOSTIC = re.compile(rf"\bdiag\(\d+,[^,]*,\s*(?P<KEY>{_STRING}),\s*(?P<TEXT>{_STRING})")
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]+)\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}


def read_message_list(content: bytes) -> Messages:
    """Returns the texts of the first list of strings that a script assigns; the key is the number of the text."""
    match = _LIST.search(content.decode())
    if match is None:
        raise CorpusError("expected a script that assigns a list of strings")
    items = (item[0] for item in _ITEM.finditer(match["ITEMS"]))
    return {str(number): _value(item) for number, item in enumerate(items) if item[0] in "\"'`"}


def read_localize_calls(content: bytes) -> Messages:
    """Returns the texts of calls such as `localize(12, "Find")`; the key is the number."""
    return dict(_calls(_LOCALIZE, content))


def read_diagnostics(content: bytes) -> Messages:
    """Returns the texts of TypeScript's diagnostics, by their keys as in its translations."""
    return {f"/{_value(key)}": text for key, text in _calls(_DIAGNOSTIC, content)}


def _calls(expression: re.Pattern[str], content: bytes) -> Iterator[tuple[str, str]]:
    for match in expression.finditer(content.decode()):
        yield match["KEY"], _value(match["TEXT"])


def _value(literal: str) -> str:
    def unescaped(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code else _ESCAPED.get(found[4], found[4])

    return _ESCAPE.sub(unescaped, literal[1:-1])
