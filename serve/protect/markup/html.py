"""Scans HTML into tokens as browsers do (WHATWG HTML Living Standard, section 13.2.5, Tokenization).

No input is malformed. Every character belongs to one token. Time is linear: an expression either consumes what it
reads or reads to the end of the document once.
"""

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase

from dragoman.serve.protect.markup.tokens import HTML_ELEMENTS, Kind, Token, names

SPACE = r"\t\n\f\r "
VOID, RAW_TEXT, ESCAPABLE_TEXT, FOREIGN, INTEGRATION = (
    names(HTML_ELEMENTS[kind]) for kind in ("void", "raw_text", "escapable_text", "foreign", "integration")
)

_TEXT = re.compile(r"(?:[^<]++|<(?![A-Za-z!?/])|</\Z)++")
_VALUE = rf"(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])[^{SPACE}>]*+)"
_ATTRIBUTE = rf"[^{SPACE}/>][^{SPACE}/>=]*+(?:[{SPACE}]*+=[{SPACE}]*+{_VALUE}|(?![{SPACE}]*+=))"
_TAG = re.compile(rf"</?([A-Za-z][^{SPACE}/>]*+)(?:[{SPACE}/]*+{_ATTRIBUTE})*+([{SPACE}/]*+)>")
_NAMED = re.compile(rf"([^{SPACE}/>][^{SPACE}/>=]*+)(?:[{SPACE}]*+=[{SPACE}]*+({_VALUE}))?+")
_TAG_START = re.compile(rf"</?[^{SPACE}/>]++")
_INCOMPLETE_TAG = re.compile(r"</?[A-Za-z]")
_EMPTY_COMMENT = re.compile(r"<!---?>")
_COMMENT_END = re.compile(r"--!?>")
# Browsers ignore the case of ASCII letters alone; `K` (U+212A) is not `k`.
_NO_CASE = re.IGNORECASE | re.ASCII
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_SCRIPT_PART = re.compile(rf"<!--|</script(?=[{SPACE}/>])", _NO_CASE)
_ESCAPED_PART = re.compile(rf"-->|</script(?=[{SPACE}/>])|<script(?=[{SPACE}/>])", _NO_CASE)
_DOUBLE_ESCAPED_PART = re.compile(rf"-->|</script(?=[{SPACE}/>])", _NO_CASE)


def scan_html(text: str) -> Iterator[Token]:
    """Yields the tokens of a document or a fragment; together they are the text."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        # The element whose raw text follows; empty: none.
        self._raw = ""
        # Open foreign elements, and open elements with HTML inside of them.
        self._foreign = list[str]()

    def scan(self) -> Iterator[Token]:
        while self._position < len(self._text):
            token = self._next()
            self._position = token.end
            yield token

    @property
    def _is_foreign(self) -> bool:
        return bool(self._foreign) and self._foreign[-1] in FOREIGN

    def _next(self) -> Token:
        text, start = self._text, self._position
        raw, self._raw = self._raw, ""
        if raw and (end := _raw_text_end(text, start, raw)) > start:
            return Token(Kind.TEXT if raw in ESCAPABLE_TEXT else Kind.OTHER, start, end)
        if match := _TEXT.match(text, start):
            return Token(Kind.TEXT, start, match.end())
        if match := _TAG.match(text, start):
            return self._tag(match)
        return Token(Kind.OTHER, start, self._other_end(start))

    def _tag(self, tag: re.Match[str]) -> Token:
        (start, end), name = tag.span(), tag[1].translate(_LOWER)
        if tag[0].startswith("</"):
            if self._foreign and self._foreign[-1] == name:
                self._foreign.pop()
            return Token(Kind.END, start, end, name)
        foreign = self._is_foreign
        if name in VOID or (tag[2].endswith("/") and (foreign or name in FOREIGN)):
            return Token(Kind.EMPTY, start, end, name)
        if name in FOREIGN or (foreign and name in INTEGRATION):
            self._foreign.append(name)
        elif not foreign and name in RAW_TEXT:
            self._raw = name
        return Token(Kind.START, start, end, name, read_translate(tag[0]))

    def _other_end(self, start: int) -> int:
        """Returns the end of a comment, a declaration or an incomplete tag."""
        text = self._text
        if text.startswith("<!--", start):
            if empty := _EMPTY_COMMENT.match(text, start):
                return empty.end()
            match = _COMMENT_END.search(text, start + 4)
            return match.end() if match else len(text)
        if self._is_foreign and text.startswith("<![CDATA[", start):
            return _end_of("]]>", text, start)
        # Browsers drop a tag that is incomplete at the end of the document.
        return len(text) if _INCOMPLETE_TAG.match(text, start) else _end_of(">", text, start)


def _end_of(mark: str, text: str, start: int) -> int:
    offset = text.find(mark, start)
    return len(text) if offset < 0 else offset + len(mark)


def _raw_text_end(text: str, start: int, name: str) -> int:
    if name == "script":
        return _script_end(text, start)
    found = None if name == "plaintext" else re.compile(rf"</{name}(?=[{SPACE}/>])", _NO_CASE).search(text, start)
    return found.start() if found else len(text)


def _script_end(text: str, start: int) -> int:
    """Returns where a script ends; inside `<!-- <script>`, a `</script>` does not end it."""
    part, position = _SCRIPT_PART, start
    while match := part.search(text, position):
        position = match.end()
        if match[0] == "<!--":
            part, position = _ESCAPED_PART, position - 2  # `<!-->` is complete
        elif match[0] == "-->":
            part = _SCRIPT_PART
        elif part is _DOUBLE_ESCAPED_PART:
            part = _ESCAPED_PART
        elif match[0].startswith("</"):
            return match.start()
        else:
            part = _DOUBLE_ESCAPED_PART
    return len(text)


def read_translate(tag: str) -> bool | None:
    """Returns what the attributes `translate` and `class` of a start tag state; None: nothing."""
    if "translate" not in tag.lower():
        return None
    attributes = dict[str, str]()
    for match in _NAMED.finditer(_TAG_START.sub("", tag, count=1)):
        attributes.setdefault(match[1].lower(), (match[2] or "").strip("\"'"))
    if "notranslate" in attributes.get("class", "").split():
        return False
    return {"yes": True, "": True, "no": False}.get(attributes.get("translate", "none").lower())
