"""The parsers of documents in the sandbox. They keep nothing: to write a translation, a document is parsed again."""

from collections.abc import Iterator

from serve.documents.distinct import DistinctSegments
from serve.documents.document import DocumentError, DocumentRequest
from serve.documents.formats import parse_document
from serve.sandbox.frames import Item
from serve.sandbox.worker import Parser, Refusal

PARSE, WRITE = "documents.parse", "documents.write"


def _parse(items: list[Item]) -> Iterator[Item]:
    """Yields the numbers of parts and characters, then text and format of each different segment."""
    name, request, data = items
    document = _read(name, request, data)
    yield document.parts
    yield document.characters
    for segment in document.segments:
        yield segment.text, segment.format


def _write(items: list[Item]) -> Iterator[Item]:
    """Yields the translated document."""
    name, request, data, *translations = items
    document = _read(name, request, data)
    try:
        yield document.write(translations)
    except DocumentError as error:
        raise Refusal(str(error)) from error


def _read(name: str, request: dict[str, Item], data: bytes) -> DistinctSegments:
    try:
        # JSON has no tuples.
        values = {**request, "ignore_tags": tuple(request["ignore_tags"])}
        return DistinctSegments(parse_document(name, data, DocumentRequest(**values)))
    except DocumentError as error:
        raise Refusal(str(error)) from error


PARSERS: dict[str, Parser] = {PARSE: _parse, WRITE: _write}
