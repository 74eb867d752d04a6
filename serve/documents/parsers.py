"""The parsers of documents in the sandbox.

To write a translation, a document is parsed again, unless it is small and the process that has parsed it still has it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from dragoman.serve.documents.translation import DistinctSegments
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import MAX_SMALL_INPUT_BYTES, Parser, Refusal

PARSE, WRITE = "documents.parse", "documents.write"
# Small documents that wait for their translations: those that a process of the server translates at once.
MAX_KEPT_DOCUMENTS = 4
_Source = tuple[str, DocumentRequest, bytes]
_kept = OrderedDict[_Source, DistinctSegments]()


def _parse(items: list[Item]) -> Iterator[Item]:
    """Yields the numbers of parts and characters, then text and format of each different segment."""
    source = _source(*items)
    document = _read(source)
    if len(source[-1]) <= MAX_SMALL_INPUT_BYTES:
        _kept[source] = document
        if len(_kept) > MAX_KEPT_DOCUMENTS:
            _kept.popitem(last=False)
    yield document.parts
    yield document.characters
    for segment in document.segments:
        yield segment.text, segment.format


def _write(items: list[Item]) -> Iterator[Item]:
    name, request, data, *translations = items
    source = _source(name, request, data)
    document = _kept.pop(source, None) or _read(source)
    try:
        yield document.write(translations)
    except DocumentError as error:
        raise Refusal(str(error)) from error


def _source(name: str, request: dict[str, Item], data: bytes) -> _Source:
    # JSON has no tuples.
    fields: dict[str, Any] = {
        field: tuple(value) if isinstance(value, list) else value for field, value in request.items()
    }
    return name, DocumentRequest(**fields), data


def _read(source: _Source) -> DistinctSegments:
    name, request, data = source
    try:
        return DistinctSegments(parse_document(name, data, request))
    except DocumentError as error:
        raise Refusal(str(error)) from error


PARSERS: dict[str, Parser] = {PARSE: _parse, WRITE: _write}
