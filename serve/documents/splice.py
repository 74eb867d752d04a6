"""Documents whose translations replace parts of their text; all other characters stay as they are."""

import codecs
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import webencodings

from dragoman.serve.documents.document import DocumentError, DocumentRequest, Segment

Span = tuple[int, int]
# Characters and what replaces them.
Edit = tuple[Span, str]
_WORD = re.compile(r"\S++")
# The size of all translations of a text, with the markup that is written anew.
MAX_WRITTEN_CHARACTERS = 64 << 20


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

    def __init__(
        self,
        text: str,
        parts: Iterable[Part],
        encode: Callable[[str], bytes],
        request: DocumentRequest,
        edits: Sequence[Edit] = (),
    ) -> None:
        """Stores the document.

        Args:
            encode: returns the bytes of a text.
            request: bounds the number of parts.
            edits: made if any text changes. They are complete once all parts are read.

        Raises DocumentError if there are more parts than the request allows.
        """
        self._text = text
        self._edits = edits
        self._parts = Parts(parts, request)
        self._encode = encode

    @property
    def segments(self) -> list[Segment]:
        """One segment per part."""
        return self._parts.segments

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the translated document; raises DocumentError if it is too long or its encoding lacks a character."""
        return self._encode(splice(self._text, self._parts, translations, self._edits))


class Parts:
    """Parts in few objects, with one per equal segment: garbage collections, which stop all threads, traverse each."""

    def __init__(self, parts: Iterable[Part], request: DocumentRequest, before: int = 0) -> None:
        """Stores parts; raises DocumentError if they, after `before` others, are more than the request allows."""
        self.segments = list[Segment]()
        # The first and the last offset of each span, and how many numbers there are up to the end of each part.
        self._offsets = array("q")
        self._ends = array("q")
        self._renders = list[Callable[[str], Sequence[str]]]()
        self._replaces = bytearray()
        known = dict[Segment, Segment]()
        for number, part in enumerate(parts, before + 1):
            if number > request.max_texts:
                raise DocumentError(f"more than {request.max_texts:,} texts: divide the document")
            self.segments.append(known.setdefault(part.segment, part.segment))
            self._offsets.extend(chain.from_iterable(part.spans))
            self._ends.append(len(self._offsets))
            self._renders.append(part.render)
            self._replaces.append(part.replaces)

    def __iter__(self) -> Iterator[Part]:
        start = 0
        for segment, end, render, replaces in zip(
            self.segments, self._ends, self._renders, self._replaces, strict=True
        ):
            offsets = self._offsets[start:end]
            yield Part(segment, tuple(zip(offsets[::2], offsets[1::2], strict=True)), render, bool(replaces))
            start = end


def unchanged(translation: str) -> tuple[str]:
    """Renders a translation as it is."""
    return (translation,)


def splice(text: str, parts: Iterable[Part], translations: Sequence[str], others: Sequence[Edit] = ()) -> str:
    """Returns a text with the translations of its parts and other edits; raises DocumentError if they are too long."""
    edits, characters = list[Edit](), 0
    for edit in chain.from_iterable(map(_edits, parts, translations)):
        edits.append(edit)
        characters += len(edit[1])
        if characters > MAX_WRITTEN_CHARACTERS:
            raise DocumentError(
                f"the translations have more than {MAX_WRITTEN_CHARACTERS:,} characters with their markup"
            )
    return apply_edits(text, sorted(edits + list(others) if edits else (), key=lambda edit: edit[0]))


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Returns a text with edits, in the order of the text."""
    pieces, position = list[str](), 0
    for (start, end), new in edits:
        pieces += (text[position:start], new)
        position = end
    return "".join((*pieces, text[position:]))


def _edits(part: Part, translation: str) -> list[Edit]:
    # The translation of markup may differ in white space that means nothing.
    if part.replaces and _same_words(translation, part.segment.text):
        return []
    return list(zip(part.spans, part.render(translation), strict=True))


def _same_words(one: str, other: str) -> bool:
    words = zip_longest(_WORD.finditer(one), _WORD.finditer(other))
    return one == other or all(first and second and first[0] == second[0] for first, second in words)


_BYTE_ORDER_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Returns the text, with its byte order mark, and its encoder; raises DocumentError if it is not Unicode."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), "utf-8")
    return decode_as(content, encoding)


def decode_as(content: bytes, encoding: str, errors: str = "strict") -> tuple[str, Callable[[str], bytes]]:
    """Returns the text and its encoder, with `errors` for lacking characters; raises DocumentError for other bytes."""
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


def encoding_of(label: str) -> str | None:
    """Returns the name of an encoding, which extends ASCII, in Python; None: UTF-8, UTF-16 or an unknown one."""
    # Browsers ignore `latin-1`, but editors write it.
    encoding = webencodings.lookup(label.lower().replace("latin-", "latin"))
    if encoding is None or encoding.name.startswith("utf-") or encoding.name in ("replacement", "x-user-defined"):
        return None
    return str(encoding.codec_info.name)
