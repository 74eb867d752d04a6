"""Parses and writes the documents of clients in the sandbox."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dragoman.serve.documents.document import DocumentError, DocumentRequest, Segment, SegmentFormat
from dragoman.serve.documents.job import JobLimits
from dragoman.serve.documents.parsers import PARSE, WRITE
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.sandbox.worker import MEBIBYTE, Limits, Refusal

# Per byte of the largest document. Writing takes the memory of parsing, and that of the translations. With the default
# size, a hostile document costs the whole service less than 300 MiB while it is parsed.
_PARSE_BYTES = 18
_WRITE_BYTES = 24
_OUTPUT_BYTES = 4
_MIN_DOCUMENT_BYTES = 4 * MEBIBYTE
# A packed document may grow.
_BASE_SECONDS = 6
# Index of the document among the items.
_DATA = 2
# Each segment would have its own copy of the name, as long as many texts.
_FORMATS: dict[str, SegmentFormat] = {"text": "text", "xml": "xml"}


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a parsed document.

    Attributes:
        segments: different ones, in the order of their first occurrences.
        parts: number of the parts in which the segments are translated.
        characters: of all segments of the document.
    """

    segments: Sequence[Segment]
    parts: int
    characters: int


class DocumentReader:
    """Parses and writes documents outside of this process."""

    def __init__(self, sandbox: Sandbox, limits: JobLimits) -> None:
        self._sandbox = sandbox
        self._limits = limits

    async def check(self) -> None:
        """Checks that documents can be read; raises ParserUnavailableError if no process can be started."""
        await self._sandbox.check()

    async def parse(self, name: str, data: bytes, request: DocumentRequest) -> DocumentText:
        """Returns the text; raises DocumentError if the document is malformed, ServiceError if it cannot be read."""
        parts, characters, *segments = await self._call(PARSE, _PARSE_BYTES, (name, asdict(request), data))
        return DocumentText(segments, parts, characters)

    async def write(self, name: str, data: bytes, request: DocumentRequest, translations: Sequence[str]) -> bytes:
        """Returns the translated document; raises DocumentError if its encoding lacks a character, or ServiceError."""
        (written,) = await self._call(WRITE, _WRITE_BYTES, (name, asdict(request), data, *translations))
        return bytes(written)

    async def _call(self, parser: str, memory_factor: int, items: Sequence[Item]) -> list[Item]:
        largest_bytes = max(self._limits.document_bytes, _MIN_DOCUMENT_BYTES)
        limits = Limits.of_input(
            len(items[_DATA]),
            memory_bytes=memory_factor * largest_bytes,
            output_bytes=_OUTPUT_BYTES * largest_bytes,
            base_seconds=_BASE_SECONDS,
        )
        try:
            return await self._sandbox.call(parser, items, purpose="documents", limits=limits, convert=_result)
        except Refusal as refusal:
            raise DocumentError(*refusal.args) from refusal


def _result(item: Item) -> Item:
    """Returns a segment in place of its text and format."""
    if not isinstance(item, list):
        return item
    text, name = item
    return Segment(text, _FORMATS[name])
