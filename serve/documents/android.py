r"""Strings of Android (`strings.xml`): strings, and items of arrays and plurals, are segments.

Escapes such as `\'` are read and written, and so are quotes around a whole string. Elements of styles are tags of the
segment, and the content of `xliff:g` stays. Resources with `translatable="false"` stay, and so do all other ones.
"""

import re
from collections.abc import Iterator
from typing import Literal

from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.escapes import read_escapes, write_escapes
from dragoman.serve.documents.splice import Part, SplicedDocument
from dragoman.serve.documents.tagged import value_part
from dragoman.serve.documents.xml import XmlText, escape, unescape
from dragoman.serve.documents.xml_values import children, content_span, read_xml
from dragoman.serve.protect.markup.tokens import Kind

_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_KEPT = ("xliff:g",)
_SPACES = re.compile(r"[ \t\r\n]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Quotes outside of tags and escapes mean nothing in the text.
_MARKUP = r"""<![^<>]*+>|<(?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+>"""
_QUOTE = re.compile(rf'{_MARKUP}|\\.|"', re.DOTALL)
_TAG = re.compile(f"({_MARKUP})")
# Blanks that Android would drop: at the ends, and all but the first of a run.
_DROPPED = re.compile(rf"{_MARKUP}|\A | \Z|(?<= ) ")
_QUOTE_REFERENCE = re.compile(rf"{_MARKUP}|&(?:quot|apos|#34|#39);")
# How a string is written: its text with references, in a CDATA section, or as it is, with tags of XML.
_Form = Literal["escaped", "cdata", "tagged"]
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9A-Fa-f]+);)")


def parse_android(content: bytes, request: DocumentRequest) -> Document:
    """Parses a file of resources."""
    document, encode = read_xml(content, "resources", "Android resources")
    parts = (_part(document, index, request) for index in _strings(document))
    return SplicedDocument(document.text, filter(None, parts), encode, request)


def _strings(document: XmlText) -> Iterator[int]:
    for index, name in children(document, document.root):
        if document.attributes(index).get("translatable") == "false":
            continue
        if name == "string":
            yield index
        elif name in ("string-array", "plurals"):
            yield from (item for item, kind in children(document, index) if kind == "item")


def _part(document: XmlText, index: int, request: DocumentRequest) -> Part | None:
    """Returns the part of a string; None: it has no text, or has CDATA next to other text."""
    if document.tokens[index].kind is Kind.EMPTY:
        return None
    start, end = content_span(document, index)
    raw = document.text[start:end]
    bare = raw.strip()
    start += raw.find(bare)
    form: _Form = "escaped"
    value = unescape(bare)
    if bare.startswith(_CDATA) and bare.find(_CDATA_END) == len(bare) - len(_CDATA_END):
        form, value = "cdata", bare[len(_CDATA) : -len(_CDATA_END)].strip()
    elif "<" in bare:
        if _CDATA in bare or "<?" in bare:
            return None
        form = "tagged"
        value = _QUOTE_REFERENCE.sub(lambda found: unescape(found[0]) if found[0][0] == "&" else found[0], bare)
    quoted = bool(_QUOTED.fullmatch(value))
    value = value[1:-1] if quoted else _SPACES.sub(" ", _QUOTE.sub(lambda found: found[0].removeprefix('"'), value))
    ignored = (*request.ignore_tags, *_KEPT)
    return value_part(read_escapes(value), ((start, start + len(bare)),), ignored, _write, form, quoted)


def _write(before: str, after: str, form: _Form, quoted: bool, text: str) -> tuple[str]:
    value = f"{before}{text}{after}"
    if form == "tagged":
        value = "".join(part if part.startswith("<") else _escape(part, quoted) for part in _TAG.split(value))
        return (_quote(_AMPERSAND.sub("&amp;", value), quoted),)
    value = _quote(_escape(value, quoted), quoted)
    return (f"{_CDATA}{value.replace(_CDATA_END, ']]&gt;')}{_CDATA_END}" if form == "cdata" else escape(value),)


def _escape(text: str, quoted: bool) -> str:
    return write_escapes(text, '"' if quoted else "\"'")


def _quote(value: str, quoted: bool) -> str:
    """Returns a value in quotes, or with escapes of dropped blanks and a character that would begin a reference."""
    if quoted:
        return f'"{value}"'
    value = _DROPPED.sub(lambda found: r"\u0020" if found[0] == " " else found[0], value)
    return re.sub(r"\A[@?]", r"\\\g<0>", value)
