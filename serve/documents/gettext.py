"""Gettext PO: translates messages without a translation, or all on request, and marks them as fuzzy.

Files in other charsets become UTF-8: most charsets lack characters of the translations.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, is_translatable
from dragoman.serve.documents.escapes import write_escapes
from dragoman.serve.documents.splice import Edit, Part, Span, SplicedDocument, decode, decode_as, encoding_of
from dragoman.serve.documents.tagged import value_part
from dragoman.serve.memory.entry import MAX_LANGUAGE_CHARACTERS
from dragoman.serve.memory.tmx import covers, language_code

# The name of the charset in the header, which is the first message.
_CHARSET = re.compile(
    r'(?:(?:#.*|[ \t\r]*)\n)*+msgid[ \t]+""[ \t\r]*\nmsgstr[ \t]+(?:".*"[ \t\r]*\n)*?".*?charset=(?P<NAME>[\w.:-]+)'
)
_KEYWORD = re.compile(r"(?P<NAME>msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]+(?P<TEXT>\".*\")[ \t]*\r?\Z")
_CONTINUED = re.compile(r"[ \t]*(?P<TEXT>\".*\")[ \t]*\r?\Z")
_LANGUAGE = re.compile(r"\"Language:[ \t]*+(?P<NAME>[A-Za-z_-]*+)(?:@\w*+)?[ \t]*+\\n")
_LINE = re.compile(r"[^\n]*+\n?+")
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(slots=True)
class _Field:
    """A keyword of an entry: the lines of its text, and the characters of the text with its quotes."""

    lines: list[str]
    start: int
    end: int

    @property
    def text(self) -> str:
        return "".join(self.lines)


@dataclass(slots=True)
class _Entry:
    """A message, from its first keyword; `flags` is the offset after its line of flags, None without one."""

    start: int
    flags: int | None = None
    fuzzy: bool = False
    fields: dict[str, _Field] = field(default_factory=dict)


def parse_po(content: bytes, request: DocumentRequest) -> Document:
    """Parses a PO file or a template."""
    text, encode = _decode(content)
    line_end = "\r\n" if "\r\n" in text else "\n"
    parts = (part for entry in _entries(text) for part in _parts(entry, request, line_end))
    return SplicedDocument(text, parts, encode, request, list(_language_edits(text, request)))


def _language_of(text: str) -> re.Match[str] | None:
    """Returns the field `Language` of the header, which may be empty; None without one."""
    header = next(_entries(text), None)
    if header is None or not header.fields.keys() >= {"msgid", "msgstr"} or header.fields["msgid"].text:
        return None
    values = header.fields["msgstr"]
    return _LANGUAGE.search(text, values.start, values.end)


def _language_edits(text: str, request: DocumentRequest) -> Iterator[Edit]:
    """Yields the edit of the header's language, if it is missing or that of the source."""
    match = _language_of(text)
    if match and request.needs_target(match["NAME"]) and (not match["NAME"] or request.is_of_source(match["NAME"])):
        space = "" if text[match.start("NAME") - 1].isspace() else " "
        yield match.span("NAME"), f"{space}{request.target}"


def _decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Returns the text of a file, whose header now names UTF-8, and a function that encodes it."""
    header = _CHARSET.match(content.decode("latin-1"))
    encoding = encoding_of(header["NAME"]) if header else None
    text, encode = decode(content if encoding is None else decode_as(content, encoding)[0].encode())
    header = _CHARSET.match(text)
    if header and header["NAME"].lower() != "utf-8":
        text = f"{text[: header.start('NAME')]}UTF-8{text[header.end('NAME') :]}"
    return text, encode


def read_po_pairs(content: bytes, target_language: str) -> Iterator[tuple[str, str, str]]:
    """Yields text, translation and context of messages that are not fuzzy, of plurals two.

    Raises DocumentError if the file is malformed, or its header names another language.
    """
    text, _ = _decode(content)
    named = _language_of(text)
    name = named["NAME"] if named else ""
    wanted, given = language_code(target_language), language_code(name)
    if name and not (covers(wanted, given) or covers(given, wanted)):
        raise DocumentError(f"PO: Language: expected {target_language}, got {name[:MAX_LANGUAGE_CHARACTERS]}")
    for entry in _entries(text):
        texts = {name: member.text for name, member in entry.fields.items()}
        translations = [text for name, text in texts.items() if name.startswith("msgstr")]
        if entry.fuzzy or not texts.get("msgid") or not translations:
            continue
        yield texts["msgid"], translations[0], texts.get("msgctxt", "")
        if "msgid_plural" in texts:
            yield texts["msgid_plural"], translations[-1], texts.get("msgctxt", "")


def _entries(text: str) -> Iterator[_Entry]:
    entry: _Entry | None = None
    flags: int | None = None
    fuzzy = False
    last: _Field | None = None
    for number, found in enumerate(_LINE.finditer(text), 1):
        line = found[0].removesuffix("\n")
        bare = line.removeprefix("\ufeff")
        offset = found.start() + len(line) - len(bare)
        if keyword := _KEYWORD.match(bare):
            name = keyword["NAME"]
            if entry is None or name == "msgctxt" or (name == "msgid" and set(entry.fields) != {"msgctxt"}):
                if entry is not None:
                    yield entry
                entry, flags, fuzzy = _Entry(offset, flags, fuzzy), None, False
            lines = [_read(keyword["TEXT"], number)]
            last = _Field(lines, offset + keyword.start("TEXT"), offset + keyword.end("TEXT"))
            entry.fields[name] = last
        elif last is not None and (continued := _CONTINUED.match(bare)):
            last.lines.append(_read(continued["TEXT"], number))
            last.end = offset + continued.end("TEXT")
        elif bare.startswith("#"):
            if bare.startswith("#,"):
                flags, fuzzy = found.start() + len(line.rstrip("\r")), "fuzzy" in bare
            last = None
        elif bare.strip():
            raise DocumentError(f"line {number}: not PO: expected a keyword, a text or a comment")
    if entry is not None:
        yield entry


def _read(quoted: str, number: int) -> str:
    if _QUOTED.fullmatch(quoted) is None:
        raise DocumentError(f"line {number}: not PO: expected a text in quotes")
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), quoted[1:-1])


def _parts(entry: _Entry, request: DocumentRequest, line_end: str) -> Iterator[Part]:
    """Yields the parts of an entry that is to be translated: of its message, and of its plural."""
    translations = {name: member for name, member in entry.fields.items() if name.startswith("msgstr")}
    if "msgid" not in entry.fields or not translations:
        return
    if any(translation.text for translation in translations.values()) and not request.retranslate:
        return
    offset, mark = (entry.start, f"#, fuzzy{line_end}") if entry.flags is None else (entry.flags, ", fuzzy")
    first, *others = [(translation.start, translation.end) for translation in translations.values()]
    message = entry.fields["msgid"]
    plural = entry.fields.get("msgid_plural", message)
    # A language without a plural has the form of many.
    message = message if others else plural
    offsets, marks = ([], []) if entry.fuzzy else ([(offset, offset)], [mark])
    for text, spans in [(message.text, [first]), (plural.text, others)]:
        part = _part(text, offsets, spans, marks, request) if spans else None
        if part is not None:
            yield part
            offsets, marks = [], []


def _part(
    message: str, offsets: list[Span], spans: list[Span], marks: list[str], request: DocumentRequest
) -> Part | None:
    """Returns the part of a message: marks of the entry go to the offsets, and translations to the spans."""
    if not is_translatable(message):
        return None
    part = value_part(message, [*offsets, *spans], request.ignore_tags, _write, tuple(marks), len(spans))
    return None if part is None else replace(part, replaces=False)


def _write(before: str, after: str, marks: Sequence[str], number: int, text: str) -> list[str]:
    written = f'"{write_escapes(before + text + after, chr(34))}"'
    return [*marks, *([written] * number)]
