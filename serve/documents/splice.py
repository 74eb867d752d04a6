"""Documents whose translations replace parts of their text; all other characters stay as they are."""

import codecs
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from serve.documents.document import DocumentError, DocumentRequest, Segment

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A segment and where its translation goes.

    Attributes:
        spans: characters of the document; empty ones are insertions. No two spans overlap.
        render: returns one text per span, given the translation.
        replaces: whether the spans are the text of the segment, which stays if the translation equals it.
    """

    segment: Segment
    spans: Sequence[Span]
    render: Callable[[str], Sequence[str]]
    replaces: bool = True


class SplicedDocument:
    """A text with parts to replace."""

    def __init__(self, text: str, parts: Sequence[Part], encode: Callable[[str], bytes]) -> None:
        """Stores the document; `encode` returns the bytes of its text."""
        self._text = text
        self._parts = parts
        self._encode = encode

    @property
    def segments(self) -> list[Segment]:
        """One segment per part."""
        return [part.segment for part in self._parts]

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the document with the translations."""
        return self._encode(splice(self._text, self._parts, translations))


def bounded(parts: Iterable[Part], request: DocumentRequest) -> list[Part]:
    """Returns the parts of a document; equal segments become one object.

    Raises:
        DocumentError: if there are more than the request allows.
    """
    found, segments = list[Part](), dict[Segment, Segment]()
    for part in parts:
        if len(found) == request.most_texts:
            raise DocumentError(f"more than {request.most_texts:,} texts: divide the document")
        segment = segments.setdefault(part.segment, part.segment)
        found.append(part if segment is part.segment else replace(part, segment=segment))
    return found


def unchanged(translation: str) -> tuple[str]:
    """Renders a translation as it is."""
    return (translation,)


def splice(text: str, parts: Sequence[Part], translations: Sequence[str]) -> str:
    """Returns a text with the translations of its parts."""
    edits = list(chain.from_iterable(map(_edits, parts, translations)))
    edits.sort(key=lambda edit: edit[0])
    pieces, position = list[str](), 0
    for (start, end), new in edits:
        pieces += (text[position:start], new)
        position = end
    return "".join((*pieces, text[position:]))


def _edits(part: Part, translation: str) -> list[tuple[Span, str]]:
    # The translation of markup may differ in white space that means nothing.
    if part.replaces and translation.split() == part.segment.text.split():
        return []
    return list(zip(part.spans, part.render(translation), strict=True))


_BYTE_ORDER_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Returns the text of a file in UTF-8, or in UTF-16 with a byte order mark, and a function that encodes it again.

    The byte order mark stays in the text.

    Raises:
        DocumentError: if the file has another encoding.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), "utf-8")
    return decode_as(content, encoding)


def decode_as(content: bytes, encoding: str, errors: str = "strict") -> tuple[str, Callable[[str], bytes]]:
    """Returns the text of a file in a known encoding, and a function that encodes it again.

    Args:
        content: of the file.
        encoding: its name.
        errors: how to encode characters that the encoding lacks.

    Raises:
        DocumentError: if the file has another encoding.
    """
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise DocumentError(f"byte 0x{byte:02x} at offset {error.start}, expected {encoding.upper()}") from error

    def encode(changed: str) -> bytes:
        try:
            return changed.encode(encoding, errors)
        except UnicodeEncodeError as error:
            character = changed[error.start]
            raise DocumentError(f"the encoding {encoding} lacks the character {character!r}") from error

    return text, encode
