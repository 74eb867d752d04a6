"""Scans XML into tokens, and refuses malformed documents with the position of the fault.

Expat checks that a document is well-formed. It reads no DTD and expands no entity: an internal subset is refused, and
an external one is never opened. A text without a root element is checked as the content of one.
"""

import re
from collections.abc import Iterator
from xml.parsers import expat

from serve.markup.html import read_translate
from serve.markup.tokens import Kind, MarkupError, Token

_TOKEN = re.compile(
    r"(?P<TEXT>[^<]++)"
    r"|(?P<OTHER><!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<!DOCTYPE(?:[^\"'>]|\"[^\"]*+\"|'[^']*+')*+>)"
    r"|</(?P<END>[^\s>]++)\s*+>"
    r"|<(?P<START>[^\s/>]++)(?:[^\"'/>]|\"[^\"]*+\"|'[^']*+')*+(?P<EMPTY>/?)>",
    re.DOTALL,
)
_PROLOG = re.compile(r"\ufeff?+\s*+(?:(?:<!--.*?-->|<\?(?!xml\s).*?\?>)\s*+)*+(?:<\?xml\s|<!DOCTYPE)", re.DOTALL)
# Expat holds the interpreter's lock while it reads a chunk; other threads run in between.
_CHUNK_BYTES = 1 << 16
# Of a text without a root element.
_ROOT, _ROOT_END = "<dragoman>", "</dragoman>"


def scan_xml(text: str) -> list[Token]:
    """Returns the tokens of a document, or of the content of an element.

    Raises:
        MarkupError: if the text is malformed or has an internal DTD subset.
    """
    check_xml(text)
    return list(xml_tokens(text))


def has_doctype(tokens: list[Token], text: str) -> bool:
    """Returns whether a document names a DTD, which may declare entities."""
    return any(each.kind is Kind.OTHER and text.startswith("<!DOCTYPE", each.start) for each in tokens)


def xml_tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of a text that `check_xml` accepts."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise MarkupError(position, "not well-formed XML")
        start, position = found.span()
        kind = str(found.lastgroup)
        if kind in ("TEXT", "OTHER", "END"):
            yield Token(Kind[kind], start, position, found["END"] or "")
        elif found["EMPTY"]:
            yield Token(Kind.EMPTY, start, position, found["START"])
        else:
            yield Token(Kind.START, start, position, found["START"], read_translate(found[0]))


def check_xml(text: str) -> None:
    """Checks that a text is well-formed.

    Raises:
        MarkupError: naming the first fault.
    """
    document = _PROLOG.match(text) is not None
    before = "" if document else _ROOT
    data = f"{before}{text}{'' if document else _ROOT_END}".encode()
    # The encoding is given: the declaration of a document does not count once it is text.
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = _refuse_subset
    try:
        for start in range(0, len(data), _CHUNK_BYTES):
            parser.Parse(data[start : start + _CHUNK_BYTES], False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        problem, index = expat.errors.messages[error.code], parser.ErrorByteIndex
    except _SubsetError:
        problem, index = "internal DTD subset, expected none", parser.CurrentByteIndex
    else:
        return
    position = len(data[:index].decode(errors="ignore")) - len(before)
    raise MarkupError(min(max(0, position), len(text)), f"not well-formed XML: {problem}")


class _SubsetError(Exception):
    """A document has an internal DTD subset, which may declare entities."""


def _refuse_subset(_name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
    if has_subset:
        raise _SubsetError
