"""A document with each of its different segments once."""

from collections.abc import Sequence

from dragoman.serve.documents.document import Document, Segment
from dragoman.serve.documents.translation import count_parts


class DistinctSegments:
    """The different segments of a document. Many take long.

    Attributes:
        segments: in the order of their first occurrences.
        parts: number of the parts in which the segments are translated.
        characters: of all segments of the document.
    """

    def __init__(self, document: Document) -> None:
        numbers = dict[Segment, int]()
        of_document = document.segments
        self._document = document
        self._numbers = [numbers.setdefault(item, len(numbers)) for item in of_document]
        self.segments = list(numbers)
        self.parts = sum(map(count_parts, self.segments))
        self.characters = sum(len(item.visible) for item in of_document)

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the translated document; raises DocumentError if its encoding lacks a character."""
        return self._document.write([translations[number] for number in self._numbers])
