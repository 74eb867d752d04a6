"""Scans XML into tokens, and refuses malformed documents with the position of the fault.

Expat checks that a document is well-formed. It reads no DTD and expands no entity: an internal subset is refused, and
an external one is never opened. A text without a root element is checked as the content of one.
"""

import re
from collections.abc import Iterator
from xml.parsers import expat

from dragoman.serve.protect.markup.html import read_translate
from dragoman.serve.protect.markup.tokens import Kind, MarkupError, Token

_TOKEN = re.compile(
    r"(?P<TEXT>[^<]++)"
    r"|(?P<OTHER><!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|<!DOCTYPE(?:[^\"'>]|\"[^\"]*+\"|'[^']*+')*+>)"
    r"|</(?P<END>[^\s>]++)\s*+>"
    r"|<(?P<START>[^\s/>]++)(?:[^\"'/>]|\"[^\"]*+\"|'[^']*+')*+(?P<EMPTY>/?)>",
    re.DOTALL,
)
_PROLOG = re.compile(r"\ufeff?+\s*+(?:(?:<!--.*?-->|<\?(?!xml\s).*?\?>)\s*+)*+(?:<\?xml\s|<!DOCTYPE)", re.DOTALL)
# Expat holds the interpreter's lock while it reads a chunk; other threads run in between.
_CHUNK_CHARACTERS = 1 << 16
# A text without a root element gets this one.
_ROOT, _ROOT_END = "<dragoman>", "</dragoman>"


def scan_xml(text: str) -> list[Token]:
    """Returns the tokens of a document or an element; raises MarkupError if it is malformed or has a DTD subset."""
    check_xml(text)
    return list(xml_tokens(text))


def xml_tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of a text that `check_xml` accepts."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise MarkupError(position, "not well-formed XML")
        start, position = match.span()
        kind = str(match.lastgroup)
        if kind in ("TEXT", "OTHER", "END"):
            yield Token(Kind[kind], start, position, match["END"] or "")
        elif match["EMPTY"]:
            yield Token(Kind.EMPTY, start, position, match["START"])
        else:
            yield Token(Kind.START, start, position, match["START"], read_translate(match[0]))


def check_xml(text: str) -> None:
    """Checks that a text is well-formed; raises MarkupError naming the first fault."""
    document = _PROLOG.match(text) is not None
    before, after = ("", "") if document else (_ROOT, _ROOT_END)
    # The encoding is given: the declaration of a document does not count once it is text.
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = _refuse_subset
    try:
        parser.Parse(before.encode(), False)
        _parse(parser, text)
        parser.Parse(after.encode(), True)
    except expat.ExpatError as error:
        problem, index = expat.errors.messages[error.code], parser.ErrorByteIndex
    except _SubsetError:
        problem, index = "internal DTD subset, expected none", parser.CurrentByteIndex
    else:
        return
    raise MarkupError(_character(text, max(0, index - len(before))), f"not well-formed XML: {problem}")


def _parse(parser: expat.XMLParserType, text: str) -> None:
    """Feeds a text to a parser in chunks.

    Expat 2.5 reads a token that ends in a later chunk again from its start. Each chunk is therefore at least as long as
    the part of that token before it, so that all chunks together take linear time.
    """
    position, fed_bytes, characters = 0, parser.CurrentByteIndex, _CHUNK_CHARACTERS
    while position < len(text):
        chunk = text[position : position + characters].encode()
        parser.Parse(chunk, False)
        position += characters
        fed_bytes += len(chunk)
        characters = max(_CHUNK_CHARACTERS, fed_bytes - parser.CurrentByteIndex)


def _character(text: str, index: int) -> int:
    """Returns the character that has a byte of the text in UTF-8."""
    for start in range(0, len(text), _CHUNK_CHARACTERS):
        chunk = text[start : start + _CHUNK_CHARACTERS].encode()
        if index < len(chunk):
            return start + len(chunk[:index].decode(errors="ignore"))
        index -= len(chunk)
    return len(text)


class _SubsetError(Exception):
    """A document has an internal DTD subset, which may declare entities."""


def _refuse_subset(_name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
    if has_subset:
        raise _SubsetError
